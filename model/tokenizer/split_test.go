package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

const endings = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

// patterns are those of the models' tokenizer.json, by a name of their family: the scanners must cut as they do.
var patterns = map[string]string{
	"gpt-2":     `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
	"llama-bpe": endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen2":     endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen35": endings + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+` +
		`|\s+(?!\S)|\s+`,
	"gpt-4o": `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` + endings + `?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` + endings + `?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"tekken": `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
}

// oracle cuts text by a pattern.
func oracle(t testing.TB, pattern *regexp2.Regexp, text string) (words []string) {
	t.Helper()
	runes, end := []rune(text), 0
	m, err := pattern.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = pattern.FindNextMatch(m) {
		if m.RuneIndex != end {
			t.Fatalf("%q: the pattern leaves out %q", text, string(runes[end:m.RuneIndex]))
		}
		end += m.RuneLength
		words = append(words, string(runes[m.RuneIndex:end]))
	}
	if err != nil {
		t.Fatal(err)
	}
	return words
}

func cutUp(f family, c *classes, text string) (words []string) {
	for text != "" {
		n := f.word(c, text)
		words = append(words, text[:n])
		text = text[n:]
	}
	return words
}

// awkward are characters of every class, and those that patterns name.
var awkward = []string{
	"a", "b", "S", "T", "e", "é", "ß", "ſ", "K", "'", "'s", "'LL", "'ſ", "1", "23", "٣", "½", "Ⅷ", " ", "  ", "\t", "\n",
	"\r\n", "\v", "\u0085", "\u00a0", "\u2003", "\u2028", "\u200b", "\u3000", ".", "/", "!?", "_", "今", "日本", "ʰ", "ǅ",
	"\u0301", "\u0e31", "🙂", "👩‍💻", "ก", "ا", "ا\u064b", "𝒜", "𠀀", "\U000e0101", "ａ", "１", "\x00", "\ufeff", "\ufffd",
}

// T1: scanners cut random text of awkward characters as the patterns do.
func TestScanners(t *testing.T) {
	c, rng := newClasses(), rand.New(rand.NewPCG(8, 8))
	for name, pattern := range patterns {
		re := regexp2.MustCompile(pattern, regexp2.None)
		for range 4000 {
			var b strings.Builder
			for range 1 + rng.IntN(12) {
				b.WriteString(awkward[rng.IntN(len(awkward))])
			}
			text := b.String()
			if got, want := cutUp(families[name], c, text), oracle(t, re, text); !slices.Equal(got, want) {
				t.Fatalf("%s: %q is cut into %q, want %q", name, text, got, want)
			}
		}
	}
}

// T1, on whatever the fuzzer finds; T2: a family's words are the text.
func FuzzScanners(f *testing.F) {
	c := newClasses()
	compiled := map[string]*regexp2.Regexp{}
	for name, pattern := range patterns {
		compiled[name] = regexp2.MustCompile(pattern, regexp2.None)
	}
	for _, s := range append(awkward, "I'm he'ſ  \r\n x's 'LLAMA", "\xff\xf0\x9f") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name := range patterns {
			got := cutUp(families[name], c, text)
			if strings.Join(got, "") != text {
				t.Fatalf("%s: %q is cut into %q", name, text, got)
			}
			if utf8.ValidString(text) {
				if want := oracle(t, compiled[name], text); !slices.Equal(got, want) {
					t.Fatalf("%s: %q is cut into %q, want %q", name, text, got, want)
				}
			}
		}
	})
}

func BenchmarkScanners(b *testing.B) {
	c := newClasses()
	text := strings.Repeat("The quick brown fox, it's said, jumped over 12345 lazy dogs.\n  今日は良い天気です。 ", 200)
	for _, name := range []string{"llama-bpe", "qwen2", "gpt-4o"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for rest := text; rest != ""; {
					rest = rest[families[name].word(c, rest):]
				}
			}
		})
	}
}
