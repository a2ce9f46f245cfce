package backendtest

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/berthd/berth/model"
)

// Tolerances on the real model; the golden data's README derives them from what llama.cpp does on the same file.
const (
	exactLogit  = 0.02
	exactPPL    = 0.001
	exactMargin = 0.05
	fastLogit   = 1.5
	fastPPL     = 0.015
	fastMargin  = 0.5  // on prompts
	clearMargin = 1.5  // on the perplexity text
	clearAgree  = 0.99 // share of clear positions with the same argmax
)

const probeStep = 4096 // distance of the ids whose logits are probed

// What a run without the soak tag leaves out: the f32 path of long prompts and texts, and most of what many ranks do.
const (
	exactPrompt = 200 // tokens of a prompt
	exactGreedy = 8   // steps of its continuation
	exactText   = 256 // tokens of the perplexity text
	fastText    = 768 // the same on the fast path: past the window of 512
	fullRanks   = 2   // more ranks have prompts only
)

// runReal holds Gemma 3 270M (Q4_K_M) to transformers' results on the dequantised weights. It has 4 query heads on 1 key
// head, which all ranks hold.
func runReal(t *testing.T, open Opener) {
	for _, ranks := range rankCounts {
		s := Shape{Ranks: ranks, BlockSize: 16, Pages: 1024, MaxBatchTokens: 512, MaxRows: 64}
		t.Run(fmt.Sprintf("tp%d", ranks), func(t *testing.T) { runRealRanks(t, open, s, soak || ranks <= fullRanks) })
	}
}

// runRealRanks is the prompts, and if full, the perplexity text and invariance.
func runRealRanks(t *testing.T, open Opener, s Shape, full bool) {
	exact, fast := s, s
	exact.Exact, exact.KV, fast.KV = true, "f32", "f16"
	t.Run("exact", func(t *testing.T) {
		b := newBench(t, open, RealModel(t), exact)
		t.Run("prompts", func(t *testing.T) { checkPrompts(t, b, exactLogit, 0, exactMargin) })
		if full {
			t.Run("perplexity", func(t *testing.T) { checkPerplexity(t, b, exactPPL) })
		}
	})
	t.Run("fast", func(t *testing.T) {
		b := newBench(t, open, RealModel(t), fast)
		t.Run("prompts", func(t *testing.T) { checkPrompts(t, b, fastLogit, fastMargin, clearMargin) })
		if full {
			t.Run("perplexity", func(t *testing.T) { checkPerplexity(t, b, fastPPL) })
		}
	})
	if full {
		t.Run("invariance", func(t *testing.T) { checkRealInvariance(t, open, RealModel(t), fast) })
	}
}

// checkPrompts compares the top logits and probes of each prompt, its argmax where the margin is clear, and its greedy
// continuation while it stays clear.
func checkPrompts(t *testing.T, b *bench, tolerance, argmaxMargin, greedyMargin float32) {
	var golden struct {
		Prompts []realPrompt `json:"prompts"`
	}
	readJSON(t, "gemma3-270m/logits.json", &golden)
	worst := float32(0)
	for _, p := range golden.Prompts {
		if b.shape.Exact && !soak {
			if len(p.IDs) > exactPrompt {
				continue
			}
			p.Greedy.IDs = p.Greedy.IDs[:exactGreedy]
		}
		s := b.branch()
		got := s.prefill(p.IDs, b.shape.MaxBatchTokens, 1)
		for i, id := range p.TopIDs {
			worst = max(worst, checkLogit(t, p.Name, got, id, p.TopLogits[i], tolerance))
		}
		if b.shape.Exact {
			for i, want := range p.ProbeLogits {
				worst = max(worst, checkLogit(t, p.Name, got, int32(i*probeStep), want, tolerance))
			}
		}
		if p.Greedy.Margin[0] >= argmaxMargin && argmax(got) != p.TopIDs[0] {
			t.Errorf("%s: argmax %d, want %d (margin %g)", p.Name, argmax(got), p.TopIDs[0], p.Greedy.Margin[0])
		}
		checkGreedy(t, s, got, p.Name, p.Greedy, greedyMargin)
		s.drop()
	}
	t.Logf("largest difference of a logit: %.4f", worst)
}

func checkLogit(t *testing.T, name string, got []float32, id int32, want, tolerance float32) float32 {
	t.Helper()
	d, _ := distance(got[id:id+1], []float32{want})
	if !(d <= tolerance) {
		t.Errorf("%s: logit of %d is %g, want %g ± %g", name, id, got[id], want, tolerance)
	}
	return d
}

