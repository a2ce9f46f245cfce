package backendtest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/model"
)

const (
	tinyTolerance = 1e-3 // B1; cached and uncached runs of the reference differ by 5e-5
	tinyMargin    = 1e-2 // below this the reference's own choice is not sure
	tinyClose     = 0.1  // B2 on a Q8_0 file
)

// rankCounts are the sizes of tensor-parallel groups that small models run on. The small models have 4 or 6 query heads and
// 1 or 2 key heads: with 4 ranks, some share a key head, and parts are uneven.
var rankCounts = []int{1, 2, 4}

// RunTiny holds the small random models to golden.json, and folders to the GGUF files of their weights. Windows are
// 32, so that most prompts cross them. No file stands for the folder of a model.
func RunTiny(t *testing.T, open Opener) {
	for _, c := range []struct {
		name, file, golden string
		shape              Shape
		tolerance          float32
	}{
		{"gemma2", "", "golden", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"gemma2", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"gemma2", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
		{"gemma3", "model-bf16.gguf", "golden", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"gemma3", "", "golden", Shape{KV: "f16"}, tinyClose}, // BF16 weights as they stand
		{"gemma3", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"gemma3", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
		{"gptoss", "", "golden", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"gptoss", "model-mxfp4.gguf", "golden_mxfp4", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"gptoss", "model-mxfp4.gguf", "golden_mxfp4", Shape{KV: "f16"}, tinyClose},
		{"llama", "model-f16.gguf", "golden", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"llama", "", "golden", Shape{KV: "f16"}, tinyClose},
		{"llama", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"llama", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
		{"mistral", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"mistral", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
		{"phi3", "", "golden", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"phi3", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"phi3", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
		{"qwen2", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"qwen2", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
		{"qwen3", "", "golden", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"qwen3", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"qwen3", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
		{"qwen3moe", "", "golden", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"qwen3moe", "model-q8_0.gguf", "golden_q8_0", Shape{Exact: true, KV: "f32"}, tinyTolerance},
		{"qwen3moe", "model-q8_0.gguf", "golden_q8_0", Shape{KV: "f16"}, tinyClose},
	} {
		for _, c.shape.Ranks = range rankCounts {
			t.Run(fmt.Sprintf("%s/%s/exact=%v/tp%d", c.name, c.file, c.shape.Exact, c.shape.Ranks), func(t *testing.T) {
				checkTiny(t, open, filepath.Join("tiny", c.name), c.file, c.golden, c.shape, c.tolerance)
			})
		}
	}
	for name, file := range map[string]string{
		"gemma3": "model-bf16.gguf", "gptoss": "model-f16.gguf", "llama": "model-f16.gguf", "qwen3moe": "model-bf16.gguf",
	} {
		for _, ranks := range rankCounts[:2] {
			t.Run(fmt.Sprintf("%s/folder/tp%d", name, ranks), func(t *testing.T) {
				checkFolder(t, open, filepath.Join("tiny", name), file, ranks)
			})
		}
	}
}

// checkFolder is B5: on the f32 path a folder and the GGUF file of its weights give the same bits.
func checkFolder(t *testing.T, open Opener, dir, file string, ranks int) {
	s := Shape{Ranks: ranks, Exact: true, KV: "f32", BlockSize: 16, Pages: 256, MaxBatchTokens: 512, MaxRows: 8}
	var logits [2][]float32
	vocab := 0
	for i, path := range []string{file, ""} {
		m := openModel(t, filepath.Join(goldenDir, dir, path))
		vocab = m.Vocab
		ids := randomIDs(m, 100, 3)
		logits[i] = newBench(t, open, m, s).branch().prefill(ids, 64, len(ids))
	}
	checkBits(t, logits[1], logits[0], vocab, "folder")
}

// checkTiny runs every prompt whole and in chunks, then its greedy continuation.
func checkTiny(t *testing.T, open Opener, dir, file, golden string, s Shape, tolerance float32) {
	m := openModel(t, filepath.Join(goldenDir, dir, file))
	var prompts struct {
		Prompts []prompt `json:"prompts"`
	}
	readJSON(t, filepath.Join(dir, golden+".json"), &prompts)
	tensors := readTensors(t, filepath.Join(dir, golden+".safetensors"))
	s.BlockSize, s.Pages, s.MaxBatchTokens, s.MaxRows = 16, 256, 512, 8
	b := newBench(t, open, m, s)
	for _, p := range prompts.Prompts {
		want, err := tensors.Tensors[p.Logits].Float32s()
		if err != nil {
			t.Fatalf("%s: %v", p.Logits, err)
		}
		outputs := len(want) / m.Vocab
		for _, chunk := range []int{512, 16} {
			seq := b.branch()
			got := seq.prefill(p.IDs, chunk, outputs)
			if d, at := distance(got, want); d > tolerance || len(got) != len(want) {
				t.Errorf("%s in chunks of %d: logit %d is off by %g, want ≤ %g", p.Name, chunk, at, d, tolerance)
			}
			checkGreedy(t, seq, got[len(got)-m.Vocab:], p.Name, p.Greedy, max(tinyMargin, 2*tolerance))
			seq.drop()
		}
	}
}

// checkGreedy follows the reference's continuation for as long as its margins are clear.
func checkGreedy(t *testing.T, s *branch, logits []float32, name string, want greedy, margin float32) {
	t.Helper()
	for i, id := range want.IDs {
		if want.Margin[i] < margin {
			return
		}
		if got := argmax(logits); got != id {
			t.Errorf("%s: greedy step %d is %d, want %d (margin %g)", name, i, got, id, want.Margin[i])
			return
		}
		row := s.next([]int32{id}, 1)
		row.Sampling = &model.Sampling{}
		r := s.bench.run(row)
		logits = r.Logits[0]
		if r.IDs[0] != argmax(logits) {
			t.Errorf("%s: step %d sampled %d, argmax is %d", name, i, r.IDs[0], argmax(logits))
		}
	}
}

// distance is the largest difference and where it is; a NaN is infinitely far.
func distance(got, want []float32) (d float32, at int) {
	for i := range min(len(got), len(want)) {
		e := got[i] - want[i]
		if e < 0 {
			e = -e
		}
		if !(e <= d) {
			d, at = e, i
		}
	}
	return d, at
}

// argmax is the lowest id of the largest logit.
func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}
