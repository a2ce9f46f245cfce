package model

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// modelBytes is a small tokenizer.model that Berth takes, with more bytes behind it.
func modelBytes(more ...[]byte) []byte {
	piece := func(text string, kind uint64) []byte {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
		b = protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(-1))
		return message(1, protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), kind))
	}
	raw := append(piece("<unk>", 2), piece("a", 1)...)
	raw = append(raw, message(2, number(3, 2), number(35, 1))...)
	raw = append(raw, message(3, number(3, 1), number(4, 0))...)
	for _, m := range more {
		raw = append(raw, m...)
	}
	return raw
}

func message(n protowire.Number, parts ...[]byte) []byte {
	var body []byte
	for _, p := range parts {
		body = append(body, p...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), body)
}

func number(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

// modelFolder is a golden folder with a tokenizer.model in place of tokenizer.json.
func modelFolder(t testing.TB, raw []byte) string {
	dir := copyFolder(t, "phi3", "config.json", nil)
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, modelFile, raw)
	write(t, dir, "tokenizer_config.json", []byte("{}"))
	return dir
}

// M1, M2: a tokenizer.model that is cut short, lies about its lengths, or asks for more than BPE is refused.
func TestSentencePieceRefuses(t *testing.T) {
	plain := modelBytes()
	for _, c := range []struct {
		what string
		raw  []byte
	}{
		{"no pieces", nil},
		{"unexpected EOF", plain[:len(plain)-1]},
		{"unexpected EOF", []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x07, 'x'}},
		{"unexpected EOF", []byte{0x0a}},
		{"variable length integer overflow", append([]byte{0x10}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)},
		{"invalid field number", []byte{0x00, 0x01}},
		{"model type 1 is not supported", modelBytes(message(2, number(3, 1)))},
		{"without byte_fallback", modelBytes(message(2, number(35, 0)))},
		{"normalises text", modelBytes(message(2, number(24, 1)))},
		{"normalises text", modelBytes(message(3, message(2, []byte("map"))))},
		{"normalises text", modelBytes(message(3, number(4, 1)))},
		{"normalises text", modelBytes(message(3, number(5, 0)))},
		{"piece 2 has type 9", modelBytes(message(1, number(3, 9)))},
		{"piece 2 has type 1 and score NaN", modelBytes(message(1, append([]byte{0x15}, 0, 0, 0xc0, 0x7f)))},
		{"piece 704, the embedding has 704 rows", modelBytes(func() (b []byte) {
			for range 703 {
				b = append(b, message(1)...)
			}
			return b
		}())},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := modelFolder(t, c.raw)
			_, err := Open(dir)
			checkFault(t, err, dir, c.what)
		})
	}
}

// Tokens beside the vocabulary come from either file; a beginning is put before a text unless a file says otherwise.
func TestSentencePieceAdded(t *testing.T) {
	dir := modelFolder(t, modelBytes())
	write(t, dir, "added_tokens.json", []byte(`{"<x>": 5, "<y>": 6}`))
	write(t, dir, "tokenizer_config.json", []byte(`{"added_tokens_decoder": {"5": {"content": "<x>"}, "7": {"content": "<z>",
		"special": true, "rstrip": true}}}`))
	m := openTest(t, dir)
	tokens, _ := m.Strings("tokenizer.ggml.tokens")
	types, _ := m.Ints("tokenizer.ggml.token_type")
	begins, _ := m.Bool("tokenizer.ggml.add_bos_token")
	if got := fmt.Sprint(tokens[:8], types[:8], begins); got !=
		"[<unk> a [PAD2] [PAD3] [PAD4] <x> <y> <z>] [2 1 5 5 5 4 3 7] true" {
		t.Error(got)
	}
	for what, file := range map[string]string{
		"is no id":                `{"added_tokens_decoder": {"x": {"content": "<x>"}}}`,
		`"a" and "<x>" have id 1`: `{"added_tokens_decoder": {"1": {"content": "<x>"}}}`,
		"has id -1":               `{"added_tokens_decoder": {"-1": {"content": "<x>"}}}`,
	} {
		write(t, dir, "tokenizer_config.json", []byte(file))
		_, err := Open(dir)
		checkFault(t, err, dir, what)
	}
}

// FuzzSentencePiece changes the bytes of a vocabulary. M1: it is read, or refused by its file.
func FuzzSentencePiece(f *testing.F) {
	for _, name := range []string{"phi3", "gemma2"} {
		raw, err := os.ReadFile(filepath.Join(golden, "tiny", name, modelFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(modelBytes())
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		write(t, dir, modelFile, raw)
		file := &File{keys: map[string]value{}, tensors: []Tensor{{Name: "token_embd.weight", Dims: []int{8, 704}}}}
		v := &vocabulary{folder: &folder{dir: dir, file: file}}
		if err := v.sentencePieceModel(); err != nil {
			t.Fatal(err)
		}
		if tokens, ok := file.Strings("tokenizer.ggml.tokens"); v.err == nil && (!ok || len(tokens) != 704) {
			t.Errorf("%d tokens", len(tokens))
		}
	})
}
