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

// formatOf is the activation format of a weight type.
func formatOf(t model.Type) format {
	switch t {
	case model.F32, model.F16, model.BF16:
		return floats
	case model.Q8_0, model.MXFP4, model.IQ4NL, model.IQ4XS: // block8.h
		return int16x32
	}
	return int8x32
}

// groupBytes is the size of 8 packed rows.
func groupBytes(t model.Type, cols int) int { return int(C.group_bytes(C.int(t), C.int(cols))) }

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
