//go:build cgo && amd64

package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/berthd/berth/model"
)

// randomTensor has random codes and sub-scales, and block scales around 2^−9 of either sign.
func randomTensor(t model.Type, cols, rows int, r *rand.Rand) *model.Tensor {
	elements, size := t.Block()
	w := &model.Tensor{Name: t.String(), Type: t, Dims: []int{cols, rows}, Data: make([]byte, cols/elements*size*rows)}
	for i := range w.Data {
		w.Data[i] = byte(r.Uint32())
	}
	scale := func() uint16 { return uint16(0x1800 + r.IntN(0x400) | r.IntN(2)<<15) }
	put := func(at int, h uint16) { binary.LittleEndian.PutUint16(w.Data[at:], h) }
	for at := 0; at < len(w.Data); at += size {
		switch t {
		case model.F32:
			binary.LittleEndian.PutUint32(w.Data[at:], math.Float32bits(r.Float32()-0.5))
		case model.F16:
			put(at, model.FloatToHalf(r.Float32()-0.5))
		case model.BF16:
			put(at, uint16(math.Float32bits(r.Float32()-0.5)>>16))
		case model.Q6_K:
			put(at+208, scale())
		case model.Q4_K, model.Q5_K, model.Q4_1, model.Q5_1:
			put(at, scale())
			put(at+2, scale())
		case model.Q2_K:
			put(at+80, scale())
			put(at+82, scale())
		case model.Q3_K:
			put(at+108, scale())
		case model.MXFP4:
			w.Data[at] = byte(110 + r.IntN(12))
		default:
			put(at, scale())
		}
	}
	return w
}

// bench is packed weights with room for activations and results.
type matmulBench struct {
	w      *model.Tensor
	packed packed
	memory memory
	act    []byte
	stride int
}

func newMatmulBench(t testing.TB, w *model.Tensor, n int) *matmulBench {
	t.Helper()
	b := &matmulBench{w: w}
	d := &rank{memory: &b.memory, pool: newPool(1), cfg: Config{Threads: 1}}
	p := newPacker(d)
	b.packed = p.matrix(w)
	b.stride = b.packed.format.bytes(w.Cols())
	act, err := b.memory.bytes("activations", n*b.stride)
	if err != nil || p.err != nil {
		t.Fatal(err, p.err)
	}
	b.act = act
	t.Cleanup(func() {
		if err := b.memory.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// activation is the values that token i's stored activations stand for.
func (b *matmulBench) activation(i int) []float64 {
	row := b.act[i*b.stride:]
	x := make([]float64, b.w.Cols())
	float := func(at int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(row[at:]))) }
	for k := range x {
		switch b.packed.format {
		case floats:
			x[k] = float(4 * k)
		case int16x32:
			at := k / 32 * 68
			x[k] = float(at) * float64(int16(binary.LittleEndian.Uint16(row[at+4+k%32*2:])))
		case int8x32:
			at := k / 32 * 44
			x[k] = float(at) * float64(int8(row[at+12+k%32]))
		}
	}
	return x
}

var kernelTypes = []model.Type{
	model.F32, model.F16, model.BF16, model.Q8_0, model.Q4_0, model.Q4_1, model.Q5_0, model.Q5_1, model.MXFP4,
	model.IQ4NL, model.IQ4XS, model.Q2_K, model.Q3_K, model.Q4_K, model.Q5_K, model.Q6_K,
}

var batches = []int{1, 2, 7, 8, 9, 31, 33, 64, 97}

// levels are those that run here: all of them with the build tag emulate.
func levels() []level {
	if bestLevel() == avx2 {
		return []level{avx2}
	}
	return []level{avx2, avx512vnni}
}

// N2: every product is that of the stored weights and activations, in f32 accuracy, and its bits are the same in a
// batch of any size, for any run of rows, and on every instruction set. Rows are longer than a slab (wide.h).
func TestMatmul(t *testing.T) {
	needKernels(t)
	const cols, rows = 1280, 76
	for _, kind := range kernelTypes {
		t.Run(kind.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(kind)))
			n := batches[len(batches)-1]
			b := newMatmulBench(t, randomTensor(kind, cols, rows, r), n)
			x := make([]float32, n*cols)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			for i := range n {
				b.packed.format.write(at(x, i*cols), unsafe.Pointer(&b.act[i*b.stride]), cols)
			}
			want := b.check(t, n)
			for _, m := range batches {
				for lo := 0; lo < b.packed.groups; lo += 3 {
					b.same(t, want, m, lo, min(lo+3+m%4, b.packed.groups))
				}
			}
		})
	}
}

