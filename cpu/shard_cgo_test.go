//go:build cgo && amd64

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/berthd/berth/model"
)

// shardedModel is one layer of a type: 12 query heads of 64 on 3 key heads, so that parts of O end inside blocks of 256.
func shardedModel(kind model.Type, r *rand.Rand) *model.Model {
	m := &model.Model{Decoder: model.Decoder{Hidden: 256, FeedForward: 1280, Heads: 12, KVHeads: 3, HeadDim: 64, Vocab: 64}}
	m.Embedding = randomTensor(model.F16, 256, 64, r)
	m.Output = m.Embedding
	q, kv := randomTensor(kind, 256, 768, r), randomTensor(kind, 256, 192, r)
	ffn := randomTensor(kind, 256, 1280, r)
	m.Weights = []model.LayerWeights{{
		Q: q, K: kv, V: kv, O: randomTensor(kind, 768, 256, r),
		FeedForward: model.FeedForward{Gate: ffn, Up: ffn, Down: randomTensor(kind, 1280, 256, r)},
	}}
	return m
}

// N8: the products of a row-parallel shard, summed over ranks, are the whole product's: the same blocks, added in another
// order; also where a block of weights has columns of two ranks' heads.
func TestShardsSum(t *testing.T) {
	needKernels(t)
	for _, kind := range append(slices.Clone(kernelTypes), model.IQ4NL, model.IQ4XS) {
		for _, ranks := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("%v/tp%d", kind, ranks), func(t *testing.T) {
				m := shardedModel(kind, rand.New(rand.NewPCG(uint64(kind), 4)))
				shares, err := m.Shares(ranks)
				if err != nil {
					t.Fatal(err)
				}
				mix, hidden := normals(768, 5), normals(1280, 6)
				o, down := make([]float32, 256), make([]float32, 256)
				for _, s := range shares {
					shard := m.Shard(s)
					own := make([]float32, s.Mix.Len())
					copy(own[s.MixSkip(64):], mix[s.Heads.Lo*64:s.Heads.Hi*64])
					add(o, multiplied(t, shard.Weights[0].O, own), 256)
					add(down, multiplied(t, shard.Weights[0].Down, hidden[s.FeedForward.Lo:s.FeedForward.Hi]), 256)
				}
				const rounding = 2e-6
				checkSums(t, "Down", down, multiplied(t, m.Weights[0].Down, hidden), m.Weights[0].Down, hidden, rounding)
				checkSums(t, "O", o, multiplied(t, m.Weights[0].O, mix), m.Weights[0].O, mix, rounding)
			})
		}
	}
}

// multiplied is w · x by the kernels.
func multiplied(t *testing.T, w *model.Tensor, x []float32) []float32 {
	t.Helper()
	b := newMatmulBench(t, w, 1)
	b.packed.format.write(pointer(x), unsafe.Pointer(&b.act[0]), len(x))
	out := make([]float32, b.packed.groups*8)
	b.packed.multiply(unsafe.Pointer(&b.act[0]), b.stride, pointer(out), len(out), 0, b.packed.groups, 1)
	return out[:w.Rows()]
}

// checkSums compares products by the sizes of what is summed.
func checkSums(t *testing.T, what string, got, want []float32, w *model.Tensor, x []float32, tolerance float64) {
	t.Helper()
	row := make([]float32, w.Cols())
	for i := range got {
		model.Dequantise(w.Type, w.Row(i), row)
		size := 0.0
		for k, v := range row {
			size += math.Abs(float64(v * x[k]))
		}
		if d := math.Abs(float64(got[i] - want[i])); !(d <= tolerance*size) {
			t.Fatalf("%s row %d: %g, want %g; off by %g of %g", what, i, got[i], want[i], d, size)
		}
	}
}
