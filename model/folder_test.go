package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// copyFolder is a folder of the test's own with a golden checkpoint's files; spoil changes config.json's fields (nil:
// absent).
func copyFolder(t testing.TB, name, config string, spoil map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{singleFile, "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		raw, err := os.ReadFile(filepath.Join(golden, "tiny", name, file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, file, raw)
	}
	raw, err := os.ReadFile(filepath.Join(golden, "tiny", name, config))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for k, v := range spoil {
		fields[k] = v
		if v == nil {
			delete(fields, k)
		}
	}
	writeJSON(t, dir, "config.json", fields)
	return dir
}

func write(t testing.TB, dir, name string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t testing.TB, dir, name string, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, name, raw)
}

// M6: a folder in either style of configuration gives the decoder of the GGUF file of its weights, and tensors of the
// same names and shapes; where GGUF stores them alike, the same revision.
func TestFolderIsItsGGUF(t *testing.T) {
	for _, c := range []struct {
		name, file string
		same       bool // bytes of every tensor
		apart      bool // experts are a tensor each, as in older GGUF files
	}{
		{"gemma2", "model-q8_0.gguf", false, false}, {"gemma3", "model-bf16.gguf", true, false},
		{"gptoss", "model-f16.gguf", false, false}, {"llama", "model-f16.gguf", false, false},
		{"phi3", "model-q8_0.gguf", false, false}, {"qwen3moe", "model-bf16.gguf", false, true},
	} {
		for _, config := range []string{"config.json", "config.v5.json"} {
			t.Run(c.name+"/"+config, func(t *testing.T) {
				folder := openTest(t, copyFolder(t, c.name, config, nil))
				file := openTest(t, filepath.Join(golden, "tiny", c.name, c.file))
				if d := cmp.Diff(file.Decoder, folder.Decoder); d != "" {
					t.Error(d)
				}
				shapes := func(f *File) (list []string) {
					for _, x := range f.Tensors() {
						list = append(list, fmt.Sprint(x.Name, x.Dims))
					}
					return list
				}
				if d := cmp.Diff(shapes(file.File), shapes(folder.File)); d != "" && !c.apart {
					t.Error(d)
				}
				if (file.Revision() == folder.Revision()) != c.same {
					t.Error("M4: revisions")
				}
			})
		}
	}
}

