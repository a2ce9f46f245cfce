package model

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// Ways to spoil an open file: a key of another value, a tensor of another shape, or none.

func setKey(name string, v value) func(*File) { return func(f *File) { f.keys[name] = v } }

func setNumber(name string, n int64) func(*File) { return setKey(name, integerValue("", n)) }

func setFloat(name string, x float64) func(*File) { return setKey(name, doubleValue("", x)) }

func setShape(name string, dims ...int) func(*File) {
	return func(f *File) {
		x, _ := f.Tensor(name)
		x.Dims = dims
	}
}

func without(part string) func(*File) {
	return func(f *File) {
		var kept []Tensor
		for _, x := range f.tensors {
			if !strings.Contains(x.Name, part) {
				kept = append(kept, x)
			}
		}
		f.tensors = kept
	}
}

// M1, M2: files of experts, fused matrices and scaled ropes that contradict themselves are refused by key or tensor.
func TestLoadRefuses(t *testing.T) {
	const gptoss, moe, phi = "gptoss/model-mxfp4.gguf", "qwen3moe/model-q8_0.gguf", "phi3/model-q8_0.gguf"
	for _, c := range []struct {
		file, what string
		spoil      func(*File)
	}{
		{moe, "expert_count: is 0", setNumber("qwen3moe.expert_count", 0)},
		{moe, "has shape [64 8], want [64 7]", setNumber("qwen3moe.expert_count", 7)},
		{moe, "expert_count: is 1099511627776", setNumber("qwen3moe.expert_count", 1<<40)},
		{moe, "2 of 1000000 experts", setNumber("qwen3moe.expert_count", 1e6)},
		{moe, "9 of 8 experts", setNumber("qwen3moe.expert_used_count", 9)},
		{moe, "expert_used_count: is no integer", setNumber("qwen3moe.expert_used_count", -1)},
		{moe, "expert_feed_forward_length: is absent", func(f *File) { delete(f.keys, "qwen3moe.expert_feed_forward_length") }},
		{moe, "want [64 96 8]", setNumber("qwen3moe.expert_feed_forward_length", 96)},
		{moe, "every token uses", setNumber("qwen3moe.expert_shared_count", 1)},
		{moe, `blk.1.ffn_gate_inp.weight" is absent`, without("blk.1.ffn_gate_inp")},
		{moe, `blk.0.ffn_up_exps.weight" is absent`, without("ffn_up_exps")},
		{moe, "want [64 64 8]", setShape("blk.0.ffn_up_exps.weight", 64, 512)},
		{moe, "want [64 64 8]", setShape("blk.0.ffn_down_exps.weight", 64, 128, 4)},
		{gptoss, `attn_sinks.weight" is absent`, without("sinks")},
		{gptoss, `attn_output.bias" is absent`, without("attn_output.bias")},
		{gptoss, `ffn_gate_inp.bias" is absent`, without("ffn_gate_inp.bias")},
		{gptoss, `ffn_down_exps.bias" is absent`, without("ffn_down_exps.bias")},
		{gptoss, "has shape [2]", setShape("blk.0.attn_sinks.weight", 2)},
		{gptoss, "has shape [256]", setShape("blk.0.ffn_down_exps.bias", 256)},
		{gptoss, "sliding_window: is 0", setNumber("gpt-oss.attention.sliding_window", 0)},
		{gptoss, "a limit of 0", setFloat("gpt-oss.swiglu_limit", 0)},
		{gptoss, "no finite number", setFloat("gpt-oss.rope.scaling.factor", math.NaN())},
		{gptoss, "with factor 0.5", setFloat("gpt-oss.rope.scaling.factor", 0.5)},
		{gptoss, "turns", setFloat("gpt-oss.rope.scaling.yarn_beta_fast", -1)},
		{gptoss, "with rope base 1", setFloat("gpt-oss.rope.freq_base", 1)},
		{gptoss, "original_context_length: is 0", setNumber("gpt-oss.rope.scaling.original_context_length", 0)},
		{gptoss, "yarn of heads of 1073741824", func(f *File) {
			setNumber("gpt-oss.attention.key_length", 1<<30)(f)
			setNumber("gpt-oss.attention.value_length", 1<<30)(f)
		}},
		{gptoss, "a factor of 0", setFloat("gpt-oss.rope.scaling.attn_factor", 0)},
		{phi, `attn_qkv.weight" is absent`, without("attn_qkv")},
		{phi, "want [64 128]", setShape("blk.0.attn_qkv.weight", 64, 96)},
		{phi, "want [64 320]", setShape("blk.0.ffn_up.weight", 64, 160)},
		{phi, `rope scaling "longrope"`, setKey("phi3.rope.scaling.type", stringValue("", "longrope"))},
		{phi, "experts of a phi3 model", setNumber("phi3.expert_count", 16)},
	} {
		t.Run(c.file+" "+c.what, func(t *testing.T) {
			path := filepath.Join(golden, "tiny", c.file)
			f, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			c.spoil(f)
			_, err = Load(f)
			checkFault(t, err, path, c.what)
		})
	}
}

// Yarn leaves the first pairs and divides the last; every layer of gpt-oss turns alike, and each second one slides.
func TestDecoderOfGptOss(t *testing.T) {
	m := openTest(t, filepath.Join(golden, "tiny/gptoss/model-mxfp4.gguf"))
	for i, l := range m.Layers {
		if len(l.RopeFactors) != 16 || l.RopeFactors[0] != 1 || l.RopeFactors[15] != 8 || l.RopeGain != 1+0.1*math.Log(8) {
			t.Errorf("layer %d: %+v", i, l)
		}
		if want := 32 * (1 - i%2); l.Window != want {
			t.Errorf("layer %d has a window of %d, want %d", i, l.Window, want)
		}
	}
	if m.Experts != 4 || m.ExpertsUsed != 2 || m.GateLimit != 7 || len(m.Weights[0].Experts) != 4 {
		t.Errorf("%+v", m.Decoder)
	}
}

// Longrope is served up to the first training's context, by the factors for that; contexts that fit it gain nothing.
func TestLongRope(t *testing.T) {
	short, long := []float64{1, 1, 1, 1, 1, 1, 1, 2}, []float64{4, 4, 4, 4, 4, 4, 4, 4}
	for _, c := range []struct {
		context, want int
		gain          float64
	}{
		{1024, 256, math.Sqrt(1 + math.Log(4)/math.Log(256))}, {256, 256, 1},
	} {
		m := openTest(t, copyFolder(t, "phi3", "config.json", map[string]any{
			"max_position_embeddings": c.context, "original_max_position_embeddings": 256,
			"rope_scaling": map[string]any{"type": "longrope", "short_factor": short, "long_factor": long},
		}))
		l := &m.Layers[0]
		if m.Context != c.want || l.RopeGain != c.gain || fmt.Sprint(l.RopeFactors) != fmt.Sprint(short) {
			t.Errorf("%d positions: %d with %+v", c.context, m.Context, l)
		}
	}
}

// Phi 3 has a window on every layer, or none where it is null.
func TestPhiWindow(t *testing.T) {
	for _, c := range []struct {
		v    any
		want int
	}{{nil, 0}, {16, 16}} {
		f := copyFolder(t, "phi3", "config.json", map[string]any{"sliding_window": c.v})
		if c.v == nil {
			f = copyFolder(t, "phi3", "config.json", nil)
		}
		for i, l := range openTest(t, f).Layers {
			if l.Window != c.want {
				t.Errorf("%v: layer %d has a window of %d", c.v, i, l.Window)
			}
		}
	}
}
