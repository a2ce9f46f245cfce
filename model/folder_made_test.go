package model

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// madeFolder writes the folder of a GGUF file: its weights in f32 and in the model's order under the checkpoint's names,
// beside golden configuration and tokenizer.
func madeFolder(t *testing.T, m *Model, name, class, config string) string {
	t.Helper()
	dir, kind := t.TempDir(), checkpoints[class]
	for to, from := range map[string]string{
		"config.json": config, "tokenizer.json": "tokenizer.json", "tokenizer_config.json": "tokenizer_config.json",
	} {
		raw, err := os.ReadFile(filepath.Join(golden, "tiny", name, from))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, to, raw)
	}
	tensors := map[string]RawTensor{}
	add := func(name string, x *Tensor) {
		shape := []int{x.Rows(), x.Cols()}
		if len(x.Dims) == 1 {
			shape = shape[1:]
		}
		tensors[name] = RawTensor{DType: "F32", Shape: shape, Data: dequantised(x).Data}
	}
	ordered := map[string]*Tensor{}
	for i := range m.Weights {
		ordered[fmt.Sprintf("blk.%d.attn_q.weight", i)] = m.Weights[i].Q
		ordered[fmt.Sprintf("blk.%d.attn_k.weight", i)] = m.Weights[i].K
	}
	candidates := []string{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
	for i := range m.Layers {
		for part := range layerNames {
			if !strings.HasPrefix(part, "pre_") && !strings.HasPrefix(part, "post_feed") && // Gemma's
				!strings.HasPrefix(part, "mlp.gate_up") { // Phi's
				candidates = append(candidates, fmt.Sprintf("model.layers.%d.%s", i, part))
			}
		}
	}
	for _, name := range candidates {
		to := kind.ggufName(name)
		x, has := m.Tensor(to)
		if ordered[to] != nil {
			x = ordered[to]
		}
		if has {
			add(name, x)
		}
	}
	if len(tensors) != len(m.Tensors()) {
		t.Fatalf("%d of the file's %d tensors have a name", len(tensors), len(m.Tensors()))
	}
	write(t, dir, singleFile, safetensorsBytes(t, tensors))
	return dir
}

// dequantised is x in f32.
func dequantised(x *Tensor) Tensor {
	elements, size := x.Type.Block()
	values := make([]float32, len(x.Data)/size*elements)
	Dequantise(x.Type, x.Data, values)
	return floatTensor(x.Name, values, x.Dims...)
}

// M6: biases and windows on every layer, in either style of configuration, are those of the GGUF file.
func TestFolderMadeFromGGUF(t *testing.T) {
	for _, c := range []struct{ name, class string }{
		{"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}, {"mistral", "MistralForCausalLM"},
	} {
		for _, config := range []string{"config.json", "config.v5.json"} {
			t.Run(c.name+"/"+config, func(t *testing.T) {
				file := openTest(t, filepath.Join(golden, "tiny", c.name, "model-q8_0.gguf"))
				folder := openTest(t, madeFolder(t, file, c.name, c.class, config))
				if d := cmp.Diff(file.Decoder, folder.Decoder); d != "" {
					t.Error(d)
				}
				for i := range file.Weights {
					a, b := &file.Weights[i], &folder.Weights[i]
					for name, pair := range map[string][2]*Tensor{
						"q": {a.Q, b.Q}, "k": {a.K, b.K}, "v": {a.V, b.V}, "o": {a.O, b.O}, "q bias": {a.QBias, b.QBias},
						"norm": {a.AttnNorm, b.AttnNorm}, "ffn norm": {a.FFNNorm, b.FFNNorm}, "down": {a.Down, b.Down}, "q norm": {a.QNorm, b.QNorm},
					} {
						if pair[0] == nil && pair[1] == nil {
							continue
						}
						if !bytes.Equal(dequantised(pair[0]).Data, pair[1].Data) {
							t.Errorf("layer %d: %s differs", i, name)
						}
					}
				}
				for _, key := range []string{"model", "add_bos_token", "add_space_prefix", "eos_token_id"} {
					want, has := file.keys["tokenizer.ggml."+key]
					got, gotIt := folder.keys["tokenizer.ggml."+key]
					if has != gotIt || want.kind == got.kind && !bytes.Equal(want.raw, got.raw) {
						t.Errorf("tokenizer.ggml.%s: %v, want %v", key, got, want)
					}
				}
			})
		}
	}
}