func openTest(t testing.TB, path string) *Model {
	t.Helper()
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// M6: shards are one checkpoint, whatever way its tensors are spread.
func TestShards(t *testing.T) {
	dir := copyFolder(t, "qwen3", "config.json", nil)
	want := openTest(t, dir).Revision()
	split(t, dir, 3)
	if openTest(t, dir).Revision() != want {
		t.Error("M4: sharding changed the revision")
	}
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	raw, _ := os.ReadFile(filepath.Join(dir, indexFile))
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(m map[string]string){
		"no file beside it":        func(m map[string]string) { m["model.norm.weight"] = "../shard-0.safetensors" },
		`"x" is not in "shard-0`:   func(m map[string]string) { m["x"] = "shard-0.safetensors" },
		"absent or empty":          func(m map[string]string) { clear(m) },
		`"lm_head.weight" is not`:  func(m map[string]string) { m["lm_head.weight"] = "shard-1.safetensors" },
		"no such file":             func(m map[string]string) { m["y"] = "shard-9.safetensors" },
		"two tensors are named":    func(m map[string]string) { m["lm_head.weight"] = "copy.safetensors" },
		"bytes are no safetensors": func(m map[string]string) { m["z"] = "short.safetensors" },
	} {
		write(t, dir, "short.safetensors", []byte{1})
		first, err := os.ReadFile(filepath.Join(dir, "shard-0.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "copy.safetensors", first)
		m := maps.Clone(index.Files)
		spoil(m)
		writeJSON(t, dir, indexFile, map[string]any{"weight_map": m})
		_, err = Open(dir)
		checkFault(t, err, dir, what)
	}
}

// split replaces a folder's one file by n shards and an index.
func split(t testing.TB, dir string, n int) {
	t.Helper()
	s, err := ReadSafetensors(filepath.Join(dir, singleFile))
	if err != nil {
		t.Fatal(err)
	}
	index, shards := map[string]string{}, make([]map[string]RawTensor, n)
	for i, name := range slices.Sorted(maps.Keys(s.Tensors)) {
		if shards[i%n] == nil {
			shards[i%n] = map[string]RawTensor{}
		}
		shards[i%n][name] = s.Tensors[name]
		index[name] = fmt.Sprintf("shard-%d.safetensors", i%n)
	}
	for i, tensors := range shards {
		write(t, dir, fmt.Sprintf("shard-%d.safetensors", i), safetensorsBytes(t, tensors))
	}
	writeJSON(t, dir, indexFile, map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": index})
	if err := os.Remove(filepath.Join(dir, singleFile)); err != nil {
		t.Fatal(err)
	}
}

// safetensorsBytes is a file of the tensors.
func safetensorsBytes(t testing.TB, tensors map[string]RawTensor) []byte {
	t.Helper()
	header, body := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte(nil)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		header[name] = map[string]any{
			"dtype": x.DType, "shape": x.Shape, "data_offsets": []int{len(body), len(body) + len(x.Data)},
		}
		body = append(body, x.Data...)
	}
	raw, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	for len(raw)%8 != 0 {
		raw = append(raw, ' ')
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw, body)
}

// M1, M2: a configuration that says what Berth does not do, or nonsense, is refused by file and field.
func TestFolderRefuses(t *testing.T) {
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
		"original_max_position_embeddings": 64}
	checkFolders(t, []spoiltField{
		{"llama", "architectures", nil, "architectures: is absent"},
		{"llama", "architectures", []string{}, "architectures: is absent"},
		{"llama", "architectures", []string{"MambaForCausalLM"}, "not supported"},
		{"llama", "architectures", "LlamaForCausalLM", "cannot unmarshal"},
		{"llama", "hidden_size", nil, "hidden_size: is absent"},
		{"llama", "hidden_size", -96, "hidden_size: is no integer ≥ 0"},
		{"llama", "hidden_size", 96.5, "hidden_size: json"},
		{"llama", "hidden_size", "96", "hidden_size: json"},
		{"llama", "hidden_size", 64, "shape"},
		{"llama", "num_hidden_layers", 0, "num_hidden_layers: is 0"},
		{"llama", "num_hidden_layers", 1 << 40, "num_hidden_layers: is"},
		{"llama", "num_hidden_layers", 3, "has no place"},
		{"llama", "num_attention_heads", 0, "num_attention_heads: is 0"},
		{"llama", "num_key_value_heads", 4, "no multiple"},
		{"llama", "head_dim", 0, "head_dim: is 0"},
		{"llama", "head_dim", 1 << 30, "head_dim: is"},
		{"llama", "rms_norm_eps", nil, "epsilon"},
		{"llama", "rms_norm_eps", "x", "rms_norm_eps: json"},
		{"llama", "rope_theta", -1, "rope_theta: rope bases"},
		{"llama", "rope_scaling", map[string]any{"rope_type": "yarn"}, `rope scaling "yarn" with factor 0`},
		{"llama", "rope_scaling", map[string]any{"rope_type": "yarn", "factor": 2, "beta_slow": 0}, "yarn from 0 to 32 turns"},
		{"llama", "rope_scaling", map[string]any{"rope_type": "yarn", "factor": 2, "mscale": 1}, "yarn with mscale"},
		{"llama", "rope_scaling", map[string]any{"rope_type": "yarn", "factor": 2, "attention_factor": -1}, "a factor of -"},
		{"llama", "rope_scaling", map[string]any{"rope_type": "longrope"}, "longrope with 0 short and 0 long"},
		{"llama", "rope_scaling", map[string]any{"type": "dynamic", "factor": 2}, `type "dynamic" is not supported`},
		{"llama", "rope_scaling", map[string]any{"type": "linear"}, "factor 0"},
		{"llama", "rope_scaling", llama3, "low_freq_factor 4, high_freq_factor 4"},
		{"llama", "rope_scaling", 5, "rope_scaling: json"},
		{"llama", "attention_bias", true, "attention_bias: true is not supported"},
		{"llama", "partial_rotary_factor", 0.5, "partial_rotary_factor: 0.5 is not supported"},
		{"llama", "quantization_config", map[string]any{"quant_method": "gptq"}, "quantization_config"},
		{"llama", "hidden_act", "gelu", `hidden_act: "gelu" is not supported`},
		{"llama", "tie_word_embeddings", true, "lm_head.weight is not the embedding"},
		{"gemma3", "tie_word_embeddings", false, "there is no lm_head.weight"},
		{"gemma3", "final_logit_softcapping", 30, "final_logit_softcapping: a soft cap of 30 is not supported"},
		{"gemma3", "sliding_window", nil, "sliding_window: is absent"},
		{"gemma3", "sliding_window", 0, "sliding_window: is 0"},
		{"gemma3", "rope_scaling", map[string]any{"rope_type": "linear", "factor": 8}, "scales full layers alone"},
		{"gemma3", "rope_scaling", map[string]any{"rope_type": "yarn", "factor": 2, "truncate": false}, "scales full layers alone"},
		{"gemma3", "query_pre_attn_scalar", 0, "is 0, want more than 0"},
		{"gemma2", "attn_logit_softcapping", 0.0, "is 0, want more than 0"},
		{"gemma3", "layer_types", []string{"full_attention"}, "1 flags for 6 layers"},
		{"gemma3", "layer_types", []string{"chunked_attention"}, `layer_types: "chunked_attention" is not supported`},
		{"qwen3", "layer_types", []string{"sliding_attention"}, "not supported"},
		{"qwen3", "use_sliding_window", true, "use_sliding_window: true is not supported"},
		{"qwen3", "architectures", []string{"Qwen2ForCausalLM"}, "is absent"},
		{"qwen3", "architectures", []string{"LlamaForCausalLM"}, "has no place in a llama model"},
	})
}

// The same of experts and fused matrices.
func TestFolderRefusesExperts(t *testing.T) {
	checkFolders(t, []spoiltField{
		{"phi3", "rope_scaling", map[string]any{"type": "su", "short_factor": []int{1}, "long_factor": []int{2, 2}},
			"has shape [1], want [8]"},
		{"phi3", "rope_scaling", map[string]any{"type": "su", "short_factor": []int{1, 1, 1, 1, 1, 1, 1, 0},
			"long_factor": []int{2}}, "factor 7 = 0"},
		{"phi3", "num_key_value_heads", 1, "has shape [64 128], want [64 96]"},
		{"phi3", "intermediate_size", 128, "has shape"},
		{"phi3", "sliding_window", -1, "sliding_window: is -1, want 1"},
		{"phi3", "sliding_window", 0, "sliding_window: is 0, want 1"},
		{"qwen3moe", "num_experts", nil, "expert_count: is absent"},
		{"qwen3moe", "num_experts", 7, "has shape [64 8], want [64 7]"},
		{"qwen3moe", "num_experts", 9, "has shape [64 8], want [64 9]"},
		{"qwen3moe", "num_experts", 1 << 30, "experts: want at most"},
		{"qwen3moe", "num_experts_per_tok", 9, "9 of 8 experts"},
		{"qwen3moe", "num_experts_per_tok", 0, "num_experts_per_tok: is 0"},
		{"qwen3moe", "moe_intermediate_size", 32, "has shape"},
		{"qwen3moe", "norm_topk_prob", false, "norm_topk_prob: false is not supported"},
		{"qwen3moe", "norm_topk_prob", nil, "norm_topk_prob: is absent"},
		{"qwen3moe", "decoder_sparse_step", 2, "decoder_sparse_step: 2 is not supported"},
		{"qwen3moe", "mlp_only_layers", []int{0}, "mlp_only_layers: [0] is not supported"},
		{"qwen3", "num_experts", 8, "experts of a qwen3 model are not supported"},
		{"gptoss", "attention_bias", false, "attention_bias: false is not supported"},
		{"gptoss", "swiglu_limit", -7, "a limit of -7 is not supported"},
		{"gptoss", "swiglu_alpha", 1.5, "swiglu_alpha: 1.5 is not supported"},
		{"gptoss", "num_local_experts", 5, "want [64 5]"},
		{"gptoss", "sliding_window", nil, "sliding_window: is absent"},
		{"gptoss", "rope_scaling", nil, "this class's own yarn"},
		{"gptoss", "architectures", []string{"Qwen3MoeForCausalLM"}, "attention_bias: true is not supported"},
	})
}

// spoiltField is a golden folder's configuration with one field changed, and what is said of it.
type spoiltField struct {
	name, field string
	v           any
	what        string
}

func checkFolders(t *testing.T, list []spoiltField) {
	for _, c := range list {
		t.Run(fmt.Sprintf("%s/%s=%v", c.name, c.field, c.v), func(t *testing.T) {
			dir := copyFolder(t, c.name, "config.json", map[string]any{c.field: c.v})
			_, err := Open(dir)
			checkFault(t, err, dir, c.what)
		})
	}
}

// checkFault wants a *WeightsError about a file under dir.
func checkFault(t testing.TB, err error, dir, what string) {
	t.Helper()
	var fault *WeightsError
	if !asWeights(err, &fault) || !strings.HasPrefix(fault.File, dir) || !strings.Contains(fault.What, what) {
		t.Errorf("%v, want a WeightsError under %s with %q", err, dir, what)
	}
}

// M2: a tokenizer that Berth would not follow is refused by what it asks for.
func TestFolderRefusesTokenizer(t *testing.T) {
	for _, c := range []struct{ name, from, to, what string }{
		{"qwen3", `"type":"NFC"`, `"type":"NFKC"`, `normalizer "NFKC"`},
		{"qwen3", `\\p{N}| ?`, `\\p{N}{1,2}| ?`, "words cut by"},
		{"qwen3", `"add_prefix_space":false,"trim_offsets":true,"use_regex":false`,
			`"add_prefix_space":true,"use_regex":false`, "add_prefix_space"},
		{"qwen3", `"use_regex":false`, `"use_regex":true`, "stages before ByteLevel"},
		{"qwen3", `"type":"BPE"`, `"type":"Unigram"`, `model "Unigram"`},
		{"qwen3", `"lstrip":false`, `"lstrip":true`, "takes the text around it"},
		{"qwen3", `"!":0`, `"!":704`, "has id 704, the embedding has 704 rows"},
		{"qwen3", `"id":701`, `"id":-1`, "has id -1"},
		{"qwen3", `"id":701`, `"id":5`, "have id 5"},
		{"qwen3", `"merges":[`, `"merges":[7,`, "cannot unmarshal"},
		{"gemma3", `"type":"Replace"`, `"type":"Strip"`, `normalizer "Strip"`},
		{"gemma3", `"byte_fallback":true`, `"byte_fallback":false`, "neither ByteLevel nor"},
		{"gemma3", `"merges":[`, `"merges":[["x","nothing"],`, "is no token"},
		{"gemma3", `"merges":[`, `"merges":[[[`, "invalid character"},
	} {
		t.Run(c.name+" "+c.what, func(t *testing.T) {
			dir := copyFolder(t, c.name, "config.json", nil)
			raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(raw), c.from) {
				t.Fatalf("%s is not in the file", c.from)
			}
			write(t, dir, "tokenizer.json", []byte(strings.Replace(string(raw), c.from, c.to, 1)))
			_, err = Open(dir)
			checkFault(t, err, dir, c.what)
		})
	}
}
