package model

import "encoding/binary"

// The getters below read one metadata key. ok is false where the key is absent or has another type; integers of any
// width are one type, and so are f32 and f64. What they return is a copy and outlives Close; they must not be called
// after it.

// Has tells whether the key stands in the file, whatever its type.
func (f *File) Has(key string) bool {
	_, ok := f.keys[key]
	return ok
}

// String is a string.
func (f *File) String(key string) (string, bool) {
	v, ok := f.keys[key]
	if !ok || v.array || v.kind != kindString {
		return "", false
	}
	return string(v.raw[8:]), true
}

// Uint is an integer that is not negative.
func (f *File) Uint(key string) (uint64, bool) {
	v, ok := f.keys[key]
	if !ok {
		return 0, false
	}
	return v.uint()
}

// Float is a floating-point number.
func (f *File) Float(key string) (float64, bool) {
	v, ok := f.keys[key]
	if !ok || v.array {
		return 0, false
	}
	return v.float(0)
}

// Bool is a truth value.
func (f *File) Bool(key string) (value, ok bool) {
	v, ok := f.keys[key]
	if !ok || v.array || v.kind != kindBool {
		return false, false
	}
	return v.raw[0] != 0, true
}

// Strings is an array of strings. They share one allocation of the array's size.
func (f *File) Strings(key string) ([]string, bool) {
	v, ok := f.keys[key]
	if !ok || !v.array || v.kind != kindString {
		return nil, false
	}
	all := string(v.raw)
	list := make([]string, v.n)
	for i, at := 0, 0; i < v.n; i++ {
		n := int(binary.LittleEndian.Uint64(v.raw[at:]))
		list[i] = all[at+8 : at+8+n]
		at += 8 + n
	}
	return list, true
}

// Floats is an array of f32.
func (f *File) Floats(key string) ([]float32, bool) {
	v, ok := f.keys[key]
	if !ok || !v.array || v.kind != kindF32 {
		return nil, false
	}
	list := make([]float32, v.n)
	for i := range list {
		x, _ := v.float(i)
		list[i] = float32(x)
	}
	return list, true
}

// Ints is an array of integers of any width that fit an int32.
func (f *File) Ints(key string) ([]int32, bool) {
	v, ok := f.keys[key]
	if !ok || !v.array {
		return nil, false
	}
	list := make([]int32, v.n)
	for i := range list {
		x, ok := v.int(i)
		if !ok || int64(int32(x)) != x {
			return nil, false
		}
		list[i] = int32(x)
	}
	return list, true
}

// Bools is an array of truth values.
func (f *File) Bools(key string) ([]bool, bool) {
	v, ok := f.keys[key]
	if !ok || !v.array || v.kind != kindBool {
		return nil, false
	}
	list := make([]bool, v.n)
	for i := range list {
		list[i] = v.raw[i] != 0
	}
	return list, true
}
