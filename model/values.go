package model

import (
	"encoding/binary"
	"math"
)

// The values below are metadata in GGUF's encoding that no GGUF file has: what the files of a folder say, so that one
// reader of keys serves both. from names the file and key, for faults.

func integerValue(from string, n int64) value {
	return value{kind: kindI64, n: 1, at: -1, from: from, raw: binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

// floatValue is rounded to f32 as GGUF's writers do, so that both kinds of file give the same constants.
func floatValue(from string, x float64) value {
	return value{kind: kindF32, n: 1, at: -1, from: from,
		raw: binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))}
}

func doubleValue(from string, x float64) value {
	return value{kind: kindF64, n: 1, at: -1, from: from, raw: binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))}
}

func boolValue(from string, list ...bool) value {
	v := value{kind: kindBool, array: len(list) != 1, n: len(list), at: -1, from: from}
	for _, b := range list {
		v.raw = append(v.raw, map[bool]byte{true: 1}[b])
	}
	return v
}

func stringValue(from, s string) value {
	v := stringsValue(from, []string{s})
	v.array = false
	return v
}

func stringsValue(from string, list []string) value {
	size := 0
	for _, s := range list {
		size += 8 + len(s)
	}
	v := value{kind: kindString, array: true, n: len(list), at: -1, from: from, raw: make([]byte, 0, size)}
	for _, s := range list {
		v.raw = append(binary.LittleEndian.AppendUint64(v.raw, uint64(len(s))), s...)
	}
	return v
}

func floatsValue(from string, list []float32) value {
	v := value{kind: kindF32, array: true, n: len(list), at: -1, from: from}
	for _, x := range list {
		v.raw = binary.LittleEndian.AppendUint32(v.raw, math.Float32bits(x))
	}
	return v
}

func integersValue(from string, list []int32) value {
	v := value{kind: kindI32, array: true, n: len(list), at: -1, from: from}
	for _, n := range list {
		v.raw = binary.LittleEndian.AppendUint32(v.raw, uint32(n))
	}
	return v
}
