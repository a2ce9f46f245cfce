package model

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/kvpool"
)

// gemmaFile is a whole gemma3 model of 2 layers, as small as the format allows; spoil changes keys (nil: absent).
func gemmaFile(spoil map[string]any) *ggufFile {
	keys := map[string]any{
		"general.architecture": "gemma3", "gemma3.block_count": uint32(2), "gemma3.context_length": uint32(64),
		"gemma3.embedding_length": uint32(8), "gemma3.feed_forward_length": uint32(8),
		"gemma3.attention.head_count":    uint32(2),
		"gemma3.attention.head_count_kv": uint32(1), "gemma3.attention.key_length": uint32(8),
		"gemma3.attention.layer_norm_rms_epsilon": float32(1e-6), "gemma3.attention.sliding_window": uint32(4),
		"gemma3.attention.sliding_window_pattern": uint32(2),
	}
	for k, v := range spoil {
		keys[k] = v
	}
	g := newGGUF()
	for k, v := range keys {
		if v != nil {
			g.key(k, v)
		}
	}
	g.add("token_embd.weight", 8, 16)
	g.add("output_norm.weight", 8)
	for i := range 2 {
		g.layer(i, "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm")
	}
	return g
}

// layer adds the tensors that every architecture has, and some norms of 8.
func (g *ggufFile) layer(i int, norms ...string) {
	name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
	for _, s := range append(norms, "attn_norm", "ffn_norm") {
		g.add(name(s), 8)
	}
	g.add(name("attn_q"), 8, 16)
	g.add(name("attn_output"), 16, 8)
	for _, s := range []string{"attn_k", "attn_v", "ffn_gate", "ffn_up", "ffn_down"} {
		g.add(name(s), 8, 8)
	}
}

// plainFile is a model of one layer without anything that only some architectures have.
func plainFile(arch string) *ggufFile {
	g := newGGUF().key("general.architecture", arch)
	for k, v := range map[string]any{
		"block_count": uint32(1), "context_length": uint32(64), "embedding_length": uint32(8),
		"feed_forward_length": uint32(8), "attention.head_count": uint32(2), "attention.head_count_kv": uint32(1),
		"attention.key_length": uint32(8), "attention.layer_norm_rms_epsilon": float32(1e-6),
	} {
		g.key(arch+"."+k, v)
	}
	g.add("token_embd.weight", 8, 16)
	g.add("output_norm.weight", 8)
	if arch == "qwen3" {
		g.layer(0, "attn_q_norm", "attn_k_norm")
	} else {
		g.layer(0)
	}
	return g
}

