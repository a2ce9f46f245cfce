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
	at := uint64(0)
	add := func(name string, dims ...uint64) {
		g.tensor(name, F32, at, dims...)
		n := uint64(4)
		for _, d := range dims {
			n *= d
		}
		at += (n + 31) / 32 * 32
	}
	add("token_embd.weight", 8, 16)
	add("output_norm.weight", 8)
	for i := range 2 {
		for _, t := range []struct {
			name string
			dims []uint64
		}{{"attn_norm", []uint64{8}}, {"ffn_norm", []uint64{8}}, {"post_attention_norm", []uint64{8}},
			{"post_ffw_norm", []uint64{8}}, {"attn_q_norm", []uint64{8}}, {"attn_k_norm", []uint64{8}},
			{"attn_q", []uint64{8, 16}}, {"attn_k", []uint64{8, 8}}, {"attn_v", []uint64{8, 8}},
			{"attn_output", []uint64{16, 8}},
			{"ffn_gate", []uint64{8, 8}}, {"ffn_up", []uint64{8, 8}}, {"ffn_down", []uint64{8, 8}}} {
			add(fmt.Sprintf("blk.%d.%s.weight", i, t.name), t.dims...)
		}
	}
	return g.size(int(at))
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
	path := save(t, g.tensor("blk.0.attn_q.bias", F32, uint64(g.data), 16).size(g.data+64).bytes())
	_, err := Open(path)
	checkRefused(t, err, path, "no place")
}

// Gemma 3 is described as transformers' configuration of the same model says.
func TestDecoderOfGemma3(t *testing.T) {
	m, err := Open(filepath.Join(golden, "tiny/gemma3/model-bf16.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	full := Layer{Kind: kvpool.Full, RopeBase: 1e6, RopeScale: 1}
	sliding := Layer{Kind: kvpool.Sliding, Window: 32, RopeBase: 1e4, RopeScale: 1}
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
