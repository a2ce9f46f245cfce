//go:build cgo && amd64

package cpu

/*
#cgo noescape attend
#cgo nocallback attend
#include "kernels.h"
*/
import "C"

import (
	"math/bits"
	"unsafe"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// Calls of the vector kernels. Addresses are of the device's memory, except block tables, which C does not keep.

func rmsnorm(x, w, out unsafe.Pointer, cols int, eps float32) {
	C.rmsnorm((*C.float)(x), (*C.float)(w), (*C.float)(out), C.int(cols), C.float(eps))
}

func rmsnormAdd(x, branch, w unsafe.Pointer, cols int, eps float32) {
	C.rmsnorm_add((*C.float)(x), (*C.float)(branch), (*C.float)(w), C.int(cols), C.float(eps))
}

func addVector(x, branch unsafe.Pointer, cols int) {
	C.add((*C.float)(x), (*C.float)(branch), C.int(cols))
}

func rope(x, cos, sin unsafe.Pointer, headDim int) {
	C.rope((*C.float)(x), (*C.float)(cos), (*C.float)(sin), C.int(headDim))
}

// addScaled is x += weight · branch.
func addScaled(x, branch unsafe.Pointer, weight float32, cols int) {
	C.add_scaled((*C.float)(x), (*C.float)(branch), C.float(weight), C.int(cols))
}

// gatedActivation is gate = act(gate, up).
func gatedActivation(d *model.Decoder, gate, up unsafe.Pointer, n int) {
	g, u := (*C.float)(gate), (*C.float)(up)
	switch d.Activation {
	case model.SiLU:
		C.gated_silu(g, u, g, C.int(n))
	case model.ClampedSwiGLU:
		C.gated_clamped(g, u, g, C.int(n), C.float(d.GateLimit), model.GateAlpha)
	default:
		C.gated_gelu(g, u, g, C.int(n))
	}
}

func storeKV(key unsafe.Pointer, valueOffset int, k, v unsafe.Pointer, headDim int, half bool) {
	C.kv_store(key, C.size_t(valueOffset), (*C.float)(k), (*C.float)(v), C.int(headDim), flag(half))
}

// attendSpan is n tokens of one row from position pos, with the query heads of one key head and their sinks.
func attendSpan(p *pages, place model.Place, head int, l *model.Layer, sinks unsafe.Pointer, scale float32, table []kvpool.PageID,
	q, out unsafe.Pointer, stride, heads, pos, n int) {
	c := C.kv{
		pages: (*C.char)(unsafe.Pointer(&p.mem[0])), page_bytes: C.size_t(p.page),
		key_offset:   C.size_t(p.layout.Offset(p.blockSize, place.Index, head) * p.elem),
		value_offset: C.size_t(p.valueOffset()), block_shift: C.int(bits.TrailingZeros(uint(p.blockSize))),
		head_dim: C.int(p.layout.HeadDim), half: flag(p.elem == 2), window: C.int(l.Window), scale: C.float(scale),
		cap: C.float(l.ScoreCap), sinks: (*C.float)(sinks),
	}
	C.attend(&c, (*C.int32_t)(unsafe.Pointer(&table[0])), (*C.float)(q), (*C.float)(out), C.size_t(stride),
		C.int(heads), C.int(pos), C.int(n))
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
