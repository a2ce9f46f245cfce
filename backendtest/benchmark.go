package backendtest

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/model"
)

// benchContext is how many tokens a branch has before decoding is timed.
const benchContext = 128

// Benchmark times the real model: decoding at several batch sizes, and a prefill of 512 tokens. It reports tokens a
// second over all branches.
func Benchmark(b *testing.B, open Opener) {
	for _, size := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("decode/batch=%d", size), func(b *testing.B) { benchmarkDecode(b, open, size) })
	}
	b.Run("prefill/tokens=512", func(b *testing.B) { benchmarkPrefill(b, open) })
}

// newWarmBench opens the real model with pages for so many branches of so many tokens, and writes all of them once: the
// first use of memory costs more than the ones that are timed.
func newWarmBench(b *testing.B, open Opener, branches, tokens int) *bench {
	const blockSize = 16
	m := RealModel(b)
	blocks := (tokens + blockSize - 1) / blockSize
	shape := Shape{
		BlockSize: blockSize, Pages: (branches + 1) * blocks * len(m.KVLayout().Groups), MaxBatchTokens: 512, MaxRows: 32, KV: "f16",
	}
	d := newBench(b, open, m, shape)
	ids, filled := randomIDs(m, tokens, 1), []*branch{}
	for range branches + 1 {
		s := d.branch()
		s.prefill(ids, shape.MaxBatchTokens, 0)
		filled = append(filled, s)
	}
	for _, s := range filled {
		s.drop()
	}
	return d
}

// benchmarkDecode appends one greedy token to every branch in each step. Branches start over when they grow long, so
// that attention's share stays that of a short context.
func benchmarkDecode(b *testing.B, open Opener, size int) {
	d := newWarmBench(b, open, size, 2*benchContext+1)
	branches, ids := make([]*branch, size), make([]int32, size)
	start := func() {
		for i := range branches {
			if branches[i] != nil {
				branches[i].drop()
			}
			branches[i] = d.branch()
			branches[i].prefill(randomIDs(d.model, benchContext, uint64(i)), 512, 0)
			ids[i] = int32(100 + i)
		}
	}
	start()
	rows := make([]model.Row, size)
	greedy := &model.Sampling{}
	for b.Loop() {
		if branches[0].size > 2*benchContext {
			b.StopTimer()
			start()
			b.StartTimer()
		}
		for i, s := range branches {
			rows[i] = s.next(ids[i:i+1], 1)
			rows[i].Logits, rows[i].Sampling = false, greedy
		}
		copy(ids, d.run(rows...).IDs)
	}
	b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
}

func benchmarkPrefill(b *testing.B, open Opener) {
	const size = 512
	d := newWarmBench(b, open, 1, size)
	ids, greedy := randomIDs(d.model, size, 1), &model.Sampling{}
	for b.Loop() {
		s := d.branch()
		row := s.next(ids, 1)
		row.Logits, row.Sampling = false, greedy
		d.run(row)
		s.drop()
	}
	b.ReportMetric(size*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
}
