package worker

import (
	"crypto/sha256"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/model/tokenizer"
)

// turnEnds are the texts of tokens that end an answer, in the families that files name badly.
var turnEnds = []string{"<end_of_turn>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"}

// replyEnds are those of models whose turns have several messages, each with an end of its own: "<|end|>" ends no answer
// there. The first is the token that such a vocabulary is known by.
var replyEnds = []string{"<|channel|>", "<|return|>", "<|call|>", "<|endoftext|>"}

// NewCard is the card of a model file or folder, with template in place of the file's own unless that is empty.
func NewCard(f *model.File, template string) *workerv1.Card {
	t := &workerv1.Tokenizer{Bos: -1, Eos: -1, Unknown: -1, Padding: -1}
	t.Kind, _ = f.String("tokenizer.ggml.model")
	t.Pre, _ = f.String("tokenizer.ggml.pre")
	t.Merges, _ = f.Strings("tokenizer.ggml.merges")
	t.Tokens, _ = f.Strings("tokenizer.ggml.tokens")
	t.Scores, _ = f.Floats("tokenizer.ggml.scores")
	types, _ := f.Ints("tokenizer.ggml.token_type")
	for _, v := range types {
		t.Types = append(t.Types, byte(v))
	}
	markTurns(f, t)
	for key, id := range map[string]*int32{"bos": &t.Bos, "eos": &t.Eos, "unknown": &t.Unknown, "padding": &t.Padding} {
		if v, ok := f.Uint("tokenizer.ggml." + key + "_token_id"); ok {
			*id = int32(v)
		}
	}
	t.AddEos, _ = f.Bool("tokenizer.ggml.add_eos_token")
	// Where a file leaves these out they are what llama.cpp takes them for.
	t.AddSpacePrefix = t.Kind == "llama"
	t.AddBos = t.Kind == "llama" || t.Pre == "llama-bpe"
	if v, ok := f.Bool("tokenizer.ggml.add_bos_token"); ok {
		t.AddBos = v
	}
	if v, ok := f.Bool("tokenizer.ggml.add_space_prefix"); ok {
		t.AddSpacePrefix = v
	}
	t.End = ends(f, t)
	if template == "" {
		template, _ = f.String("tokenizer.chat_template")
	}
	return &workerv1.Card{Tokenizer: t, ChatTemplate: template}
}

// markTurns has the tokens of Phi 3's turns take the white space after them, as its tokenizer.json says and a GGUF file
// cannot.
func markTurns(f *model.File, t *workerv1.Tokenizer) {
	if arch, _ := f.String("general.architecture"); arch != "phi3" || t.Kind != "llama" {
		return
	}
	for id, typ := range t.Types[:min(len(t.Types), len(t.Tokens))] {
		if text := t.Tokens[id]; tokenizer.Type(typ) == tokenizer.Control && strings.HasPrefix(text, "<|") && text != "<|endoftext|>" {
			t.Types[id] = byte(tokenizer.ControlStrip)
		}
	}
}

// CheckCard says why a router could not make a tokenizer of a card: tokenizer.ErrVocabulary, with the key at fault.
func CheckCard(c *workerv1.Card) error {
	_, err := tokenizer.New(tokenizer.SpecOf(c.GetTokenizer()))
	return err
}

// ends are the ids that end a generation, ascending: the file's, and known control tokens that end a turn.
func ends(f *model.File, t *workerv1.Tokenizer) []int32 {
	var out []int32
	for _, key := range []string{"eos", "eot"} {
		if v, ok := f.Uint("tokenizer.ggml." + key + "_token_id"); ok {
			out = append(out, int32(v))
		}
	}
	more, _ := f.Ints(model.EndTokens)
	out = append(out, more...)
	known := turnEnds
	if slices.Contains(t.Tokens, replyEnds[0]) && slices.Contains(t.Tokens, replyEnds[1]) {
		known = replyEnds[1:]
	}
	for id, text := range t.Tokens {
		if len(text) > 4 && text[0] == '<' && slices.Contains(known, text) {
			out = append(out, int32(id))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Fingerprint is the SHA-256 of a card, by which routers keep it.
func Fingerprint(c *workerv1.Card) ([]byte, error) {
	raw, err := marshalCard(c)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return sum[:], nil
}

func marshalCard(c *workerv1.Card) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(c)
}
