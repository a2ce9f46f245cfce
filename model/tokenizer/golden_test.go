package tokenizer_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/berthd/berth/backendtest"
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/model/tokenizer"
	"github.com/berthd/berth/worker"
)

const golden = "../../testdata/golden/"

// fromGGUF builds the tokenizer of a model file by way of its card, as a cluster does.
func fromGGUF(t testing.TB, path string) *tokenizer.Tokenizer {
	t.Helper()
	f, err := model.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := tokenizer.New(tokenizer.SpecOf(worker.NewCard(f, "").Tokenizer))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func realModel(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	return fromGGUF(t, backendtest.RealModelPath(t))
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

type realRow struct {
	Hex     string  `json:"hex"`
	Plain   []int32 `json:"llama_cpp"`
	Special []int32 `json:"llama_cpp_parse_special"`
}

func TestRealVocabulary(t *testing.T) { // T1, T2
	tok := realModel(t)
	var file struct {
		Strings []realRow `json:"strings"`
	}
	readJSON(t, golden+"gemma3-270m/tokens.json", &file)
	for _, row := range file.Strings {
		raw, err := hex.DecodeString(row.Hex)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		for _, special := range []bool{false, true} {
			want := row.Plain
			if special {
				want = row.Special
			}
			got := tok.Encode(nil, text, special)
			if !slices.Equal(got, want) {
				t.Errorf("T1: %q (special %v): %v, want %v", text, special, got, want)
			}
			back := tok.Decode(got, true)
			if utf8.ValidString(text) && back != strings.ReplaceAll(text, "\u2581", " ") {
				t.Errorf("T2: %q came back as %q", text, back)
			}
		}
	}
}

type tinyRow struct {
	Text        string  `json:"text"`
	IDs         []int32 `json:"ids"`
	IDsSpecial  []int32 `json:"ids_special"`
	Decoded     string  `json:"decoded"`
	DecodedSkip string  `json:"decoded_skip"`
}

func TestTinyVocabularies(t *testing.T) { // T1, T2
	for _, name := range []string{"gemma2", "gemma3", "gptoss", "llama", "mistral", "phi3", "qwen2", "qwen3", "qwen3moe"} {
		t.Run(name, func(t *testing.T) {
			file := "/model-q8_0.gguf"
			if name == "gptoss" {
				file = "/model-mxfp4.gguf"
			}
			checkTiny(t, fromGGUF(t, golden+"tiny/"+name+file), golden+"tiny/"+name+"/tokenizer_golden.json")
		})
	}
	for _, name := range []string{"gemma2", "gemma3", "gptoss", "llama", "phi3", "qwen3", "qwen3moe"} {
		t.Run(name+"/folder", func(t *testing.T) {
			checkTiny(t, fromGGUF(t, golden+"tiny/"+name), golden+"tiny/"+name+"/tokenizer_golden.json")
		})
	}
}

// A folder without tokenizer.json has the same tokens by its tokenizer.model.
func TestSentencePieceModels(t *testing.T) { // T1, T2
	for _, name := range []string{"gemma2", "gemma3", "phi3"} {
		t.Run(name, func(t *testing.T) {
			from, dir := golden+"tiny/"+name+"/", t.TempDir()
			for _, file := range []string{
				"config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json", "generation_config.json",
			} {
				raw, err := os.ReadFile(from + file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), raw, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			checkTiny(t, fromGGUF(t, dir), from+"tokenizer_golden.json")
		})
	}
}

// checkTiny compares with transformers' ids and texts.
func checkTiny(t *testing.T, tok *tokenizer.Tokenizer, path string) {
	var file struct {
		Strings []tinyRow `json:"strings"`
	}
	readJSON(t, path, &file)
	for _, row := range file.Strings {
		got := tok.Encode(nil, row.Text, true)
		if !slices.Equal(got, row.IDs) {
			t.Errorf("T1: %q: %v, want %v", row.Text, got, row.IDs)
		}
		if d := tok.Decode(row.IDs, true); d != row.Decoded {
			t.Errorf("T2: %v decode to %q, want %q", row.IDs, d, row.Decoded)
		}
		if d := tok.Decode(row.IDs, false); d != row.DecodedSkip {
			t.Errorf("T2: %v decode to %q without special tokens, want %q", row.IDs, d, row.DecodedSkip)
		}
		begins := tok.Spec().BOS >= 0 && strings.HasPrefix(row.Text, tok.Piece(tok.Spec().BOS))
		if with := tok.EncodePrompt(row.Text); !begins && !slices.Equal(with, row.IDsSpecial) {
			t.Errorf("prompt %q: %v, want %v", row.Text, with, row.IDsSpecial)
		}
	}
}

// A space in front of an answer is the answer's, where encoding adds one to a text's beginning too.
func TestSpaceInFront(t *testing.T) {
	tok := fromGGUF(t, golden+"tiny/mistral/model-q8_0.gguf")
	ids := tok.Encode(nil, "the", false)
	if got := tok.Decode(ids, false); got != "the" {
		t.Errorf("a whole text is %q", got)
	}
	d, answer := tok.NewDecoder(false), ""
	for _, id := range ids {
		answer += d.Add(id)
	}
	if answer+d.Flush() != " the" {
		t.Errorf("an answer is %q", answer)
	}
}

// TestPrompt keeps the double beginning of a chat template's text out (vllm-project/vllm#27486).
func TestPromptHasOneBeginning(t *testing.T) {
	tok := fromGGUF(t, golden+"tiny/gemma3/model-q8_0.gguf")
	if ids := tok.EncodePrompt("<bos>hi"); ids[0] != 2 || ids[1] == 2 {
		t.Errorf("%v begins twice", ids)
	}
}

// TestCuts merges with and without cutting where no token joins, on random text of awkward characters.
func TestCutsChangeNothing(t *testing.T) { // T1
	tok := fromGGUF(t, golden+"tiny/gemma3/model-q8_0.gguf")
	alphabet := []string{"a", "the", " ", "  ", "\n", "é", "今", "🙂", "\xff", "\xf0\x9f", "<", "<bos>", "1", "▁", "ing", "."}
	rng := rand.New(rand.NewPCG(5, 5))
	for range 3000 {
		var b strings.Builder
		for range 1 + rng.IntN(40) {
			b.WriteString(alphabet[rng.IntN(len(alphabet))])
		}
		text := b.String()
		if got, want := tok.Encode(nil, text, false), tokenizer.EncodeWhole(tok, text); !slices.Equal(got, want) {
			t.Fatalf("%q: %v in cuts, %v whole", text, got, want)
		}
	}
}

// T1: a run that is merged in windows has the tokens that it has whole.
func TestWindowsChangeNothing(t *testing.T) {
	tok := fromGGUF(t, golden+"tiny/gemma3/model-q8_0.gguf")
	rng := rand.New(rand.NewPCG(7, 7))
	alphabet := []string{"a", "b", "the", "ing", "é", "今", "\xf0\x9f", "1", "in", "t", "h"}
	for range 3000 {
		var b strings.Builder
		for range 1 + rng.IntN(100) {
			b.WriteString(alphabet[rng.IntN(1+rng.IntN(len(alphabet)))])
		}
		text := b.String()
		want := tokenizer.EncodeWindowed(tok, text, len(text))
		for _, window := range []int{1, 2, 5, 16, 64} {
			if got := tokenizer.EncodeWindowed(tok, text, window); !slices.Equal(got, want) {
				t.Fatalf("%q in windows of %d: %v, whole %v", text, window, got, want)
			}
		}
	}
}

// A text of one word takes memory of a few bytes for each of its own, and a limit or the caller's end stops it.
func TestOneLongWordInBoundedMemory(t *testing.T) {
	tok := realModel(t)
	text := strings.Repeat("a", 8<<20)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ids, err := tok.EncodeContext(t.Context(), make([]int32, 0, 2<<20), text, tokenizer.Options{})
	runtime.ReadMemStats(&after)
	if tok.Decode(ids, false) != text || err != nil {
		t.Errorf("%d ids of the text are not its own: %v", len(ids), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 5*uint64(len(text)) {
		t.Errorf("%d bytes for a text of %d", used, len(text))
	}
	if least := tok.LeastTokens(len(text)); least > len(ids) || least < len(text)/1000 {
		t.Errorf("at least %d ids, and there are %d", least, len(ids))
	}
	ids, err = tok.EncodeContext(t.Context(), nil, text, tokenizer.Options{Limit: 1000})
	if !errors.Is(err, tokenizer.ErrTooLong) || len(ids) > 20_000 {
		t.Errorf("limited to 1000: %d ids, %v", len(ids), err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if ids, err = tok.EncodeContext(gone, nil, text, tokenizer.Options{}); !errors.Is(err, context.Canceled) || len(ids) > 20_000 {
		t.Errorf("a caller that is gone: %d ids, %v", len(ids), err)
	}
}

func TestDecoderNeverSplitsCharacters(t *testing.T) { // T3
	tok := fromGGUF(t, golden+"tiny/gemma3/model-q8_0.gguf")
	rng := rand.New(rand.NewPCG(6, 6))
	for range 2000 {
		var ids []int32
		for range 1 + rng.IntN(30) {
			ids = append(ids, int32(rng.IntN(tok.Len())))
		}
		d := tok.NewDecoder(true)
		var b strings.Builder
		for _, id := range ids {
			part := d.Add(id)
			if !utf8.ValidString(part) {
				t.Fatalf("%v: %q is cut", ids, part)
			}
			b.WriteString(part)
		}
		b.WriteString(d.Flush())
		if whole := tok.Decode(ids, true); b.String() != whole {
			t.Fatalf("%v: %q in parts, %q whole", ids, b.String(), whole)
		}
	}
}

func FuzzEncode(f *testing.F) { // T2
	tok := fromGGUF(f, golden+"tiny/gemma3/model-q8_0.gguf")
	llama, qwen := fromGGUF(f, golden+"tiny/llama/model-q8_0.gguf"), fromGGUF(f, golden+"tiny/qwen3/model-q8_0.gguf")
	for _, s := range []string{"", " ", "▁▁", "<bos>x<eos>", "\xed\xa0\x80", "🙂  \n\n\t", "e\u0301'ſ <|im_end|>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		back := tok.Decode(tok.Encode(nil, s, true), true)
		if utf8.ValidString(s) && back != strings.ReplaceAll(s, "▁", " ") {
			t.Fatalf("%q came back as %q", s, back)
		}
		if back := llama.Decode(llama.Encode(nil, s, true), true); utf8.ValidString(s) && back != s {
			t.Fatalf("byte-level: %q came back as %q", s, back)
		}
		if back := qwen.Decode(qwen.Encode(nil, s, false), true); utf8.ValidString(s) && back != norm.NFC.String(s) {
			t.Fatalf("byte-level, normal form C: %q came back as %q", s, back)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	real := realModel(b)
	var file struct {
		Strings []realRow `json:"strings"`
	}
	readJSON(b, golden+"gemma3-270m/tokens.json", &file)
	var mixed strings.Builder
	for _, row := range file.Strings {
		raw, _ := hex.DecodeString(row.Hex)
		if utf8.Valid(raw) && len(raw) < 300 {
			mixed.Write(raw)
			mixed.WriteByte('\n')
		}
	}
	var prose struct {
		IDs []int32 `json:"ids"`
	}
	readJSON(b, golden+"gemma3-270m/perplexity.json", &prose)
	rng := rand.New(rand.NewPCG(3, 3))
	random := make([]byte, 4096)
	for i := range random {
		random[i] = "etaoinshrdlucmfwypvbgkqjxz"[rng.IntN(26)]
	}
	for _, tok := range []*tokenizer.Tokenizer{
		real, fromGGUF(b, golden+"tiny/llama/model-q8_0.gguf"), fromGGUF(b, golden+"tiny/qwen3/model-q8_0.gguf"),
	} {
		for name, text := range map[string]string{
			"prose": real.Decode(prose.IDs, false), "mixed": mixed.String(), "random letters": string(random),
			"spaces": strings.Repeat(" ", 4096),
		} {
			b.Run(tok.Spec().Kind+tok.Spec().Pre+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				ids := make([]int32, 0, len(text))
				for b.Loop() {
					ids = tok.Encode(ids[:0], text, true)
				}
			})
		}
	}
}
