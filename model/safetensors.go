package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Safetensors is a .safetensors file in memory: an 8-byte little-endian header length, a JSON header, and the tensors'
// bytes. Source: huggingface/safetensors, format section of its README.
type Safetensors struct {
	Tensors map[string]RawTensor
}

// RawTensor is a tensor of a .safetensors file as it stands.
type RawTensor struct {
	DType string // F32, BF16, U8, …
	Shape []int  // outermost dimension first
	Data  []byte
}

// ReadSafetensors reads a whole file into memory. Faults of the file are *WeightsError.
func ReadSafetensors(path string) (*Safetensors, error) {
	data, err := readRegular(path, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	entries, fault := parseSafetensors(path, data)
	if fault != nil {
		return nil, fault
	}
	out := &Safetensors{Tensors: map[string]RawTensor{}}
	for _, e := range entries {
		out.Tensors[e.name] = e.RawTensor
	}
	return out, nil
}

// safetensor is a tensor and where its bytes stand in the file.
type safetensor struct {
	RawTensor
	name string
	at   int64
}

// maxHeader is the format's own bound.
const maxHeader = 100_000_000

// parseSafetensors reads the header of a file's bytes. Tensors come in the order of their bytes, which are checked to
// lie inside the file and not to overlap; types and shapes are not judged here.
func parseSafetensors(path string, b []byte) ([]safetensor, *WeightsError) {
	fail := func(at int64, format string, args ...any) *WeightsError {
		return &WeightsError{File: path, Offset: at, What: fmt.Sprintf(format, args...)}
	}
	if len(b) < 8 {
		return nil, fail(0, "%d bytes are no safetensors file", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) || n > maxHeader {
		return nil, fail(0, "header of %d bytes, the file has %d left", n, len(b)-8)
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		return nil, jsonFault(path, 8, err)
	}
	body, start, list := b[8+n:], int64(8+n), make([]safetensor, 0, len(header))
	for name, raw := range header {
		if name == "__metadata__" {
			continue
		}
		var t struct {
			DType   string    `json:"dtype"`
			Shape   []int     `json:"shape"`
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			return nil, fail(8, "tensor %.64q: %v", name, err)
		}
		lo, hi := t.Offsets[0], t.Offsets[1]
		if lo > hi || hi > uint64(len(body)) {
			return nil, fail(8, "tensor %.64q: bytes [%d, %d) of %d", name, lo, hi, len(body))
		}
		list = append(list, safetensor{RawTensor{t.DType, t.Shape, body[lo:hi:hi]}, name, start + int64(lo)})
	}
	slices.SortFunc(list, func(a, b safetensor) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.name, b.name)
	})
	for i := 1; i < len(list); i++ {
		if p, t := &list[i-1], &list[i]; t.at < p.at+int64(len(p.Data)) {
			return nil, fail(t.at, "tensors %.64q and %.64q overlap", p.name, t.name)
		}
	}
	return list, nil
}

// tensor is t as weights, with its dimensions turned round. Only plain floats are read: quantised checkpoints of other
// kinds keep their scales in ways of their own.
func (t *safetensor) tensor(path string) (Tensor, *WeightsError) {
	fail := func(format string, args ...any) (Tensor, *WeightsError) {
		return Tensor{}, &WeightsError{File: path, Offset: t.at, What: fmt.Sprintf("tensor %.64q: ", t.name) +
			fmt.Sprintf(format, args...)}
	}
	typ, known := map[string]Type{"F32": F32, "F16": F16, "BF16": BF16}[t.DType]
	if !known {
		return fail("type %.16q is not read, only F32, F16 and BF16 are", t.DType)
	}
	if len(t.Shape) < 1 || len(t.Shape) > maxDims {
		return fail("%d dimensions, want 1 to %d", len(t.Shape), maxDims)
	}
	_, size := typ.Block()
	left := len(t.Data) / size
	for _, d := range t.Shape {
		if d < 1 || d > left {
			return fail("%v %v in %d bytes", typ, t.Shape, len(t.Data))
		}
		left /= d
	}
	out := Tensor{Name: t.name, Type: typ, Dims: slices.Clone(t.Shape), Data: t.Data}
	slices.Reverse(out.Dims)
	if out.Cols()*out.Rows()*size != len(t.Data) {
		return fail("%v %v in %d bytes", typ, t.Shape, len(t.Data))
	}
	if t.at%int64(size) != 0 {
		out.Data = slices.Clone(t.Data) // so that kernels may read it as numbers
	}
	return out, nil
}

// Float32s decodes an F32 tensor.
func (t RawTensor) Float32s() ([]float32, error) {
	if t.DType != "F32" || len(t.Data)%4 != 0 {
		return nil, fmt.Errorf("%s tensor of %d bytes: want F32", t.DType, len(t.Data))
	}
	out := make([]float32, len(t.Data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return out, nil
}

// Float64s decodes an F64 tensor.
func (t RawTensor) Float64s() ([]float64, error) {
	if t.DType != "F64" || len(t.Data)%8 != 0 {
		return nil, fmt.Errorf("%s tensor of %d bytes: want F64", t.DType, len(t.Data))
	}
	out := make([]float64, len(t.Data)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
	}
	return out, nil
}