// checkPerplexity runs the long text in chunks and compares perplexity and every clear argmax.
func checkPerplexity(t *testing.T, b *bench, tolerance float64) {
	var golden perplexity
	readJSON(t, "gemma3-270m/perplexity.json", &golden)
	golden.cut(textLength(b.shape.Exact))
	const chunk = 128
	s, vocab := b.branch(), b.model.Vocab
	nll := make([]float64, len(golden.NLL))
	agree, clear := 0, 0
	for lo := 0; lo < len(golden.IDs); lo += chunk {
		hi := min(lo+chunk, len(golden.IDs))
		logits := b.run(s.next(golden.IDs[lo:hi], hi-lo)).Logits[0]
		best := make([]int32, hi-lo)
		parallel(hi-lo, func(i int) {
			x := logits[i*vocab : (i+1)*vocab]
			best[i] = argmax(x)
			if lo+i < len(nll) {
				nll[lo+i] = logSumExp(x) - float64(x[golden.IDs[lo+i+1]])
			}
		})
		for i := lo; i < min(hi, len(nll)); i++ {
			if golden.Margin[i] > clearMargin {
				clear++
				if best[i-lo] == golden.Argmax[i] {
					agree++
				}
			}
		}
	}
	s.drop()
	sum := 0.0
	for _, v := range nll {
		sum += v
	}
	ppl, want := math.Exp(sum/float64(len(nll))), golden.perplexity()
	t.Logf("perplexity %.4f, reference %.4f (%+.3f %%); argmax equal on %d of %d clear positions", ppl, want,
		100*(ppl/want-1), agree, clear)
	if !(math.Abs(ppl/want-1) <= tolerance) {
		t.Errorf("perplexity %.4f, want %.4f within %g %%", ppl, want, 100*tolerance)
	}
	if float64(agree) < clearAgree*float64(clear) {
		t.Errorf("argmax equal on %d of %d positions with margin > %g", agree, clear, clearMargin)
	}
}

// textLength is how much of the perplexity text a run takes.
func textLength(exact bool) int {
	switch {
	case soak:
		return math.MaxInt
	case exact:
		return exactText
	}
	return fastText
}

// cut keeps the first n tokens and what was measured on them.
func (p *perplexity) cut(n int) {
	if n < len(p.IDs) {
		p.IDs, p.NLL = p.IDs[:n], p.NLL[:n-1]
	}
}

// perplexity is e to the mean of the reference's nll.
func (p *perplexity) perplexity() float64 {
	sum := 0.0
	for _, v := range p.NLL {
		sum += v
	}
	return math.Exp(sum / float64(len(p.NLL)))
}

// logSumExp is ln Σ e^x.
func logSumExp(x []float32) float64 {
	top, sum := float64(x[argmax(x)]), 0.0
	for _, v := range x {
		if d := float64(v) - top; d > -30 {
			sum += math.Exp(d)
		}
	}
	return top + math.Log(sum)
}

// parallel calls f(i) for i in [0, n) on a few goroutines.
func parallel(n int, f func(i int)) {
	const width = 4
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			for i := w; i < n; i += width {
				f(i)
			}
		})
	}
	wg.Wait()
}

// checkRealInvariance is B3 on the real model's types and shapes, by the logits after one prompt.
func checkRealInvariance(t *testing.T, open Opener, m *model.Model, s Shape) {
	ids := randomIDs(m, 90, 3)
	s.Threads = 1
	want := newBench(t, open, m, s).branch().prefill(ids, 1, 1)
	cases := []struct{ blockSize, threads, pages int }{{16, 2, 4096}, {4, 1, 8192}, {64, 5, 1024}}
	if !soak {
		cases = cases[:1]
	}
	for _, c := range cases {
		s.BlockSize, s.Threads, s.Pages = c.blockSize, c.threads, c.pages
		b := newBench(t, open, m, s)
		what := fmt.Sprintf("blocks of %d, %d threads", c.blockSize, c.threads)
		for _, chunk := range []int{256, 33, 16} {
			seq := b.branch()
			checkBits(t, seq.prefill(ids, chunk, 1), want, m.Vocab, fmt.Sprintf("%s, chunks of %d", what, chunk))
			seq.drop()
		}
		for _, size := range batchSizes {
			checkRealBatch(t, b, ids, want, size, what)
		}
	}
}

// checkRealBatch decodes the last token beside size−1 short sequences.
func checkRealBatch(t *testing.T, b *bench, ids []int32, want []float32, size int, what string) {
	t.Helper()
	var rows []model.Row
	last, mine := len(ids)-1, size/2
	branches := make([]*branch, size)
	for i := range branches {
		branches[i] = b.branch()
		tokens, outputs := randomIDs(b.model, 1+i%3, uint64(i)), 0
		if i == mine {
			branches[i].prefill(ids[:last], 512, 0)
			tokens, outputs = ids[last:], 1
		}
		rows = append(rows, branches[i].next(tokens, outputs))
		rows[i].Outputs = 1
	}
	checkBits(t, b.run(rows...).Logits[mine], want, b.model.Vocab, fmt.Sprintf("%s, in a batch of %d", what, size))
	for _, s := range branches {
		s.drop()
	}
}
