package router

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berthd/berth/model/tokenizer"
)

// pieces is a vocabulary in which the given texts are the ids 3, 4, …; 0 is unknown, 1 and 2 are control.
func pieces(t testing.TB, texts ...string) *card {
	t.Helper()
	spec := tokenizer.Spec{Kind: "llama", BOS: 2, EOS: 1, Unknown: 0, End: []int32{1}}
	add := func(text string, typ tokenizer.Type) {
		spec.Tokens, spec.Types, spec.Scores = append(spec.Tokens, text), append(spec.Types, typ), append(spec.Scores, 0)
	}
	add("<unk>", tokenizer.Unknown)
	add("<eos>", tokenizer.Control)
	add("<bos>", tokenizer.Control)
	for _, text := range texts {
		typ := tokenizer.Normal
		if strings.HasPrefix(text, "<0x") {
			typ = tokenizer.Byte
		}
		add(text, typ)
	}
	tok, err := tokenizer.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return &card{tok: tok, end: spec.End}
}

// run feeds ids until the text is over, and returns it, what matched, and the ids used.
func run(d *detok, ids []int32) (text string, used int) {
	var out strings.Builder
	for _, id := range ids {
		part, over := d.add(id)
		out.WriteString(part)
		if over {
			break
		}
	}
	out.WriteString(d.end())
	return out.String(), d.tokens
}

// B32: a stop string over token boundaries never shows a part of itself, and the text ends right before it.
func TestStopStrings(t *testing.T) {
	k := pieces(t, "alpha", " beta", " gam", "ma", " delta", "e", "n", "own", " f", "ox", "a", "b", "c", "d",
		"<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "삼", "겹")
	for _, c := range []struct {
		name    string
		ids     []int32
		stops   []string
		min     int
		include bool
		text    string
		matched string
		used    int
	}{
		{"over three tokens", []int32{3, 4, 5, 6, 7}, []string{"beta gamma"}, 0, false, "alpha ", "beta gamma", 4},
		{"inside a word", []int32{10, 11, 12, 7}, []string{"own fox"}, 0, false, "", "own fox", 3},
		{"begins and does not go on", []int32{4, 5, 7}, []string{"beta gamma"}, 0, false, " beta gam delta", "", 3},
		{"one is a prefix of another, in one token", []int32{3, 7}, []string{"al", "alpha"}, 0, false, "", "alpha", 1},
		{"one is a prefix of another, over two", []int32{13, 14, 15}, []string{"ab", "abc"}, 0, false, "", "ab", 2},
		{"the earlier one ends first", []int32{13, 14, 15, 16}, []string{"abcd", "bc"}, 0, false, "a", "bc", 3},
		{"the same letters begin anew", []int32{13, 13, 14}, []string{"ab"}, 0, false, "a", "ab", 3},
		{"included", []int32{3, 4, 5, 6, 7}, []string{"beta gamma"}, 0, true, "alpha beta gamma", "beta gamma", 4},
		{"before min_tokens", []int32{13, 14, 13, 14, 15}, []string{"ab"}, 2, false, "ab", "ab", 4},
		{"ends after min_tokens", []int32{13, 13, 14, 15}, []string{"ab"}, 2, false, "a", "ab", 3},
		{"in a run of many bytes", []int32{21, 17, 18, 19, 20, 22}, []string{"🙂겹"}, 0, false, "삼", "🙂겹", 6},
		{"a byte of it only", []int32{21, 17, 18}, []string{"🙂"}, 0, false, "삼\uFFFD", "", 3},
		{"then the end", []int32{13, 1}, []string{"ab"}, 0, false, "a", "", 2},
	} {
		q := &request{card: k, params: params{stops: c.stops, minTokens: c.min, includeStop: c.include}}
		d := newDetok(q)
		text, used := run(d, c.ids)
		if text != c.text || d.matched != c.matched || used != c.used {
			t.Errorf("%s: %q, matched %q after %d; want %q, %q, %d", c.name, text, d.matched, used, c.text, c.matched, c.used)
		}
	}
}

// oracle knows the whole text after every token: it looks for the earliest stop string that ends in the token's text.
func oracle(k *card, ids []int32, stops []string, after int) (text, matched string, used int) {
	dec := k.tok.NewDecoder(false)
	whole := ""
	for i, id := range ids {
		before := len(whole)
		whole += dec.Add(id)
		if i+1 <= after {
			continue
		}
		at := -1
		for lo := range whole {
			for _, s := range stops {
				if strings.HasPrefix(whole[lo:], s) && lo+len(s) > before && (at < 0 || lo == at && len(s) > len(matched)) {
					at, matched = lo, s
				}
			}
			if at >= 0 {
				return whole[:at], matched, i + 1
			}
		}
	}
	return whole + dec.Flush(), "", len(ids)
}

func TestStopStringsAgainstOracle(t *testing.T) { // R3
	k := pieces(t, "a", "b", "ab", "ba", "aab", "abab", "é", "<0xC3>", "<0xA9>", "ab é", " ", "bé")
	alphabet := []string{"a", "b", "é", " "}
	rng := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for range 20000 {
		var stops []string
		for range rng.IntN(4) {
			var s strings.Builder
			for range 1 + rng.IntN(4) {
				s.WriteString(alphabet[rng.IntN(len(alphabet))])
			}
			stops = append(stops, s.String())
		}
		ids := make([]int32, rng.IntN(12))
		for i := range ids {
			ids[i] = 3 + int32(rng.IntN(12))
		}
		after := rng.IntN(4)
		d := newDetok(&request{card: k, params: params{stops: stops, minTokens: after}})
		text, used := run(d, ids)
		wantText, wantStop, wantUsed := oracle(k, ids, stops, after)
		if text != wantText || d.matched != wantStop || used != wantUsed {
			t.Fatalf("R3: %v, stops %q, min %d: %q, %q after %d; want %q, %q, %d",
				ids, stops, after, text, d.matched, used, wantText, wantStop, wantUsed)
		}
		if !utf8.ValidString(text) {
			t.Fatalf("R3: %q", text)
		}
		if d.matched != "" {
			hits++
		}
	}
	if hits < 1000 {
		t.Errorf("only %d of the texts were stopped", hits)
	}
}

// The work for stop strings is linear in the text, whatever they are: by looking for each beginning of each at each token
// this text takes minutes.
func TestStopStringsThatNearlyMatchForEver(t *testing.T) {
	k := pieces(t, "a")
	var stops []string
	for n := range maxStops {
		half := strings.Repeat("a", maxStop/2-1-n)
		stops = append(stops, half+"c"+half)
	}
	d := newDetok(&request{card: k, params: params{stops: stops}})
	given := 0
	for n := range 400_000 {
		text, over := d.add(3)
		if given += len(text); over || n+1-given >= maxStop {
			t.Fatalf("%d bytes of %d are given, over: %v", given, n+1, over)
		}
	}
}

// What a client has seen never has to be taken back: no piece shows the beginning of the stop string that comes.
func TestNothingIsTakenBack(t *testing.T) { // R3
	k := pieces(t, "a", "b", "ab", "ba")
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		d := newDetok(&request{card: k, params: params{stops: []string{"abba", "bb"}}})
		var shown, whole strings.Builder
		for range 20 {
			id := 3 + int32(rng.IntN(4))
			whole.WriteString(k.tok.Piece(id))
			part, over := d.add(id)
			shown.WriteString(part)
			if !strings.HasPrefix(whole.String(), shown.String()) {
				t.Fatalf("R3: showed %q of %q", shown.String(), whole.String())
			}
			if over {
				break
			}
		}
		if d.matched != "" && strings.Contains(shown.String(), "bb") {
			t.Fatalf("R3: showed %q", shown.String())
		}
	}
}

