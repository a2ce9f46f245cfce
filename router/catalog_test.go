package router

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model"
)

// byteLevelCard is the card of a vocabulary with merges by rank.
func byteLevelCard(t *testing.T) *workerv1.Card {
	t.Helper()
	f, err := model.OpenFile("../testdata/golden/tiny/qwen3/model-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k := &workerv1.Tokenizer{Bos: -1, Eos: -1, Unknown: -1, Padding: -1}
	k.Kind, _ = f.String("tokenizer.ggml.model")
	k.Pre, _ = f.String("tokenizer.ggml.pre")
	k.Tokens, _ = f.Strings("tokenizer.ggml.tokens")
	k.Merges, _ = f.Strings("tokenizer.ggml.merges")
	return &workerv1.Card{Tokenizer: k}
}

// A byte-level card makes a tokenizer of its merges and its cut of words; one without either is refused by name.
func TestByteLevelCard(t *testing.T) {
	c := byteLevelCard(t)
	raw, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	k, err := readCard(raw)
	if err != nil {
		t.Fatal(err)
	}
	text := "The quick brown fox isn't 12 years old."
	ids := k.tok.Encode(nil, text, true)
	if back := k.tok.Decode(ids, true); back != text || len(ids) >= len(text) {
		t.Errorf("%d tokens, back as %q", len(ids), back)
	}
	c.Tokenizer.Pre = "unheard-of"
	if raw, err = proto.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if _, err := readCard(raw); err == nil || !strings.Contains(err.Error(), `tokenizer.ggml.pre "unheard-of"`) {
		t.Errorf("an unknown pre-tokeniser: %v", err)
	}
}
