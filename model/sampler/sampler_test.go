package sampler

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/berthd/berth/model"
)

const golden = "../../testdata/golden/sampling/"

type goldenParams struct {
	Temperature       float32            `json:"temperature"`
	TopK              int                `json:"top_k"`
	TopP              float32            `json:"top_p"`
	MinP              float32            `json:"min_p"`
	RepetitionPenalty float32            `json:"repetition_penalty"`
	PresencePenalty   float32            `json:"presence_penalty"`
	FrequencyPenalty  float32            `json:"frequency_penalty"`
	LogitBias         map[string]float32 `json:"logit_bias"`
	PromptIDs         []int32            `json:"prompt_ids"`
	OutputIDs         []int32            `json:"output_ids"`
}

// ordersAgree says that the hf order gives the same distribution as vllm's: with at most one of top-p and min-p cutting,
// and min-p not before top-k.
func (p goldenParams) ordersAgree() bool {
	topK, topP, minP := p.TopK > 0, p.TopP < 1, p.MinP > 0
	return p.FrequencyPenalty == 0 && p.PresencePenalty == 0 && len(p.LogitBias) == 0 && !(minP && (topP || topK))
}

func (p goldenParams) sampling() *model.Sampling {
	s := &model.Sampling{
		Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, RepetitionPenalty: p.RepetitionPenalty,
		PresencePenalty: p.PresencePenalty, FrequencyPenalty: p.FrequencyPenalty, Prompt: p.PromptIDs, Output: p.OutputIDs,
	}
	for k, v := range p.LogitBias {
		id, _ := strconv.Atoi(k)
		s.LogitBias = append(s.LogitBias, model.Bias{ID: int32(id), Value: v})
	}
	slices.SortFunc(s.LogitBias, func(a, b model.Bias) int { return int(a.ID - b.ID) })
	return s
}

