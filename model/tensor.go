package model

import (
	"encoding/binary"
	"math"
	"slices"
)

// Type is how a tensor's elements are stored: plain floats, or blocks that share scales. Numbers are GGUF's.
type Type uint32

// The block formats that Berth reads; layouts are those of ggml-common.h, values those of the gguf package.
const (
	F32   Type = 0
	F16   Type = 1
	Q4_0  Type = 2
	Q4_1  Type = 3
	Q5_0  Type = 6
	Q5_1  Type = 7
	Q8_0  Type = 8
	Q2_K  Type = 10
	Q3_K  Type = 11
	Q4_K  Type = 12
	Q5_K  Type = 13
	Q6_K  Type = 14
	IQ4NL Type = 20
	IQ4XS Type = 23
	BF16  Type = 30
	MXFP4 Type = 39
)

// format is the size of one block.
type format struct {
	name     string
	elements int
	bytes    int
}

// formats has every readable type; a type that is absent is refused when the file is opened.
var formats = map[Type]format{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176},
	Q6_K: {"Q6_K", 256, 210}, IQ4NL: {"IQ4_NL", 32, 18}, IQ4XS: {"IQ4_XS", 256, 136}, MXFP4: {"MXFP4", 32, 17},
}

// String is GGUF's name of t.
func (t Type) String() string { return formats[t].name }

// Block is the elements and bytes of one block; 0, 0 for a type that Berth does not read.
func (t Type) Block() (elements, bytes int) {
	f := formats[t]
	return f.elements, f.bytes
}

func (t Type) elements() int { return formats[t].elements }

// Tensor is a named array whose Data is a view of the mapped file: valid until the File is closed, never written. Few
// are copies, where a file's order is not the model's.
type Tensor struct {
	Name string
	Type Type
	// Dims has the innermost dimension first, as GGUF does: a weight of a linear layer is [in, out].
	Dims []int
	Data []byte
	// stride is the bytes from one row to the next where rows are parts of longer ones, else 0.
	stride int
}

// Cols is the innermost dimension: the elements of one row.
func (t *Tensor) Cols() int { return t.Dims[0] }

// Rows is the product of the other dimensions.
func (t *Tensor) Rows() int {
	n := 1
	for _, d := range t.Dims[1:] {
		n *= d
	}
	return n
}

// RowBytes is the stored size of a row.
func (t *Tensor) RowBytes() int {
	elements, bytes := t.Type.Block()
	return t.Cols() / elements * bytes
}

// Stride is the bytes from the start of one row to the next's: RowBytes, or more where rows are parts of longer ones.
func (t *Tensor) Stride() int {
	if t.stride > 0 {
		return t.stride
	}
	return t.RowBytes()
}

// Row is the stored bytes of row i, 0 ≤ i < Rows.
func (t *Tensor) Row(i int) []byte {
	at, n := i*t.Stride(), t.RowBytes()
	return t.Data[at : at+n : at+n]
}

// Clone is a copy whose rows lie one after another.
func (t *Tensor) Clone() *Tensor {
	out := *t
	out.stride = 0
	out.Data = make([]byte, 0, t.Rows()*t.RowBytes())
	for i := range t.Rows() {
		out.Data = append(out.Data, t.Row(i)...)
	}
	return &out
}

// rows is a view of some rows of a matrix.
func (t *Tensor) rows(s Span) *Tensor {
	out := *t
	out.Dims = []int{t.Cols(), s.Len()}
	out.Data = t.Data[s.Lo*t.Stride() : (s.Hi-1)*t.Stride()+t.RowBytes()]
	return &out
}

// split3 is the rows of q, and of k and v after them; all nil for nil.
func (t *Tensor) split3(q, kv int) (*Tensor, *Tensor, *Tensor) {
	if t == nil || t.Rows() != q+2*kv {
		return nil, nil, nil
	}
	return t.rows(Span{0, q}), t.rows(Span{q, q + kv}), t.rows(Span{q + kv, q + 2*kv})
}

// matrix is a view of matrix i of a stack of them.
func (t *Tensor) matrix(i int) *Tensor {
	n := t.Dims[1]
	return t.rows(Span{i * n, (i + 1) * n})
}

// vector is a view of row i of a matrix as a vector.
func (t *Tensor) vector(i int) *Tensor {
	out := t.rows(Span{i, i + 1})
	out.Dims = out.Dims[:1]
	return out
}

// columns is a view of some columns, whole blocks, of a matrix or vector; nil stays nil.
func (t *Tensor) columns(s Span) *Tensor {
	if t == nil {
		return nil
	}
	out := *t
	elements, bytes := t.Type.Block()
	out.Dims = slices.Clone(t.Dims)
	out.Dims[0] = s.Len()
	out.stride = t.Stride()
	lo := s.Lo / elements * bytes
	out.Data = t.Data[lo : (t.Rows()-1)*t.Stride()+lo+out.RowBytes()]
	return &out
}

// floats is t with one element a block, so that it can be cut anywhere; nil stays nil.
func (t *Tensor) floats() *Tensor {
	if t == nil || t.Type.elements() == 1 {
		return t
	}
	values := make([]float32, t.Cols()*t.Rows())
	Dequantise(t.Type, t.Data, values)
	out := Tensor{Name: t.Name, Type: F32, Dims: t.Dims, Data: make([]byte, 0, 4*len(values))}
	for _, v := range values {
		out.Data = binary.LittleEndian.AppendUint32(out.Data, math.Float32bits(v))
	}
	return &out
}

// deinterleave is t with the rows of each head in the order of HF checkpoints: GGUF's converter stores the rows of
// Llama's q and k so that rope's pair i is rows 2i and 2i + 1; here it is rows i and i + headDim/2, for every
// architecture. Scores then are sums in one order, whatever kind of file the weights came in. The copy is the model's
// own, 2 of a layer's 7 matrices. Source: LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py.
func (t *Tensor) deinterleave(headDim int) *Tensor {
	out := *t
	out.Data = make([]byte, 0, len(t.Data))
	for head := 0; head < t.Rows(); head += headDim {
		for half := range 2 {
			for i := range headDim / 2 {
				out.Data = append(out.Data, t.Row(head+2*i+half)...)
			}
		}
	}
	return &out
}
