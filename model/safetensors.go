package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
)

// Safetensors is an opened .safetensors file: an 8-byte little-endian header length, a JSON header, and the tensors' bytes.
// Source: huggingface/safetensors, format section of its README.
type Safetensors struct {
	Tensors map[string]RawTensor
}

// RawTensor is a tensor of a .safetensors file as it stands.
type RawTensor struct {
	DType string // F32, BF16, U8, …
	Shape []int
	Data  []byte
}

// ReadSafetensors reads a whole file into memory.
func ReadSafetensors(path string) (*Safetensors, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) < 8 {
		return nil, fmt.Errorf("%s: %d bytes are no safetensors file", path, len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > uint64(len(data)-8) {
		return nil, fmt.Errorf("%s: header of %d bytes in a file of %d", path, n, len(data))
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+n], &header); err != nil {
		return nil, fmt.Errorf("%s: header: %w", path, err)
	}
	body, out := data[8+n:], &Safetensors{Tensors: map[string]RawTensor{}}
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
			return nil, fmt.Errorf("%s: tensor %q: %w", path, name, err)
		}
		lo, hi := t.Offsets[0], t.Offsets[1]
		if lo > hi || hi > uint64(len(body)) {
			return nil, fmt.Errorf("%s: tensor %q: bytes [%d, %d) of %d", path, name, lo, hi, len(body))
		}
		out.Tensors[name] = RawTensor{DType: t.DType, Shape: t.Shape, Data: body[lo:hi]}
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
