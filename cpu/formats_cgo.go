//go:build cgo && amd64

package cpu

/*
#cgo CFLAGS: -std=c11 -O3 -Wall -Wextra
#cgo emulate CFLAGS: -DEMULATE
#include "kernels.h"
*/
import "C"

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/berthd/berth/model"
)

// Kernels tells whether this build and this processor compute in C kernels; else devices compute in plain Go.
func Kernels() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA && hasF16C() }

// hasF16C asks the compiler's run-time, since x/sys/cpu does not know this one.
func hasF16C() bool { return C.has_f16c() != 0 }

// level is the instruction set of the integer products: every level gives the same bits.
type level int

const (
	avx2       level = C.AVX2
	avx512vnni level = C.AVX512VNNI
)

// bestLevel is the fastest level that runs here. With the build tag emulate all levels run on any processor.
func bestLevel() level {
	if C.has_vnni() != 0 {
		return avx512vnni
	}
	return avx2
}

// format is how activations are stored for a product; the type of the weights decides it, on every instruction set.
type format int

const (
	floats format = iota // f32
	int16x32
	int8x32
	formatCount
)

// bytes is the size of a vector of cols activations.
func (f format) bytes(cols int) int {
	switch f {
	case int16x32:
		return cols / 32 * C.sizeof_act_i16
	case int8x32:
		return cols / 32 * C.sizeof_act_i8
	}
	// One line more than the vector, so that tokens do not fall on the same cache sets.
	return (cols*4+63)&^63 + 64
}

// write stores the vector at x in format f at out.
func (f format) write(x, out unsafe.Pointer, cols int) {
	if f == floats {
		copy(unsafe.Slice((*float32)(out), cols), unsafe.Slice((*float32)(x), cols))
		return
	}
	C.quantise_to(C.int(f), (*C.float)(x), out, C.int(cols))
}

// formatOf is the activation format of a weight type; types without a kernel are expanded to f32.
func formatOf(t model.Type) format {
	switch t {
	case model.Q8_0:
		return int16x32
	case model.Q5_0, model.Q4_K, model.Q6_K:
		return int8x32
	}
	return floats
}

// kernelType is the type that a tensor is packed as: its own where there is a kernel, else f32.
func kernelType(t model.Type, dequantise bool) model.Type {
	switch t {
	case model.F16, model.BF16, model.Q8_0, model.Q5_0, model.Q4_K, model.Q6_K:
		if !dequantise {
			return t
		}
	}
	return model.F32
}

// groupBytes is the size of 8 packed rows.
func groupBytes(t model.Type, cols int) int {
	switch t {
	case model.F16, model.BF16:
		return cols * 16
	case model.Q8_0:
		return cols / 32 * C.sizeof_q8_0_group
	case model.Q5_0:
		return cols / 32 * C.sizeof_q5_0_group
	case model.Q4_K:
		return cols / 256 * C.sizeof_q4_k_group
	case model.Q6_K:
		return cols / 256 * C.sizeof_q6_k_group
	}
	return cols * 32
}

// packGroup packs up to 8 rows.
func packGroup(t model.Type, rows unsafe.Pointer, rowBytes, n int, group unsafe.Pointer, cols int) {
	C.pack_group(C.int(t), rows, C.size_t(rowBytes), C.int(n), group, C.int(cols))
}

// gather writes row r of a packed matrix, times scale.
func (p *packed) gather(r int, scale float32, out unsafe.Pointer) {
	C.gather_row(C.int(p.kind), p.w, C.int(p.cols), C.int(r), C.float(scale), (*C.float)(out))
}

// multiply computes groups [lo, hi) for n tokens: out[t·ld + row] = w[row] · a[t].
func (p *packed) multiply(a unsafe.Pointer, stride int, out unsafe.Pointer, ld, lo, hi, n int) {
	C.multiply(C.int(p.level), C.int(p.kind), p.w, a, C.size_t(stride), (*C.float)(out), C.size_t(ld), C.int(p.cols),
		C.int(lo), C.int(hi), C.int(n))
}
