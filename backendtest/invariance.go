package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/model"
)

// Sizes around every tile shape of the kernels.
var batchSizes = []int{1, 2, 7, 8, 9, 31, 33, 64}

// runInvariance is B3 and B4 on tiny models: the same logit bits whatever the batch, chunks, blocks and threads.
func runInvariance(t *testing.T, open Opener) {
	for _, c := range []struct {
		file  string
		shape Shape
	}{
		{"gemma3/model-bf16.gguf", Shape{Exact: true, KV: "f32"}},
		{"gemma3/model-bf16.gguf", Shape{KV: "f16"}},
		{"gemma3/model-q8_0.gguf", Shape{KV: "f16"}},
		{"qwen2/model-q8_0.gguf", Shape{KV: "f16"}}, // biases
		{"llama/model-f16.gguf", Shape{KV: "f16"}},
		{"qwen3moe/model-q8_0.gguf", Shape{KV: "f16"}}, // experts
		{"gptoss/model-mxfp4.gguf", Shape{KV: "f16"}},  // experts with biases, sinks
	} {
		for _, c.shape.Ranks = range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/exact=%v/%s/tp%d", c.file, c.shape.Exact, c.shape.KV, c.shape.Ranks), func(t *testing.T) {
				m := openModel(t, filepath.Join(goldenDir, "tiny", c.file))
				checkInvariance(t, open, m, c.shape, 150)
			})
		}
	}
}

// checkInvariance compares every way to run a sequence with the plainest one: one token a step, one thread.
func checkInvariance(t *testing.T, open Opener, m *model.Model, s Shape, size int) {
	ids := randomIDs(m, size, 1)
	s.MaxBatchTokens, s.MaxRows, s.Pages = 512, 64, 64*len(m.KVLayout().Groups)*8
	plain := s
	plain.Threads, plain.BlockSize = 1, 16
	want := newBench(t, open, m, plain).branch().prefill(ids, 1, size)
	for _, blockSize := range []int{4, 16, 64} {
		for _, threads := range []int{1, 2, 5} {
			s.BlockSize, s.Threads = blockSize, threads
			b := newBench(t, open, m, s)
			for _, chunk := range []int{size, 256, 64, 33, 16, 7} {
				seq := b.branch()
				got := seq.prefill(ids, chunk, size)
				what := fmt.Sprintf("blocks of %d, %d threads, chunks of %d", blockSize, threads, chunk)
				checkBits(t, got, want, m.Vocab, what)
				seq.drop()
			}
			checkBatches(t, b, ids, want, fmt.Sprintf("blocks of %d, %d threads", blockSize, threads))
		}
	}
}

// checkBatches decodes the end of the sequence in the company of others.
func checkBatches(t *testing.T, b *bench, ids []int32, want []float32, what string) {
	t.Helper()
	for _, size := range batchSizes {
		at := len(ids) - 2
		if s := at - size; s > 8 {
			at = s
		}
		var rows []model.Row
		branches := make([]*branch, size)
		for i := range branches {
			branches[i] = b.branch()
			prefix := ids[:at]
			if i != size/2 {
				prefix = randomIDs(b.model, 1+i*3%40, uint64(i))
			}
			branches[i].prefill(prefix, 512, 1)
			rows = append(rows, branches[i].next([]int32{ids[at]}, 1))
		}
		got := b.run(rows...).Logits[size/2]
		v := b.model.Vocab
		checkBits(t, got, want[at*v:(at+1)*v], v, fmt.Sprintf("%s, decode in a batch of %d", what, size))
		for _, s := range branches {
			s.drop()
		}
	}
}

// checkBits compares logits bit by bit.
func checkBits(t *testing.T, got, want []float32, vocab int, what string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: position %d, id %d: %v, want the bits of %v", what, i/vocab, i%vocab, got[i], want[i])
			return
		}
	}
}

func randomIDs(m *model.Model, n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, 7))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(m.Vocab))
	}
	return ids
}
