package model

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berthd/berth/kvpool"
)

// madeModel is a model of one layer in a block format, whose bytes are all different runs of a counter.
func madeModel(r *rand.Rand, kind Type, tied bool) *Model {
	block, _ := kind.Block()
	headDim := 16 * (1 + r.IntN(4))
	kvHeads := 1 + r.IntN(4)
	heads := kvHeads * (1 + r.IntN(4))
	for heads*headDim%block != 0 {
		heads += kvHeads
	}
	d := Decoder{
		Hidden: 256, FeedForward: max(block, 8) * (1 + r.IntN(20)), Heads: heads, KVHeads: kvHeads,
		HeadDim: headDim, Vocab: 1 + r.IntN(400), Layers: []Layer{{Kind: kvpool.Full}},
	}
	made := func(name string, t Type, dims ...int) *Tensor {
		x := &Tensor{Name: name, Type: t, Dims: dims}
		x.Data = make([]byte, x.RowBytes()*x.Rows())
		for i := range x.Data {
			x.Data[i] = byte(r.Uint32())
		}
		return x
	}
	m := &Model{Decoder: d, Embedding: made("embedding", kind, d.Hidden, d.Vocab), OutputNorm: made("norm", F32, d.Hidden)}
	m.Output = m.Embedding
	if !tied {
		m.Output = made("output", kind, d.Hidden, d.Vocab)
	}
	q, kv := heads*headDim, kvHeads*headDim
	m.Weights = []LayerWeights{{
		Q: made("q", kind, d.Hidden, q), K: made("k", kind, d.Hidden, kv), V: made("v", kind, d.Hidden, kv),
		QBias: made("q bias", F16, q), KBias: made("k bias", F32, kv), VBias: made("v bias", BF16, kv),
		O: made("o", kind, q, d.Hidden), FeedForward: FeedForward{
			Gate: made("gate", kind, d.Hidden, d.FeedForward), Up: made("up", kind, d.Hidden, d.FeedForward),
			Down: made("down", kind, d.FeedForward, d.Hidden),
		},
	}}
	return m
}

// Experts are dealt out whole: each to one rank, routers and biases of sums to all; too few are refused.
func TestShardsDealExperts(t *testing.T) {
	m := openTest(t, filepath.Join(golden, "tiny/gptoss/model-mxfp4.gguf"))
	for ranks := 1; ranks <= m.Experts; ranks++ {
		shares, err := m.Shares(ranks)
		if err != nil {
			t.Fatal(err)
		}
		owners := map[*byte]int{}
		for _, s := range shares {
			p := m.Shard(s)
			for i := range p.Weights {
				w, whole := &p.Weights[i], &m.Weights[i]
				if len(w.Experts) != s.Experts.Len() || len(w.Experts) == 0 || w.Router != whole.Router || w.OBias != whole.OBias {
					t.Errorf("rank %d of %d has %d experts", s.Rank, ranks, len(w.Experts))
				}
				if w.Sinks.Cols() != s.Heads.Len() {
					t.Errorf("rank %d of %d: %d sinks for %d heads", s.Rank, ranks, w.Sinks.Cols(), s.Heads.Len())
				}
				for e := range w.Experts {
					owners[&w.Experts[e].Down.Data[0]]++
				}
			}
		}
		if len(owners) != m.Experts*len(m.Weights) {
			t.Errorf("%d ranks have %d experts", ranks, len(owners))
		}
		for _, n := range owners {
			if n != 1 {
				t.Errorf("%d ranks: an expert has %d owners", ranks, n)
			}
		}
	}
	m.Experts = 3
	var small *ShareError
	if _, err := m.Shares(4); !errors.As(err, &small) || small.What != "experts" {
		t.Errorf("3 experts on 4 ranks: %v", err)
	}
}

// cover counts how often each byte of a tensor is in a part, by address.
type cover struct {
	whole *Tensor
	count []int
}

