package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// names are GGUF's names of a checkpoint's tensors outside of layers, layerNames those after "model.layers.N.". A
// tensor that stands in neither keeps its name, and so is refused by it when the model is loaded.
var names = map[string]string{
	"model.embed_tokens.weight": "token_embd.weight",
	"model.norm.weight":         "output_norm.weight",
	"lm_head.weight":            "output.weight",
}

var layerNames = map[string]string{
	"input_layernorm.weight":            "attn_norm.weight",
	"post_attention_layernorm.weight":   "ffn_norm.weight", // not in Gemma: see checkpoint.sandwich
	"pre_feedforward_layernorm.weight":  "ffn_norm.weight",
	"post_feedforward_layernorm.weight": "post_ffw_norm.weight",
	"self_attn.q_proj.weight":           "attn_q.weight",
	"self_attn.k_proj.weight":           "attn_k.weight",
	"self_attn.v_proj.weight":           "attn_v.weight",
	"self_attn.o_proj.weight":           "attn_output.weight",
	"self_attn.q_proj.bias":             "attn_q.bias",
	"self_attn.k_proj.bias":             "attn_k.bias",
	"self_attn.v_proj.bias":             "attn_v.bias",
	"self_attn.q_norm.weight":           "attn_q_norm.weight",
	"self_attn.k_norm.weight":           "attn_k_norm.weight",
	"self_attn.o_proj.bias":             "attn_output.bias",
	"self_attn.sinks":                   "attn_sinks.weight",
	"self_attn.qkv_proj.weight":         "attn_qkv.weight",
	"mlp.gate_up_proj.weight":           "ffn_up.weight", // gate above up: see architecture.fused
	"mlp.gate.weight":                   "ffn_gate_inp.weight",
	"mlp.router.weight":                 "ffn_gate_inp.weight",
	"mlp.router.bias":                   "ffn_gate_inp.bias",
	"mlp.experts.down_proj_bias":        "ffn_down_exps.bias",
	"mlp.gate_proj.weight":              "ffn_gate.weight",
	"mlp.up_proj.weight":                "ffn_up.weight",
	"mlp.down_proj.weight":              "ffn_down.weight",
}

// ggufName is GGUF's name of a checkpoint's tensor.
func (k checkpoint) ggufName(name string) string {
	if to, ok := names[name]; ok {
		return to
	}
	rest, ok := strings.CutPrefix(name, "model.layers.")
	number, part, found := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || !found || err != nil || strconv.Itoa(n) != number || n < 0 {
		return name
	}
	to, ok := layerNames[part]
	if !ok {
		to, ok = expertName(part)
	}
	if !ok {
		return name
	}
	if k.sandwich && part == "post_attention_layernorm.weight" {
		to = "post_attention_norm.weight"
	}
	return "blk." + number + "." + to
}

// expertName is GGUF's name, as its older files had them, of an expert's matrix.
func expertName(part string) (string, bool) {
	rest, _ := strings.CutPrefix(part, "mlp.experts.")
	number, matrix, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	to, ok := map[string]string{
		"gate_proj.weight": "ffn_gate", "up_proj.weight": "ffn_up", "down_proj.weight": "ffn_down",
	}[matrix]
	return fmt.Sprintf("%s.%d.weight", to, n), ok && err == nil && strconv.Itoa(n) == number && n >= 0
}

// rename gives the tensors GGUF's names and form. Buffers that some old checkpoints keep, and that say nothing which
// the configuration does not, are left out, as transformers does.
func (f *folder) rename(kind checkpoint) {
	kept := make([]Tensor, 0, len(f.file.tensors))
	for _, t := range f.file.tensors {
		if strings.HasSuffix(t.Name, ".rotary_emb.inv_freq") {
			continue
		}
		if parts, ok := f.stacked(kind, t); ok {
			kept = append(kept, parts...)
			continue
		}
		t.Name = kind.ggufName(t.Name)
		if kind.normPlusOne && strings.HasSuffix(t.Name, "norm.weight") {
			t = t.plusOne()
		}
		kept = append(kept, t)
	}
	f.file.tensors = kept
	f.order()
}

// plusOne is t in f32 with 1 added to every element: Gemma's checkpoints store its norms' distance from 1.
func (t Tensor) plusOne() Tensor {
	elements, size := t.Type.Block()
	x := make([]float32, len(t.Data)/size*elements)
	Dequantise(t.Type, t.Data, x)
	for i := range x {
		x[i]++
	}
	return floatTensor(t.Name, x, t.Dims...)
}

// floatTensor is a tensor of the model's own.
func floatTensor(name string, x []float32, dims ...int) Tensor {
	t := Tensor{Name: name, Type: F32, Dims: dims, Data: make([]byte, 0, 4*len(x))}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

// untie leaves the output matrix out if the configuration ties it to the embedding; one that differs from it all the
// same is refused, since it would not be used.
func (f *folder) untie(tied bool) {
	output, has := f.file.Tensor("output.weight")
	embedding, found := f.file.Tensor("token_embd.weight")
	switch {
	case !tied && !has:
		f.fail("config.json", "tie_word_embeddings is false, but there is no lm_head.weight")
	case tied && has && found && !bytes.Equal(output.Data, embedding.Data):
		f.fail("config.json", "tie_word_embeddings is true, but lm_head.weight is not the embedding")
	case tied && has:
		kept := f.file.tensors[:0]
		for _, t := range f.file.tensors {
			if t.Name != "output.weight" {
				kept = append(kept, t)
			}
		}
		f.file.tensors = kept
	}
}
