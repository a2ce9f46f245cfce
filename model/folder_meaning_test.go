package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// M6: fields that a class of transformers does not read change nothing, and those that it has a default for are as if the
// default was said.
func TestFieldsMeanWhatTheirClassReads(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil map[string]any
		as    map[string]any
	}{
		{"llama", map[string]any{"query_pre_attn_scalar": 7}, nil},
		{"qwen3", map[string]any{"query_pre_attn_scalar": 7, "attn_logit_softcapping": 3}, nil},
		{"llama", map[string]any{"sliding_window_pattern": 3}, nil},
		{"llama", map[string]any{"rope_parameters": map[string]any{"rope_type": "default"}, "rope_theta": 5e4, "rope_scaling": nil},
			map[string]any{"rope_theta": 5e4, "rope_scaling": nil}},
		{"llama", map[string]any{"rope_scaling": map[string]any{"rope_type": "default", "rope_theta": 7e4}, "rope_theta": 5e4},
			map[string]any{"rope_theta": 7e4, "rope_scaling": nil}},
		{"gemma3", map[string]any{"query_pre_attn_scalar": nil}, map[string]any{"query_pre_attn_scalar": 256}},
		{"gemma2", map[string]any{"query_pre_attn_scalar": nil}, map[string]any{"query_pre_attn_scalar": 256}},
	} {
		got := openTest(t, copyFolder(t, c.name, "config.json", c.spoil))
		want := openTest(t, copyFolder(t, c.name, "config.json", c.as))
		if d := cmp.Diff(want.Decoder, got.Decoder); d != "" {
			t.Errorf("%s with %v: %s", c.name, c.spoil, d)
		}
	}
	both := copyFolder(t, "llama", "config.json", map[string]any{
		"rope_scaling":    map[string]any{"rope_type": "linear", "factor": 2},
		"rope_parameters": map[string]any{"rope_type": "linear", "factor": 4},
	})
	_, err := Open(both)
	checkFault(t, err, both, "differs from rope_parameters")
}

// A tokenizer.json that tokenises or gives text otherwise than Berth does is refused by the name of its stage.
func TestTokenizersThatMeanSomethingElse(t *testing.T) {
	special := func(id string) map[string]any {
		return map[string]any{"SpecialToken": map[string]any{"id": id, "type_id": 0}}
	}
	text := map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}
	template := func(single ...any) map[string]any {
		return map[string]any{"type": "TemplateProcessing", "single": single, "pair": []any{}, "special_tokens": map[string]any{}}
	}
	for _, c := range []struct {
		field string
		v     any
		what  string
	}{
		{"post_processor", template(special("<bos>"), text, special("<eos>")), `"<eos>" after a text`},
		{"post_processor", template(text, special("<eos>")), `"<eos>" after a text`},
		{"post_processor", template(special("<bos>"), special("<bos>"), text), "more than one token"},
		{"post_processor", template(special("<pad>"), text), "only the bos_token"},
		{"post_processor", map[string]any{"type": "BertProcessing"}, `"BertProcessing" is not supported`},
		{"decoder", map[string]any{"type": "Fuse"}, `decoder "Fuse" is not supported`},
		{"decoder", map[string]any{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}, `decoder "Metaspace"`},
		{"pre_tokenizer", map[string]any{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": false},
			`"Metaspace" is not supported`},
	} {
		dir := copyFolder(t, "gemma3", "config.json", nil)
		raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		fields[c.field] = c.v
		writeJSON(t, dir, "tokenizer.json", fields)
		_, err = Open(dir)
		checkFault(t, err, dir, c.what)
	}
	dir := copyFolder(t, "gemma3", "config.json", nil)
	openTest(t, dir)
}