// M1, M2: a file whose keys contradict it is refused, and no division by zero or huge loop comes before that.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		key  string
		v    any
		what string
	}{
		{"general.architecture", nil, "absent"},
		{"general.architecture", "mamba", "not supported"},
		{"gemma3.block_count", "2", "no integer"},
		{"gemma3.block_count", float32(2), "no integer"},
		{"gemma3.block_count", uint32(0), "is 0"},
		{"gemma3.block_count", uint32(1_000_000_000), "only"},
		{"gemma3.block_count", int32(-1), "no integer"},
		{"gemma3.block_count", uint32(3), `blk.2.attn_norm.weight" is absent`},
		{"gemma3.block_count", nil, "absent"},
		{"gemma3.attention.head_count", uint32(0), "is 0"},
		{"gemma3.attention.head_count", uint32(3), "shape"},
		{"gemma3.attention.head_count_kv", uint32(0), "is 0"},
		{"gemma3.attention.head_count_kv", []uint32{1, 1}, "each layer"},
		{"gemma3.attention.head_count", []uint32{2, 2}, "each layer"},
		{"gemma3.feed_forward_length", []uint32{8, 8}, "each layer"},
		{"gemma3.attention.key_length", uint32(1 << 30), "shape"},
		{"gemma3.attention.value_length", uint32(4), "not supported"},
		{"gemma3.embedding_length", uint64(1 << 40), "want 1 to"},
		{"gemma3.attention.layer_norm_rms_epsilon", nil, "epsilon"},
		{"gemma3.attention.layer_norm_rms_epsilon", "x", "finite"},
		{"gemma3.attention.sliding_window", uint32(0), "is 0"},
		{"gemma3.attention.sliding_window_pattern", []bool{true}, "1 flags for 2 layers"},
		{"gemma3.attention.sliding_window_pattern", "6", "no integer"},
		{"gemma3.rope.freq_base", float32(-1), "positive"},
		{"gemma3.rope.scaling.type", "yarn", "not supported"},
		{"gemma3.final_logit_softcapping", float32(30), "a soft cap of 30 is not supported in a gemma3 model"},
		{"gemma3.attn_logit_softcapping", float32(-1), "a soft cap of -1"},
		{"gemma3.rope.dimension_count", uint32(4), "rope of 4 of the 8"},
		{"tokenizer.ggml.tokens", []string{"a", "b"}, "2 tokens (tokenizer.ggml.tokens) for an embedding of 16 rows"},
	} {
		t.Run(fmt.Sprintf("%s=%v", c.key, c.v), func(t *testing.T) {
			path := save(t, gemmaFile(map[string]any{c.key: c.v}).bytes())
			_, err := Open(path)
			checkRefused(t, err, path, c.what)
		})
	}
}

// M2: a tensor that would be left out is a fault, not a detail.
func TestOpenRefusesUnknownTensor(t *testing.T) {
	g := gemmaFile(nil)
	g.add("blk.0.attn_q.bias", 16)
	path := save(t, g.bytes())
	_, err := Open(path)
	checkRefused(t, err, path, "no place")
}

// M2: what an architecture does not describe is refused by its name.
func TestOpenRefusesUndescribed(t *testing.T) {
	for _, c := range []struct {
		arch, what string
		change     func(*ggufFile)
	}{
		{"qwen3", "qwen3.attention.sliding_window: sliding layers", func(g *ggufFile) {
			g.key("qwen3.attention.sliding_window", uint32(4))
		}},
		{"llama", `tensor "blk.0.attn_q.bias" has no place`, func(g *ggufFile) { g.add("blk.0.attn_q.bias", 16) }},
		{"qwen2", `tensor "blk.0.attn_q.bias" is absent`, func(*ggufFile) {}},
		{"qwen3", `tensor "rope_freqs.weight" has no place`, func(g *ggufFile) { g.add("rope_freqs.weight", 4) }},
		{"llama", `tensor "rope_freqs.weight" has shape [3]`, func(g *ggufFile) { g.add("rope_freqs.weight", 3) }},
		{"llama", "want a positive number", func(g *ggufFile) {
			g.add("rope_freqs.weight", 4)
			g.fill = 0xff // NaN
		}},
	} {
		t.Run(c.arch+" "+c.what, func(t *testing.T) {
			g := plainFile(c.arch)
			c.change(g)
			path := save(t, g.bytes())
			_, err := Open(path)
			checkRefused(t, err, path, c.what)
		})
	}
}

// GGUF's order of Llama's q and k is undone: rows of a head come as the first of each pair, then the second.
func TestDeinterleave(t *testing.T) {
	x := &Tensor{Type: F32, Dims: []int{1, 8}}
	for i := range 8 {
		x.Data = append(x.Data, byte(i), 0, 0, 0)
	}
	got := x.deinterleave(4)
	for i, want := range []byte{0, 2, 1, 3, 4, 6, 5, 7} {
		if b := got.Row(i)[0]; b != want {
			t.Errorf("row %d is %d of the file, want %d", i, b, want)
		}
	}
}