func newCover(t *Tensor) *cover { return &cover{t, make([]int, len(t.Data))} }

func (c *cover) add(t *testing.T, part *Tensor) {
	t.Helper()
	for i := range part.Rows() {
		row := part.Row(i)
		at := cap(c.whole.Data) - cap(part.Data) + i*part.Stride()
		if &c.whole.Data[at] != &row[0] {
			t.Fatalf("%s: row %d is a copy, or another's", c.whole.Name, i)
		}
		for j := range row {
			c.count[at+j]++
		}
	}
}

// check wants every byte in lo to hi parts.
func (c *cover) check(t *testing.T, lo, hi int) {
	t.Helper()
	for i, n := range c.count {
		if n < lo || n > hi {
			t.Fatalf("%s: byte %d is in %d parts, want %d to %d", c.whole.Name, i, n, lo, hi)
		}
	}
}

// Shards of random models have every row and column once; key heads, and blocks of O that two ranks' heads lie in, at
// least once. Nothing is copied.
func TestShardsCover(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	kinds := slices.Sorted(maps.Keys(formats))
	refused := 0
	for i := range 120 {
		m := madeModel(r, kinds[i%len(kinds)], i%2 == 0)
		ranks := 1 + r.IntN(5)
		shares, err := m.Shares(ranks)
		if err != nil {
			var e *ShareError
			if !errors.As(err, &e) || e.Have >= ranks {
				t.Fatalf("%d ranks of %+v: %v", ranks, m.Decoder, err)
			}
			refused++
			continue
		}
		checkShards(t, m, shares)
		if t.Failed() {
			t.Fatalf("%d ranks of %+v", ranks, m.Decoder)
		}
	}
	if refused > 60 {
		t.Errorf("%d of 120 models are too small for their ranks: the test is too", refused)
	}
}

func checkShards(t *testing.T, m *Model, shares []Share) {
	t.Helper()
	w := &m.Weights[0]
	covers := map[*Tensor]*cover{}
	add := func(whole, part *Tensor) {
		if covers[whole] == nil {
			covers[whole] = newCover(whole)
		}
		covers[whole].add(t, part)
	}
	heads, pageHeads := 0, m.RankLayout(len(shares)).KVHeads
	for _, s := range shares {
		p := m.Shard(s)
		l := &p.Weights[0]
		checkSizes(t, m, p, pageHeads)
		heads += p.Heads
		add(m.Embedding, p.Embedding)
		if m.Output != m.Embedding {
			add(m.Output, p.Output)
		} else if p.Output != p.Embedding {
			t.Error("a tied output is a tensor of its own")
		}
		for whole, part := range map[*Tensor]*Tensor{
			w.Q: l.Q, w.K: l.K, w.V: l.V, w.O: l.O, w.Gate: l.Gate, w.Up: l.Up, w.Down: l.Down,
			w.QBias: l.QBias, w.KBias: l.KBias, w.VBias: l.VBias,
		} {
			add(whole, part)
		}
	}
	if heads != m.Heads {
		t.Errorf("%d heads on all ranks, want %d", heads, m.Heads)
	}
	for whole, c := range covers {
		most := 1
		switch whole {
		case w.K, w.V, w.KBias, w.VBias, w.O:
			most = len(shares)
		}
		c.check(t, 1, most)
	}
}

