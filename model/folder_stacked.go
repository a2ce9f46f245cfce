package model

import (
	"slices"
	"strings"
)

// stacked gives gpt-oss's tensors of all experts GGUF's form. A checkpoint has gate and up as one, their rows by turns,
// and its matrices with the outputs innermost; GGUF has them apart, and the inputs innermost, as all others. These are
// the folder's own copies: a checkpoint of this kind is held twice while it is loaded.
func (f *folder) stacked(kind checkpoint, t Tensor) ([]Tensor, bool) {
	prefix, part, found := strings.Cut(t.Name, ".mlp.experts.")
	layer, inLayers := strings.CutPrefix(prefix, "model.layers.")
	if !found || !inLayers || kind.arch != "gpt-oss" {
		return nil, false
	}
	name := func(s string) string { return "blk." + layer + "." + s }
	want := 3
	if part == "gate_up_proj_bias" {
		want = 2
	}
	if (part == "gate_up_proj" || part == "gate_up_proj_bias") && (len(t.Dims) != want || t.Dims[0]%2 != 0) ||
		part == "down_proj" && len(t.Dims) != want {
		f.fail("", "tensor %.64q has shape %v, which is no stack of experts", t.Name, t.Dims)
		return nil, true
	}
	switch part {
	case "gate_up_proj":
		return []Tensor{
			t.transposed(name("ffn_gate_exps.weight"), 0, 2), t.transposed(name("ffn_up_exps.weight"), 1, 2),
		}, true
	case "gate_up_proj_bias":
		return []Tensor{t.every(name("ffn_gate_exps.bias"), 0, 2), t.every(name("ffn_up_exps.bias"), 1, 2)}, true
	case "down_proj":
		return []Tensor{t.transposed(name("ffn_down_exps.weight"), 0, 1)}, true
	}
	return nil, false
}

// every is each step-th column of t, from the first-th on. Types of one element a block only.
func (t *Tensor) every(name string, first, step int) Tensor {
	_, size := t.Type.Block()
	out := Tensor{Name: name, Type: t.Type, Dims: slices.Clone(t.Dims), Data: make([]byte, 0, len(t.Data)/step)}
	out.Dims[0] /= step
	for at := first * size; at < len(t.Data); at += step * size {
		out.Data = append(out.Data, t.Data[at:at+size]...)
	}
	return out
}

// transposed is every with rows and columns of each matrix turned round.
func (t *Tensor) transposed(name string, first, step int) Tensor {
	_, size := t.Type.Block()
	columns, rows := t.Dims[0], t.Dims[1]
	out := Tensor{Name: name, Type: t.Type, Dims: []int{rows, columns / step, t.Dims[2]}}
	out.Data = make([]byte, 0, len(t.Data)/step)
	for matrix := range t.Dims[2] {
		for column := first; column < columns; column += step {
			for row := range rows {
				at := ((matrix*rows+row)*columns + column) * size
				out.Data = append(out.Data, t.Data[at:at+size]...)
			}
		}
	}
	return out
}
