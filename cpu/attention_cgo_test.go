//go:build cgo && amd64

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// attentionBench is pages full of NaN but for the keys and values that a query may see.
type attentionBench struct {
	pages  pages
	memory memory
	table  []kvpool.PageID
	place  model.Place
}

func newAttentionBench(t testing.TB, headDim, blockSize, size int, kv string) *attentionBench {
	t.Helper()
	b := &attentionBench{place: model.Place{Index: 1}}
	layout := model.KVLayout{Groups: []kvpool.Group{{}}, GroupLayers: 2, KVHeads: 2, HeadDim: headDim}
	blocks := (size + blockSize - 1) / blockSize
	var err error
	if b.pages, err = newPages(&b.memory, layout, Config{Pages: blocks + 3, BlockSize: blockSize, KV: kv}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.memory.close(); err != nil {
			t.Error(err)
		}
	})
	for i := range b.pages.mem {
		b.pages.mem[i] = 0xff // NaN in both element types
	}
	for _, p := range rand.New(rand.NewPCG(9, 9)).Perm(blocks + 3)[:blocks] {
		b.table = append(b.table, kvpool.PageID(p))
	}
	return b
}

// fill stores keys and values at positions [lo, hi) and returns them as they were rounded.
func (b *attentionBench) fill(head, lo, hi int) (k, v []float32) {
	n := b.pages.layout.HeadDim
	k, v = normals(hi*n, 11), normals(hi*n, 12)
	for p := lo; p < hi; p++ {
		storeKV(b.pages.key(b.table, b.place, head, p), b.pages.valueOffset(), at(k, p*n), at(v, p*n), n, b.pages.elem == 2)
	}
	if b.pages.elem == 2 {
		for i := range k {
			k[i], v[i] = model.HalfToFloat(model.FloatToHalf(k[i])), model.HalfToFloat(model.FloatToHalf(v[i]))
		}
	}
	return k, v
}

// N4, N5: attention over pages is the softmax that f64 gives, reads nothing out of sight, and gives the same bits for
// any block size and number of heads at a time.
func TestAttentionKernel(t *testing.T) {
	needKernels(t)
	const head = 1
	for _, headDim := range []int{16, 64, 256} {
		for _, kv := range []string{"f16", "f32"} {
			for _, window := range []int{0, 1, 40, 64, 100} {
				for _, pos := range []int{0, 1, 7, 63, 64, 65, 127, 128, 200} {
					t.Run(fmt.Sprintf("dim=%d/%s/window=%d/pos=%d", headDim, kv, window, pos), func(t *testing.T) {
						var want []float32
						for _, blockSize := range []int{4, 16, 64, 128} {
							b := newAttentionBench(t, headDim, blockSize, pos+1, kv)
							lo := 0
							if window > 0 {
								lo = max(0, pos+1-window)
							}
							k, v := b.fill(head, lo, pos+1)
							const heads = 7 // four, two and one at a time
							q, got := normals(heads*headDim, 13), make([]float32, heads*headDim)
							l := &model.Layer{Window: window}
							var sinks []float32
							from := unsafe.Pointer(nil)
							if window != 40 { // both with sinks and without
								sinks = (&allocator{memory: &b.memory}).floats(heads)
								copy(sinks, normals(heads, 14))
								from = pointer(sinks)
							}
							attendSpan(&b.pages, b.place, head, l, from, 0.25, b.table, pointer(q), pointer(got), 0, heads, pos, 1)
							if want == nil {
								want = softmaxAttention(q, k, v, sinks, headDim, lo, pos+1, 0.25)
								near(t, "attention", got, want, 1e-5)
								want = got
							}
							for i := range got {
								if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
									t.Fatalf("blocks of %d, element %d: %v, want the bits of %v", blockSize, i, got[i], want[i])
								}
							}
							single := make([]float32, headDim)
							for h := range heads {
								if sinks != nil {
									from = at(sinks, h)
								}
								attendSpan(&b.pages, b.place, head, l, from, 0.25, b.table, at(q, h*headDim), pointer(single), 0, 1, pos, 1)
								near(t, "one head alone", single, got[h*headDim:(h+1)*headDim], 0)
							}
						}
					})
				}
			}
		}
	}
}

// softmaxAttention is attention in f64; nil sinks are none.
func softmaxAttention(q, k, v, sinks []float32, n, lo, hi int, scale float64) []float32 {
	out := make([]float32, len(q))
	for h := 0; h < len(q); h += n {
		score, top, sum := make([]float64, hi), math.Inf(-1), 0.0
		for p := lo; p < hi; p++ {
			for i := range n {
				score[p] += float64(q[h+i]) * float64(k[p*n+i]) * scale
			}
			top = max(top, score[p])
		}
		if sinks != nil {
			top = max(top, float64(sinks[h/n]))
			sum = math.Exp(float64(sinks[h/n]) - top)
		}
		for p := lo; p < hi; p++ {
			score[p] = math.Exp(score[p] - top)
			sum += score[p]
		}
		for i := range n {
			o := 0.0
			for p := lo; p < hi; p++ {
				o += score[p] / sum * float64(v[p*n+i])
			}
			out[h+i] = float32(o)
		}
	}
	return out
}

// The C struct's table is 32-bit, and so are page ids.
var _ = [1]struct{}{}[unsafe.Sizeof(kvpool.PageID(0))-4]
