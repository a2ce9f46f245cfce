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

// madeShape is a small model's sizes, chosen to be even with nothing.
type madeShape struct {
	hidden, forward, heads, kvHeads, headDim, vocab, experts, used int
	biases, tied                                                   bool
}

// madeModel has random f32 weights, every second layer sliding, and, with biases, everything that gpt-oss has.
func madeModel(s madeShape, r *rand.Rand) *model.Model {
	tensor := func(scale float64, dims ...int) *model.Tensor {
		n := 1
		for _, d := range dims {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * scale)
		}
		return &model.Tensor{Type: model.F32, Dims: dims, Data: unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*n)}
	}
	matrix := func(cols, rows int) *model.Tensor { return tensor(1/math.Sqrt(float64(cols)), cols, rows) }
	d := model.Decoder{
		Hidden: s.hidden, FeedForward: s.forward, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.headDim, Vocab: s.vocab,
		Experts: s.experts, ExpertsUsed: s.used, Context: 512, Epsilon: 1e-6, Activation: model.SiLU, EmbedScale: 1,
		QueryScale: float32(1 / math.Sqrt(float64(s.headDim))),
	}
	m := &model.Model{Embedding: tensor(1, s.hidden, s.vocab), OutputNorm: tensor(1, s.hidden)}
	m.Output = m.Embedding
	if !s.tied {
		m.Output = matrix(s.hidden, s.vocab)
	}
	bias := func(n int) *model.Tensor {
		if !s.biases {
			return nil
		}
		return tensor(1, n)
	}
	if s.biases {
		d.Activation, d.GateLimit = model.ClampedSwiGLU, 1.5
	}
	forward := func() model.FeedForward {
		f := model.FeedForward{Gate: matrix(s.hidden, s.forward), Up: matrix(s.hidden, s.forward), Down: matrix(s.forward, s.hidden)}
		if s.experts > 0 {
			f.GateBias, f.UpBias, f.DownBias = bias(s.forward), bias(s.forward), bias(s.hidden)
		}
		return f
	}
	q, kv := s.heads*s.headDim, s.kvHeads*s.headDim
	for i := range 4 {
		l := model.Layer{RopeBase: 1e4, RopeScale: 1, RopeGain: 1.2}
		if i%2 == 0 {
			l.Kind, l.Window = kvpool.Sliding, 11
		}
		d.Layers = append(d.Layers, l)
		w := model.LayerWeights{
			AttnNorm: tensor(1, s.hidden), FFNNorm: tensor(1, s.hidden), Q: matrix(s.hidden, q), K: matrix(s.hidden, kv),
			V: matrix(s.hidden, kv), O: matrix(q, s.hidden), QBias: bias(q), KBias: bias(kv), VBias: bias(kv), OBias: bias(s.hidden),
			Sinks: bias(s.heads),
		}
		if s.experts == 0 {
			w.FeedForward = forward()
		} else {
			w.Router, w.RouterBias = matrix(s.hidden, s.experts), bias(s.experts)
		}
		for range s.experts {
			w.Experts = append(w.Experts, forward())
		}
		m.Weights = append(m.Weights, w)
	}
	m.Decoder = d
	return m
}

// Kernels agree with plain Go, on any number of ranks, for sizes that are even with nothing; sizes that no kernel takes
// run in plain Go.
func TestMadeModels(t *testing.T) {
	for i, s := range []madeShape{
		{hidden: 72, forward: 40, heads: 5, kvHeads: 1, headDim: 48, vocab: 101, experts: 5, used: 3, biases: true},
		{hidden: 40, forward: 24, heads: 6, kvHeads: 3, headDim: 16, vocab: 67, experts: 11, used: 1, tied: true},
		{hidden: 104, forward: 8, heads: 4, kvHeads: 4, headDim: 80, vocab: 33, experts: 4, used: 4},
		{hidden: 56, forward: 136, heads: 7, kvHeads: 7, headDim: 32, vocab: 45, biases: true, tied: true},
		{hidden: 30, forward: 130, heads: 5, kvHeads: 5, headDim: 6, vocab: 41, tied: true},
		{hidden: 30, forward: 7, heads: 4, kvHeads: 2, headDim: 10, vocab: 41, experts: 6, used: 2, biases: true},
	} {
		m := madeModel(s, rand.New(rand.NewPCG(uint64(i), 8)))
		ids := make([]int32, 90)
		for i := range ids {
			ids[i] = int32(i * 37 % s.vocab)
		}
		var want []float32
		for _, reference := range []bool{true, false} {
			for _, ranks := range []int{1, 2, 3, 4} {
				cfg := tinyConfig()
				cfg.KV, cfg.Reference, cfg.Ranks = "f32", reference, ranks
				d, err := Open(m, cfg)
				if err != nil {
					t.Fatal(err)
				}
				row := sequence(d, ids, 0, len(ids), 0)
				row.Logits = true
				got := step(t, d, &model.Plan{Step: 1, Rows: []model.Row{row}}).Logits[0]
				if want == nil {
					want = got
				}
				nearLogits(t, fmt.Sprintf("%+v, plain Go %v, %d ranks", s, reference, ranks), got, want)
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func nearLogits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if e := math.Abs(float64(got[i] - want[i])); !(e <= 1e-3) {
			t.Fatalf("%s: logit %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}