// checkSizes compares a shard's sizes with its tensors' and its share's.
func checkSizes(t *testing.T, m, p *Model, pageHeads int) {
	t.Helper()
	l, s := &p.Weights[0], &p.Share
	skip, block := s.MixSkip(p.HeadDim), l.O.Type.elements()
	switch {
	case p.Heads < 1 || p.KVHeads < 1 || p.FeedForward < 1 || p.Vocab < 1:
		t.Errorf("an empty rank: %+v", s)
	case p.Heads%p.KVHeads != 0 || p.KVHeads > pageHeads:
		t.Errorf("%d query heads on %d key heads, pages of %d", p.Heads, p.KVHeads, pageHeads)
	case s.KVHeads.Lo != s.Heads.Lo/(m.Heads/m.KVHeads) || s.KVHeads.Hi-1 != (s.Heads.Hi-1)/(m.Heads/m.KVHeads):
		t.Errorf("heads %v look at others than key heads %v", s.Heads, s.KVHeads)
	case l.Q.Rows() != p.Heads*p.HeadDim || l.K.Rows() != p.KVHeads*p.HeadDim || l.QBias.Cols() != l.Q.Rows():
		t.Errorf("Q %v, K %v, bias %v of %+v", l.Q.Dims, l.K.Dims, l.QBias.Dims, s)
	case skip < 0 || skip >= block || l.O.Cols() != s.Mix.Len() || l.O.Cols() < skip+l.Q.Rows() || l.O.Cols()%block != 0:
		t.Errorf("O %v, %d columns before the heads", l.O.Dims, skip)
	case l.Gate.Rows() != p.FeedForward || l.Down.Cols() != p.FeedForward || s.Vocab.Lo%vocabUnit != 0:
		t.Errorf("gate %v, down %v of %+v", l.Gate.Dims, l.Down.Dims, s)
	}
}

func TestSharesRefuse(t *testing.T) {
	m := madeModel(rand.New(rand.NewPCG(2, 2)), F32, true)
	m.Heads, m.KVHeads = 4, 2
	for ranks, want := range map[int]string{
		0: "0 tensor-parallel ranks", 5: "5 tensor-parallel ranks: the model has 4 query heads to share, one a rank at least: give from 1 to 4 ranks",
	} {
		if _, err := m.Shares(ranks); err == nil || fmt.Sprint(err)[:len(want)] != want {
			t.Errorf("%d ranks: %v, want %q", ranks, err, want)
		}
	}
}

// A plan's digest tells plans apart that differ in anything a rank obeys.
func TestDigest(t *testing.T) {
	made := func() *Plan {
		return &Plan{Step: 3, Rows: []Row{
			{Tokens: []int32{1, 2}, Start: 4, Pages: [][]kvpool.PageID{{5, 6}, {kvpool.NoPage, 7}}, Outputs: 1},
			{Tokens: []int32{9}, Pages: [][]kvpool.PageID{{8}, {10}}},
		}}
	}
	want, seen := made().Digest(), map[uint64]int{}
	if made().Digest() != want {
		t.Fatal("equal plans have two digests")
	}
	for i, change := range []func(p *Plan){
		func(*Plan) {},
		func(p *Plan) { p.Step++ },
		func(p *Plan) { p.Rows = p.Rows[:1] },
		func(p *Plan) { p.Rows[0].Tokens[1] = 3 },
		func(p *Plan) { p.Rows[0].Start = 5 },
		func(p *Plan) { p.Rows[0].Outputs = 2 },
		func(p *Plan) { p.Rows[0].Pages[0], p.Rows[0].Pages[1] = p.Rows[0].Pages[1], p.Rows[0].Pages[0] },
		func(p *Plan) { p.Rows[0].Pages[1][0] = 0 },
		func(p *Plan) { p.Rows[0].Pages[0] = p.Rows[0].Pages[0][:1] },
		func(p *Plan) { p.Rows[1].Tokens = append(p.Rows[1].Tokens, 0) },
	} {
		p := made()
		change(p)
		if j, is := seen[p.Digest()]; is {
			t.Errorf("changes %d and %d have one digest", j, i)
		}
		seen[p.Digest()] = i
	}
}

func BenchmarkDigest(b *testing.B) {
	p := &Plan{}
	for range 32 {
		p.Rows = append(p.Rows, Row{Tokens: make([]int32, 8), Pages: [][]kvpool.PageID{make([]kvpool.PageID, 600)}})
	}
	for b.Loop() {
		p.Digest()
	}
}
