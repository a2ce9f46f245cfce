package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"
)

// byteTokens has a token for each byte, 3 + the byte, and a control token, 1.
func byteTokens(t *testing.T) *Tokenizer {
	t.Helper()
	s := Spec{Kind: "llama", BOS: -1, EOS: 1, Unknown: 0, Tokens: []string{"<unk>", "<eos>", "x"}, Types: []Type{Unknown, Control, Normal}}
	for b := range 256 {
		s.Tokens, s.Types = append(s.Tokens, fmt.Sprintf("<0x%02X>", b)), append(s.Types, Byte)
	}
	s.Scores = make([]float32, len(s.Tokens))
	tok, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// T3: bytes that are no characters become U+FFFD, one for each maximal part of a character, as browsers and transformers
// have it; wherever an id begins, Begins is the place of that character.
func TestBrokenCharactersAsInBrowsers(t *testing.T) {
	tok := byteTokens(t)
	rng := rand.New(rand.NewPCG(8, 8))
	some := []byte{0x61, 0x2f, 0xe1, 0x80, 0xe0, 0xa0, 0xed, 0x9f, 0xf0, 0x9f, 0x99, 0x82, 0xf4, 0x8f, 0xc3, 0xa9, 0xff, 0xc0, 0xbf, 0xf5}
	for range 20_000 {
		raw := make([]byte, 1+rng.IntN(8))
		for i := range raw {
			raw[i] = some[rng.IntN(len(some))]
		}
		want, err := unicode.UTF8.NewDecoder().Bytes(raw)
		if err != nil {
			t.Fatal(err)
		}
		d := tok.NewDecoder(false)
		var got strings.Builder
		var begins []int
		for _, b := range raw {
			got.WriteString(d.Add(3 + int32(b)))
			begins = append(begins, d.Begins())
		}
		got.WriteString(d.Flush())
		if got.String() != string(want) {
			t.Fatalf("% x: %q, want %q", raw, got.String(), want)
		}
		if n := len([]rune(got.String())); begins[0] != 0 || begins[len(begins)-1] >= n || !slices.IsSorted(begins) {
			t.Fatalf("% x: %d characters, ids begin at %v", raw, n, begins)
		}
	}
	d := tok.NewDecoder(false)
	var begins []int
	for _, b := range []byte{0xe1, '/', '5'} {
		d.Add(3 + int32(b))
		begins = append(begins, d.Begins())
	}
	if !slices.Equal(begins, []int{0, 1, 2}) {
		t.Errorf("after an unfinished character ids begin at %v", begins)
	}
}
