//go:build cgo && amd64

package cpu

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/berthd/berth/model"
)

// No product exceeds its group's bound, whatever the scales' signs and the extremes of codes and activations; and the
// choice is the product's argmax, the lowest row of equal ones.
func TestGreedyBounds(t *testing.T) {
	needKernels(t)
	const cols, rows, n = 128, 1003, 33
	r := rand.New(rand.NewPCG(5, 5))
	w := extremeTensor(cols, rows, r)
	copy(w.Row(700), w.Row(300))
	b := newMatmulBench(t, w, n)
	g := greedyOf(t, b)
	x, product := make([]float32, cols), make([]float32, n*b.packed.groups*8)
	for i := range n {
		for k := range x {
			x[k] = float32(r.NormFloat64())
			if i%3 == 1 && k%41 == 5 {
				x[k] *= 30
			}
			if i == 5 {
				x[k] = 0
			}
		}
		if i == 8 { // rows 300 and 700 win together
			model.Dequantise(w.Type, w.Row(300), x)
			for k := range x {
				x[k] *= 100
			}
		}
		b.packed.format.write(pointer(x), unsafe.Pointer(&b.act[i*b.stride]), cols)
		g.look(i)
	}
	b.packed.multiply(unsafe.Pointer(&b.act[0]), b.stride, pointer(product), b.packed.groups*8, 0, b.packed.groups, n)
	g.tokens = n
	bounds := map[level][]float32{}
	for _, b.packed.level = range levels() {
		g.bound = make([]float32, n*b.packed.groups)
		for c := range (b.packed.groups + scanGroups - 1) / scanGroups {
			g.bounds(c, 0)
		}
		bounds[b.packed.level] = g.bound
		if !slices.Equal(g.bound, bounds[avx2]) {
			t.Fatalf("level %d has other bounds", b.packed.level)
		}
	}
	kept := 0
	for i := range n {
		want := 0
		logits := product[i*b.packed.groups*8:][:rows]
		for row, v := range logits {
			if bound := g.bound[i*b.packed.groups+row/8]; !(v <= bound) {
				t.Fatalf("token %d, row %d: %g above its bound %g", i, row, v, bound)
			}
			if v > logits[want] {
				want = row
			}
		}
		for _, bound := range g.bound[i*b.packed.groups:][:b.packed.groups] {
			if bound >= logits[want] {
				kept++
			}
		}
		g.lead(i, 0)
		for part := range greedyParts {
			g.settle(i*greedyParts+part, 0)
		}
		if got := g.chosen(i); int(got) != want {
			t.Errorf("token %d: row %d, want %d", i, got, want)
		}
	}
	t.Logf("%d of %d groups left", kept, n*b.packed.groups)
}

// extremeTensor has scales of either sign, rows of −128, and rows of 127.
func extremeTensor(cols, rows int, r *rand.Rand) *model.Tensor {
	w := randomTensor(model.Q8_0, cols, rows, r)
	for i := range w.Data {
		switch row := i / (cols / 32 * 34); {
		case i%34 < 2:
			if row%5 != 0 {
				w.Data[i] &= 0x7f
			}
		case row%97 == 1:
			w.Data[i] = 0x80
		case row%97 == 2:
			w.Data[i] = 0x7f
		}
	}
	return w
}

// greedyOf is the greedy head of a bench's matrix, over the bench's activations.
func greedyOf(t *testing.T, b *matmulBench) *greedy {
	t.Helper()
	d := &rank{memory: &b.memory, pool: newPool(1), cfg: Config{Threads: 1}}
	k := &kernels{device: d, output: b.packed}
	k.act[int16x32], k.stride[int16x32] = unsafe.Pointer(&b.act[0]), b.stride
	g := newGreedy(k, newPacker(d), &allocator{memory: d.memory, name: "activations"})
	if g == nil {
		t.Fatal("no greedy head")
	}
	return g
}

// The greedy head is not there for other types, and its token is that of the logits.
func TestGreedyToken(t *testing.T) {
	needKernels(t)
	if tiny(t, "model-bf16.gguf", tinyConfig()).engine.chooser() != nil {
		t.Error("a greedy head for BF16")
	}
	d := tiny(t, "model-q8_0.gguf", tinyConfig())
	if d.engine.chooser() == nil {
		t.Fatal("no greedy head for Q8_0")
	}
	checkGreedy(t, d, func(int) {})
}

// Activations that are no numbers leave every group to the full product, which then chooses nothing.
func TestGreedyNaN(t *testing.T) {
	needKernels(t)
	b := newMatmulBench(t, randomTensor(model.Q8_0, 64, 80, rand.New(rand.NewPCG(6, 6))), 1)
	g := greedyOf(t, b)
	b.packed.format.write(pointer(normals(64, 1)), unsafe.Pointer(&b.act[0]), 64)
	binary.LittleEndian.PutUint32(b.act, 0x7fc00000)
	g.look(0)
	g.tokens, g.bound = 1, make([]float32, b.packed.groups)
	g.bounds(0, 0)
	g.lead(0, 0)
	for part := range greedyParts {
		g.settle(part, 0)
	}
	if got := g.chosen(0); got != -1 {
		t.Errorf("chose %d, want -1", got)
	}
}