// check compares n single products with f64 and returns them, [n][groups · 8].
func (b *matmulBench) check(t *testing.T, n int) []float32 {
	t.Helper()
	ld := b.packed.groups * 8
	out := make([]float32, n*ld)
	weights := make([]float32, b.w.Cols())
	for i := range n {
		b.packed.multiply(unsafe.Pointer(&b.act[i*b.stride]), b.stride, at(out, i*ld), ld, 0, b.packed.groups, 1)
	}
	for i := range n {
		x := b.activation(i)
		for row := range ld {
			sum, size := 0.0, 0.0
			if row < b.w.Rows() {
				model.Dequantise(b.w.Type, b.w.Row(row), weights)
				for k, w := range weights {
					sum += float64(w) * x[k]
					size += math.Abs(float64(w) * x[k])
				}
			}
			if got := float64(out[i*ld+row]); !(math.Abs(got-sum) <= 2e-6*size) {
				t.Fatalf("token %d, row %d: %g, want %g ± %g", i, row, got, sum, 2e-6*size)
			}
		}
	}
	return out
}

// same runs m tokens at once over groups [lo, hi).
func (b *matmulBench) same(t *testing.T, want []float32, m, lo, hi int) {
	t.Helper()
	ld := b.packed.groups * 8
	out := make([]float32, m*ld)
	for _, b.packed.level = range levels() {
		b.packed.multiply(unsafe.Pointer(&b.act[0]), b.stride, unsafe.Pointer(&out[0]), ld, lo, hi, m)
		for i := range m {
			for row := lo * 8; row < hi*8; row++ {
				if math.Float32bits(out[i*ld+row]) != math.Float32bits(want[i*ld+row]) {
					t.Fatalf("level %d, batch of %d, rows [%d, %d): token %d, row %d: %v, alone %v", b.packed.level, m, lo*8,
						hi*8, i, row, out[i*ld+row], want[i*ld+row])
				}
			}
		}
	}
}

// A row read back from the packed form is the stored row.
func TestGather(t *testing.T) {
	needKernels(t)
	const cols, rows = 256, 19
	for _, kind := range kernelTypes {
		b := newMatmulBench(t, randomTensor(kind, cols, rows, rand.New(rand.NewPCG(2, uint64(kind)))), 1)
		got, want := make([]float32, cols), make([]float32, cols)
		for row := range rows {
			b.packed.gather(row, 1.5, unsafe.Pointer(&got[0]))
			model.Dequantise(kind, b.w.Row(row), want)
			for i := range want {
				if w := want[i] * 1.5; got[i] != w {
					t.Fatalf("%v row %d, column %d: %g, want %g", kind, row, i, got[i], w)
				}
			}
		}
	}
}

// scalesOf is where the numbers in a block lie that are no codes.
func scalesOf(kind model.Type) (lo, hi int) {
	switch kind {
	case model.MXFP4:
		return 0, 1
	case model.Q4_1, model.Q5_1, model.Q4_K, model.Q5_K:
		return 0, 4
	case model.Q2_K:
		return 80, 84
	case model.Q3_K:
		return 108, 110
	case model.Q6_K:
		return 208, 210
	}
	return 0, 2
}

// The extremes of codes and activations stay exact: nothing saturates.
func TestMatmulExtremes(t *testing.T) {
	needKernels(t)
	const cols = 512
	for _, kind := range kernelTypes[3:] {
		for _, fill := range []byte{0x00, 0x80, 0xff} {
			t.Run(fmt.Sprintf("%v/%#x", kind, fill), func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, uint64(kind)))
				w := randomTensor(kind, cols, 8, r)
				_, size := kind.Block()
				for i := range w.Data {
					if lo, hi := scalesOf(kind); i%size < lo || i%size >= hi {
						w.Data[i] = fill
					}
				}
				const n = 14 // the wide tiles too
				b := newMatmulBench(t, w, n)
				x := make([]float32, cols)
				for i := range n {
					for k := range x {
						x[k] = float32(1 - i%2*2)
					}
					b.packed.format.write(unsafe.Pointer(&x[0]), unsafe.Pointer(&b.act[i*b.stride]), cols)
				}
				want := b.check(t, n)
				for _, m := range []int{1, 2, n} {
					b.same(t, want, m, 0, b.packed.groups)
				}
			})
		}
	}
}