// Stop ids end the text without their own, and not before min_tokens.
func TestStopIDs(t *testing.T) {
	k := pieces(t, "a", "b")
	d := newDetok(&request{card: k, params: params{stopIDs: []int32{4}, minTokens: 1}})
	if text, used := run(d, []int32{4, 3, 4, 3}); text != "ba" || used != 3 || d.stopID != 4 {
		t.Errorf("%q after %d, stopped by %d", text, used, d.stopID)
	}
	d = newDetok(&request{card: k, params: params{ignoreEOS: true}})
	if text, used := run(d, []int32{3, 1, 4}); text != "ab" || used != 3 {
		t.Errorf("ignore_eos: %q after %d", text, used)
	}
}

// B28, B31: characters over several tokens come whole, and an end inside of one is one U+FFFD.
func TestCharactersOverTokens(t *testing.T) { // R3
	k := testCard()
	text := "삼겹살 👩‍👩‍👧‍👦 ไทย naïve 𝔘"
	ids := k.tok.Encode(nil, text, false)
	for n := range len(ids) + 1 {
		d := newDetok(&request{card: k})
		var parts []string
		for _, id := range ids[:n] {
			part, _ := d.add(id)
			parts = append(parts, part)
			if !utf8.ValidString(part) {
				t.Fatalf("R3: %q", part)
			}
		}
		got := strings.Join(append(parts, d.end()), "")
		if want := k.tok.Decode(ids[:n], false); got != want || n == len(ids) && got != text {
			t.Errorf("R3: %d tokens: %q, want %q", n, got, want)
		}
		if strings.Count(got, "\uFFFD") > 1 {
			t.Errorf("B31: %d tokens: %q", n, got)
		}
	}
}
