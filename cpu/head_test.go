package cpu

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// scoredCase is a small model whose golden log-probabilities a device is held to; tolerance is that of its logits.
type scoredCase struct {
	name, file, golden string
	cfg                Config
	tolerance          float64
}

// TestGoldenLogprobs holds scores to the reference: those of greedy continuations, as long as their margins are clear, and
// those of prompts' tokens to the log softmax of its logits, in chunks that cut a prompt anywhere.
func TestGoldenLogprobs(t *testing.T) {
	exact, fast := tinyConfig(), tinyConfig()
	exact.Reference, exact.KV = true, "f32"
	for _, c := range []scoredCase{
		{"gemma2", "", "golden", exact, 1e-3}, {"gemma3", "model-bf16.gguf", "golden", exact, 1e-3},
		{"llama", "model-f16.gguf", "golden", exact, 1e-3}, {"qwen3", "", "golden", exact, 1e-3},
		{"mistral", "model-q8_0.gguf", "golden_q8_0", exact, 1e-3}, {"qwen2", "model-q8_0.gguf", "golden_q8_0", exact, 1e-3},
		{"gemma3", "model-q8_0.gguf", "golden_q8_0", fast, 0.1}, {"llama", "model-q8_0.gguf", "golden_q8_0", fast, 0.1},
	} {
		t.Run(c.name+"/"+c.file, func(t *testing.T) {
			if !c.cfg.Reference {
				needKernels(t)
			}
			checkLogprobs(t, c)
		})
	}
}

func checkLogprobs(t *testing.T, c scoredCase) {
	dir := filepath.Join(golden, "tiny", c.name)
	raw, err := os.ReadFile(filepath.Join(dir, c.golden+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Prompts []struct {
			Name, Logits string
			IDs          []int32
			Greedy       struct {
				IDs             []int32
				Logprob, Margin []float64
			}
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	tensors, err := model.ReadSafetensors(filepath.Join(dir, c.golden+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(filepath.Join(dir, c.file))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d, err := Open(m, c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	told := 0
	for _, p := range file.Prompts {
		if c.cfg.Reference && len(p.IDs) > 100 {
			continue // plain Go takes its time
		}
		logits, err := tensors.Tensors[p.Logits].Float32s()
		if err != nil {
			t.Fatal(err)
		}
		s := &scoredRun{t: t, d: d, c: c, all: p.IDs}
		if len(logits) == len(p.IDs)*m.Vocab {
			s.logits = logits
		}
		s.prompt(p.Name)
		for i, id := range p.Greedy.IDs {
			got := s.next()
			if p.Greedy.Margin[i] < max(0.01, 2*c.tolerance) {
				break
			}
			if got.id != id || math.Abs(float64(got.score.Logprob)-p.Greedy.Logprob[i]) > 2*c.tolerance || got.score.Rank != 1 ||
				len(got.score.Top) != 3 || got.score.Top[0].ID != id {
				t.Errorf("%s: greedy step %d: %+v, want %d with %g", p.Name, i, got, id, p.Greedy.Logprob[i])
			}
			told++
		}
		told += len(s.logits) / m.Vocab
	}
	if told < 8 {
		t.Errorf("only %d scores were compared", told)
	}
}

// scoredRun is one sequence, with its reference logits if there are any of every position.
type scoredRun struct {
	t      *testing.T
	d      *Device
	c      scoredCase
	all    []int32
	done   int
	logits []float32
	last   *model.Result
	steps  uint64
}

type scoredToken struct {
	id    int32
	score model.Score
}

// prompt computes all but the last token, in chunks of five, and compares the score of each token but the first.
func (s *scoredRun) prompt(name string) {
	s.t.Helper()
	vocab := s.d.decoder.Vocab
	for s.done < len(s.all)-1 {
		n := min(5, len(s.all)-1-s.done)
		row := s.row(s.all[s.done:s.done+n], n)
		row.Scored, row.Next, row.Top = true, s.all[s.done+1:s.done+n+1], 2
		r := s.run(row)
		for i, got := range r.Scores[0] {
			at := s.done + i
			if s.logits == nil {
				continue
			}
			want := logprob(s.logits[at*vocab:(at+1)*vocab], s.all[at+1])
			if math.Abs(float64(got.Logprob)-want) > 2*s.c.tolerance || len(got.Top) != 2 || got.Top[0].Logprob < got.Logprob {
				s.t.Errorf("%s: token %d of the prompt: %+v, want %g", name, at+1, got, want)
			}
		}
		s.done += n
	}
}

// next computes the last token and appends the greedy one.
func (s *scoredRun) next() scoredToken {
	s.t.Helper()
	row := s.row(s.all[s.done:], 1)
	row.Sampling, row.Scored, row.Top = &model.Sampling{}, true, 3
	r := s.run(row)
	s.done++
	s.all = append(s.all[:len(s.all):len(s.all)], r.IDs[0])
	return scoredToken{r.IDs[0], r.Scores[0][0]}
}

// row has the same pages for a block at any length.
func (s *scoredRun) row(tokens []int32, outputs int) model.Row {
	row := model.Row{Tokens: tokens, Start: s.done, Outputs: outputs}
	groups := len(s.d.Layout().Groups)
	for g := range groups {
		var table []kvpool.PageID
		for block := range (s.done+len(tokens)-1)/s.d.cfg.BlockSize + 1 {
			table = append(table, kvpool.PageID(block*groups+g))
		}
		row.Pages = append(row.Pages, table)
	}
	return row
}

func (s *scoredRun) run(row model.Row) *model.Result {
	s.t.Helper()
	s.steps++
	return step(s.t, s.d, &model.Plan{Step: s.steps, Rows: []model.Row{row}})
}

func logprob(logits []float32, id int32) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		top = max(top, float64(x))
	}
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}
