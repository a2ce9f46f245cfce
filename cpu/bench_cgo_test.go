//go:build cgo && amd64

package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/berthd/berth/model"
)

// BenchmarkMatmul reports one thread's rate in billions of operations a second (a multiply-add is two), with weights in
// cache. This machine kind's f32 peak is about 103.
func BenchmarkMatmul(b *testing.B) {
	const rows, cols, most = 640, 2048, 96
	for _, kind := range kernelTypes {
		for _, n := range []int{1, 2, 4, 8, 32, most} {
			b.Run(fmt.Sprintf("%v/tokens=%d", kind, n), func(b *testing.B) {
				needKernels(b)
				m := newMatmulBench(b, randomTensor(kind, cols, rows, rand.New(rand.NewPCG(1, 1))), most)
				x := normals(cols, 1)
				for i := range most {
					m.packed.format.write(pointer(x), unsafe.Pointer(&m.act[i*m.stride]), cols)
				}
				out := make([]float32, most*rows)
				for b.Loop() {
					m.packed.multiply(unsafe.Pointer(&m.act[0]), m.stride, pointer(out), rows, 0, m.packed.groups, n)
				}
				b.ReportMetric(2*rows*cols*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
			})
		}
	}
}

// BenchmarkAttention reports one thread's rate for one token, 4 heads of 256 on one key head.
func BenchmarkAttention(b *testing.B) {
	needKernels(b)
	const headDim, heads = 256, 4
	for _, size := range []int{128, 1024} {
		b.Run(fmt.Sprintf("context=%d", size), func(b *testing.B) {
			p := newAttentionBench(b, headDim, 16, size, "f16")
			p.fill(0, 0, size)
			q, out := normals(heads*headDim, 1), make([]float32, heads*headDim)
			for b.Loop() {
				attendSpan(&p.pages, p.place, 0, &model.Layer{}, nil, 0.0625, p.table, pointer(q), pointer(out), 0, heads, size-1, 1)
			}
			b.ReportMetric(4*heads*headDim*float64(size)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
		})
	}
}