// Llama 3's frequencies have a factor each; a Mistral's layers all slide.
func TestDecoderOfLlama(t *testing.T) {
	open := func(file string) *Model {
		m, err := Open(filepath.Join(golden, "tiny", file))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	for i, l := range open("llama/model-f16.gguf").Layers {
		if n := len(l.RopeFactors); n != 8 || l.RopeFactors[0] != 1 || l.RopeFactors[7] != 8 || l.Kind != kvpool.Full {
			t.Errorf("llama, layer %d: %+v", i, l)
		}
	}
	for i, l := range open("mistral/model-q8_0.gguf").Layers {
		if l.Kind != kvpool.Sliding || l.Window != 32 || l.RopeBase != 1e4 {
			t.Errorf("mistral, layer %d: %+v", i, l)
		}
	}
}

// Gemma 3 is described as transformers' configuration of the same model says.
func TestDecoderOfGemma3(t *testing.T) {
	m, err := Open(filepath.Join(golden, "tiny/gemma3/model-bf16.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	full := Layer{Kind: kvpool.Full, RopeBase: 1e6, RopeScale: 1, RopeGain: 1}
	sliding := Layer{Kind: kvpool.Sliding, Window: 32, RopeBase: 1e4, RopeScale: 1, RopeGain: 1}
	want := Decoder{
		Architecture: "gemma3", Hidden: 64, FeedForward: 160, Heads: 4, KVHeads: 1, HeadDim: 32, Vocab: 832, Context: 1024,
		Epsilon: 1e-6, Activation: GELUTanh, EmbedScale: 8, QueryScale: 0.17677669,
		Layers: []Layer{sliding, sliding, sliding, sliding, sliding, full},
	}
	if d := cmp.Diff(want, m.Decoder); d != "" {
		t.Error(d)
	}
}

// M5: layers fall into groups of the smallest count of any kind, the last group of a kind padded.
func TestKVLayout(t *testing.T) {
	for _, c := range []struct {
		kinds  string // F full, S sliding
		g      int
		groups string
		places []Place
	}{
		{"FFF", 3, "F", []Place{{0, 0}, {0, 1}, {0, 2}}},
		{"SSF", 1, "FSS", []Place{{1, 0}, {2, 0}, {0, 0}}},
		{"SFSFS", 2, "FSS", []Place{{1, 0}, {0, 0}, {1, 1}, {0, 1}, {2, 0}}},
	} {
		d := Decoder{HeadDim: 8, KVHeads: 2}
		for _, k := range c.kinds {
			l := Layer{Kind: kvpool.Full}
			if k == 'S' {
				l = Layer{Kind: kvpool.Sliding, Window: 16}
			}
			d.Layers = append(d.Layers, l)
		}
		l := d.KVLayout()
		groups := ""
		for _, g := range l.Groups {
			groups += string("FS"[g.Kind])
		}
		if l.GroupLayers != c.g || groups != c.groups {
			t.Errorf("%s: groups %s of %d layers, want %s of %d", c.kinds, groups, l.GroupLayers, c.groups, c.g)
		}
		if d := cmp.Diff(c.places, l.Places); d != "" {
			t.Errorf("%s: %s", c.kinds, d)
		}
		if n := l.PageBytes(16, 2); n != 16*c.g*2*2*8*2 {
			t.Errorf("%s: page of %d bytes", c.kinds, n)
		}
	}
}

// M4: the revision depends on the tensors alone: not on their order, the alignment or the metadata.
func TestRevision(t *testing.T) {
	base := gemmaFile(nil)
	revision := func(b []byte) [32]byte {
		f, err := parse("test", b)
		if err != nil {
			t.Fatal(err)
		}
		return f.Revision()
	}
	b := base.bytes()
	want := revision(b)
	if got := revision(gemmaFile(map[string]any{"general.name": "other"}).bytes()); got != want {
		t.Error("metadata changed the revision")
	}
	changed := bytes.Clone(b)
	changed[len(changed)-1]++
	if revision(changed) == want {
		t.Error("a changed weight did not change the revision")
	}
}
