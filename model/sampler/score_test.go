package sampler

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/berthd/berth/model"
)

// TestScore compares with a full sort and a softmax in f64, on logits with many ties.
func TestScore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var got model.Score
	for range 200 {
		logits := make([]float32, 1+rng.IntN(300))
		for i := range logits {
			logits[i] = float32(rng.IntN(40)) / 4
			if rng.IntN(20) == 0 {
				logits[i] = float32(math.Inf(-1))
			}
		}
		logits[0] = 1
		ids := make([]int32, len(logits))
		total := 0.0
		for i, x := range logits {
			ids[i] = int32(i)
			total += math.Exp(float64(x))
		}
		slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
		logprob := func(id int32) float64 { return math.Log(math.Exp(float64(logits[id])) / total) }
		id, top := int32(rng.IntN(len(logits))), rng.IntN(25)
		Score(logits, id, top, &got)
		rank := 1 + slices.IndexFunc(ids, func(o int32) bool { return logits[o] == logits[id] })
		if !near(got.Logprob, logprob(id)) || got.Rank != rank || len(got.Top) != min(top, len(logits)) {
			t.Fatalf("token %d: %+v, want %g, rank %d", id, got, logprob(id), rank)
		}
		for i, l := range got.Top {
			if l.ID != ids[i] || !near(l.Logprob, logprob(ids[i])) {
				t.Fatalf("likeliest %d of %d: %+v, want %d, %g", i, len(logits), l, ids[i], logprob(ids[i]))
			}
		}
	}
}

func near(got float32, want float64) bool {
	return float64(got) == want || math.Abs(float64(got)-want) < 1e-5
}

// TestScoreIsRaw: bias, bans, penalties and temperature do not change what is said of a token.
func TestScoreIsRaw(t *testing.T) {
	s, logits := New(4), []float32{1, 2, 3, 4}
	var plain, shaped model.Score
	Score(logits, 1, 2, &plain)
	id := s.NextScored(slices.Clone(logits), &model.Sampling{
		Banned: []int32{3}, LogitBias: []model.Bias{{ID: 2, Value: -50}}, FrequencyPenalty: 1, Output: []int32{3, 2}, Temperature: 0.001,
	}, 2, &shaped)
	if id != 1 || shaped.Logprob != plain.Logprob || shaped.Rank != 3 || shaped.Top[0].ID != 3 || shaped.Top[1].ID != 2 {
		t.Errorf("%d: %+v, want %+v", id, shaped, plain)
	}
}

// TestScoreAllocatesNothing once it has room (S4).
func TestScoreAllocatesNothing(t *testing.T) {
	s, logits := New(1000), make([]float32, 1000)
	for i := range logits {
		logits[i] = float32(i * 7 % 1000)
	}
	var into model.Score
	p := &model.Sampling{}
	s.NextScored(logits, p, 20, &into)
	if n := testing.AllocsPerRun(10, func() { s.NextScored(logits, p, 20, &into) }); n != 0 {
		t.Errorf("S4: %g allocations", n)
	}
}