func TestGoldenDistributions(t *testing.T) {
	raw, err := os.ReadFile(golden + "sampling.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Defaults json.RawMessage `json:"defaults"`
		Cases    []struct {
			ID     string          `json:"id"`
			Order  string          `json:"order"`
			Vocab  int             `json:"vocab"`
			Params json.RawMessage `json:"params"`
			Edge   float64         `json:"edge_margin"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	tensors, err := model.ReadSafetensors(golden + "sampling.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, c := range file.Cases {
		var p goldenParams
		for _, src := range []json.RawMessage{file.Defaults, c.Params} {
			if err := json.Unmarshal(src, &p); err != nil {
				t.Fatal(err)
			}
		}
		if c.Order == "hf" && !p.ordersAgree() || c.Edge < 1e-5 {
			continue
		}
		checked++
		logits, err := tensors.Tensors[c.ID+".logits"].Float32s()
		if err != nil {
			t.Fatal(err)
		}
		want, err := tensors.Tensors[c.ID+".probs"].Float64s()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float64, c.Vocab)
		New(c.Vocab).Probs(slices.Clone(logits), p.sampling(), got)
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-6 {
				t.Errorf("%s (%s order): probability of id %d is %g, want %g", c.ID, c.Order, i, got[i], want[i])
				break
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d of %d cases were checked", checked, len(file.Cases))
	}
	t.Logf("%d of %d cases checked", checked, len(file.Cases))
}

func TestNextDrawsFromProbs(t *testing.T) { // S2
	const vocab, draws = 2*blockIDs + 50, 30_000
	rng := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	for name, p := range map[string]*model.Sampling{
		"any token":   {Temperature: 0.8},
		"top-k top-p": {Temperature: 0.8, TopK: 12, TopP: 0.9},
		"top-p":       {Temperature: 0.8, TopP: 0.6},
		"min-p":       {Temperature: 1.5, MinP: 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			p.Banned, p.Seed = []int32{3}, 9
			s, buf, want, got := New(vocab), make([]float32, vocab), make([]float64, vocab), make([]float64, vocab)
			s.Probs(slices.Clone(logits), p, want)
			for i := range draws {
				p.Counter = uint64(i)
				copy(buf, logits)
				id, _ := s.Next(buf, p)
				got[id] += 1.0 / draws
			}
			for i := range want {
				if want[i] == 0 && got[i] > 0 || math.Abs(want[i]-got[i]) > 0.01 {
					t.Errorf("id %d: drawn %g of the time, want %g", i, got[i], want[i])
				}
			}
		})
	}
}

func TestWeights(t *testing.T) {
	w := weights{top: 3, by: 0.7}
	for x := float32(-600); x <= 3; x += 0.37 {
		want := math.Exp(float64(x-3) * 0.7)
		if got := w.of(x); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("weight of %g: %g, want %g", x, got, want)
		}
	}
	for _, x := range []float32{float32(math.Inf(-1)), float32(math.NaN()), -1e30} {
		if got := w.of(x); got != 0 {
			t.Errorf("weight of %g: %g, want 0", x, got)
		}
	}
}

func TestNextIsItsOwnOracle(t *testing.T) { // S1, S4
	logits := []float32{0, 1, 2, 1.5, -1}
	p := &model.Sampling{Temperature: 1, Seed: 4, Counter: 7, RepetitionPenalty: 1.3, Prompt: []int32{2}, Output: []int32{1}}
	s := New(5)
	first, _ := s.Next(slices.Clone(logits), p)
	buf := make([]float32, 5)
	if n := testing.AllocsPerRun(100, func() {
		copy(buf, logits)
		if id, _ := s.Next(buf, p); id != first {
			t.Errorf("drew %d, then %d", first, id)
		}
	}); n != 0 {
		t.Errorf("%v allocations a token", n)
	}
}

func TestGreedyTakesLowestID(t *testing.T) { // S3
	id, lp := New(4).Next([]float32{1, 3, 3, 0}, &model.Sampling{Logprob: true})
	want := 3 - math.Log(math.Exp(1)+2*math.Exp(3)+1)
	if id != 1 || math.Abs(float64(lp)-want) > 1e-6 {
		t.Errorf("id %d, log-probability %g; want 1, %g", id, lp, want)
	}
}

func TestMaskAndBanned(t *testing.T) { // S2
	p := &model.Sampling{Mask: []uint64{0b1101}, Banned: []int32{2}}
	if id, _ := New(4).Next([]float32{1, 9, 8, 0}, p); id != 0 {
		t.Errorf("chose %d, want 0", id)
	}
}

func TestNothingToChoose(t *testing.T) { // S5
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for what, c := range map[string]struct {
		logits []float32
		p      model.Sampling
	}{
		"all NaN":       {[]float32{nan, nan, nan}, model.Sampling{}},
		"NaN, sampled":  {[]float32{nan, nan, nan}, model.Sampling{Temperature: 1}},
		"infinite":      {[]float32{0, inf, 1}, model.Sampling{Temperature: 1, TopK: 2}},
		"all banned":    {[]float32{0, 1, 2}, model.Sampling{Banned: []int32{0, 1, 2}}},
		"all masked":    {[]float32{0, 1, 2}, model.Sampling{Temperature: 1, Mask: []uint64{0}}},
		"with logprobs": {[]float32{nan, nan, nan}, model.Sampling{Temperature: 1, Logprob: true}},
	} {
		if id, lp := New(3).Next(c.logits, &c.p); id != -1 || lp != 0 {
			t.Errorf("%s: id %d, log-probability %g", what, id, lp)
		}
	}
	odd := &model.Sampling{Temperature: 1e-5, MinP: 5, TopP: 1e-30, TopK: 1 << 30}
	if id, _ := New(3).Next([]float32{0, nan, 2}, odd); id != 2 {
		t.Errorf("odd parameters: id %d", id)
	}
}

func BenchmarkNext(b *testing.B) {
	const vocab = 262_144
	rng := rand.New(rand.NewPCG(1, 2))
	logits, buf := make([]float32, vocab), make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	for name, p := range map[string]*model.Sampling{
		"greedy":      {},
		"temperature": {Temperature: 0.8},
		"top_k_top_p": {Temperature: 0.8, TopK: 64, TopP: 0.95},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(vocab)
			for b.Loop() {
				copy(buf, logits)
				s.Next(buf, p)
			}
		})
	}
}
