package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// byteSpec is a byte-level vocabulary of the 256 bytes, two control tokens, and the tokens that merges make.
func byteSpec(pre string, merges ...string) Spec {
	s := Spec{Kind: "gpt2", Pre: pre, BOS: -1, EOS: -1, Unknown: -1, Merges: merges}
	written := map[byte]string{}
	for r, b := range alphabet() {
		written[b] = string(r)
	}
	for b := range 256 {
		s.Tokens = append(s.Tokens, written[byte(b)])
	}
	for _, m := range merges {
		s.Tokens = append(s.Tokens, strings.ReplaceAll(m, " ", ""))
	}
	s.Types = slices.Repeat([]Type{Normal}, len(s.Tokens))
	s.Tokens, s.Types = append(s.Tokens, "<|a|>", "<|ab|>"), append(s.Types, Control, UserDefined)
	return s
}

func TestNewRefusesByteLevel(t *testing.T) {
	for _, c := range []struct {
		what  string
		spoil func(*Spec)
	}{
		{`tokenizer.ggml.pre "default" is not supported`, func(s *Spec) { s.Pre = "default" }},
		{`tokenizer.ggml.pre "" is not supported`, func(s *Spec) { s.Pre = "" }},
		{`tokenizer.ggml.model "wordpiece" is not supported`, func(s *Spec) { s.Kind = "wordpiece" }},
		{`byte 0x41 has no token`, func(s *Spec) { s.Tokens['A'] = "x" }},
		{`merge 0 is "a", but "" is no token`, func(s *Spec) { s.Merges = []string{"a"} }},
		{`merge 0 is "", but "" is no token`, func(s *Spec) { s.Merges = []string{""} }},
		{`merge 0 is "a b", but "ab" is no token`, func(s *Spec) { s.Merges = []string{"a b"} }},
		{`merge 1 is "a b c", but "b c" is no token`, func(s *Spec) { s.Merges = []string{"h e", "a b c"} }},
		{`258 tokens`, func(s *Spec) { s.Tokens, s.Types = s.Tokens[:258], s.Types[:257] }},
		{`no tokens`, func(s *Spec) { s.Tokens, s.Types = nil, nil }},
		{`special id 999`, func(s *Spec) { s.BOS = 999 }},
	} {
		s := byteSpec("llama-bpe", "h e")
		c.spoil(&s)
		if _, err := New(s); !errors.Is(err, ErrVocabulary) || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%v, want %q", err, c.what)
		}
	}
}

// naive merges one pair after the other, as the description of BPE says.
func naive(t *Tokenizer, word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, t.bytes[word[i]])
	}
	for {
		best, at := rankSlot{rank: maxMerges}, -1
		for i := range len(ids) - 1 {
			if rank, id, ok := t.ranks.find(ids[i], ids[i+1]); ok && rank < best.rank {
				best, at = rankSlot{rank: rank, id: id}, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, best.id)
	}
}

// T1: short and long words merge by rank, the leftmost of equals first.
func TestMergesByRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	letters := []string{"a", "b", "c", "aa", "ab", "ba"}
	var merges []string
	for range 60 { // texts grow from those that stand already
		l, r := letters[rng.IntN(len(letters))], letters[rng.IntN(len(letters))]
		for _, text := range []string{"aa", "ab", "ba"} {
			if !slices.Contains(merges, fmt.Sprintf("%c %c", text[0], text[1])) {
				merges = append(merges, fmt.Sprintf("%c %c", text[0], text[1]))
			}
		}
		if m := l + " " + r; !slices.Contains(merges, m) {
			merges, letters = append(merges, m), append(letters, l+r)
		}
	}
	rng.Shuffle(len(merges), func(i, j int) { merges[i], merges[j] = merges[j], merges[i] })
	tok, err := New(byteSpec("qwen2", merges...))
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		var b strings.Builder
		for range 1 + rng.IntN(80) {
			b.WriteByte("aaabbc"[rng.IntN(6)])
		}
		want := naive(tok, b.String())
		if got := tok.Encode(nil, b.String(), false); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", b.String(), got, want)
		}
		for _, window := range []int{1, 2, 3, 8, 20, 100} {
			if got := EncodeWindowed(tok, b.String(), window); !slices.Equal(got, want) {
				t.Fatalf("%q in windows of %d: %v, want %v", b.String(), window, got, want)
			}
		}
	}
}

// T1: a word that is a token is taken whole where the family says so, whatever its merges.
func TestWholeWords(t *testing.T) {
	for pre, want := range map[string]int{"llama-bpe": 1, "qwen2": 2} {
		s := byteSpec(pre, "h e", "e r")
		s.Tokens, s.Types = append(s.Tokens, "her"), append(s.Types, Normal)
		tok, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Encode(nil, "her", false); len(got) != want {
			t.Errorf("%s: her is %v, want %d tokens", pre, got, want)
		}
	}
}

// T1: normal form C where the family asks for it; special tokens are found before that, and only if asked for.
func TestNormalFormAndSpecial(t *testing.T) {
	for pre, want := range map[string]string{"llama-bpe": "e\u0301", "qwen2": "\u00e9"} {
		tok, err := New(byteSpec(pre))
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(tok.Encode(nil, "e\u0301", false), true); got != want {
			t.Errorf("%s: %q, want %q", pre, got, want)
		}
		n := int32(tok.Len())
		if got := tok.Encode(nil, "<|a|><|ab|>", true); !slices.Equal(got, []int32{n - 2, n - 1}) {
			t.Errorf("%s: special tokens are %v", pre, got)
		}
		if got := tok.Encode(nil, "<|a|><|ab|>", false); len(got) != 6 || got[5] != n-1 {
			t.Errorf("%s: control token recognised unasked: %v", pre, got)
		}
	}
}
