package sampler

import (
	"math"

	"github.com/berthd/berth/model"
)

// Sampler holds the scratch memory of one sampling thread. It keeps nothing between calls.
type Sampler struct {
	count  []int32     // by id: times seen in the output, valid where stamp matches
	stamp  []uint32    // by id: the call that wrote count
	call   uint32      // number of the current call
	seen   []int32     // ids with a count in this call
	blocks []float64   // by run of blockIDs ids: the sum of their weights
	keep   []candidate // ids that are still in, ascending
	heap   []candidate // the same, as a heap by value, while top-p runs
	most   []float32   // a heap of the highest logits, while top-k runs
	given  []float32   // the logits as given, when a log-probability is asked for
}

type candidate struct {
	id int32
	x  float32 // logit after bias and penalties
	p  float64 // weight: e^((x − highest) / temperature)
}

// New returns a sampler for a vocabulary of the given size.
func New(vocab int) *Sampler {
	return &Sampler{
		count: make([]int32, vocab), stamp: make([]uint32, vocab), blocks: make([]float64, (vocab+blockIDs-1)/blockIDs),
		seen: make([]int32, 0, 1024), keep: make([]candidate, 0, vocab), heap: make([]candidate, 0, vocab),
	}
}

// Next chooses a token from logits, one f32 per id, which it overwrites. The log-probability is that of the chosen id
// under the logits as given, 0 unless p asks for it. p's ids must be inside the vocabulary. The id is −1 if no token can
// be chosen: every one is banned, or the logits are no numbers.
func (s *Sampler) Next(logits []float32, p *model.Sampling) (id int32, logprob float32) {
	if !p.Logprob {
		return s.choose(logits, p), 0
	}
	s.given = append(s.given[:0], logits...)
	if id = s.choose(logits, p); id < 0 {
		return id, 0
	}
	return id, float32(float64(s.given[id]) - logSumExp(s.given))
}

func (s *Sampler) choose(logits []float32, p *model.Sampling) int32 {
	s.shape(logits, p)
	best := argmax(logits)
	switch top := float64(logits[best]); {
	case math.IsNaN(top), math.IsInf(top, 0):
		return -1
	case p.Temperature < model.GreedyBelow:
		return best
	}
	w := weights{top: logits[best], by: 1 / float64(p.Temperature)}
	if cuts(p) {
		s.cut(logits, w, p)
		return s.draw(p.Seed, p.Counter)
	}
	return s.drawAny(logits, w, best, p)
}

// Probs writes the distribution that Next draws from into out, one f64 per id; logits are overwritten.
func (s *Sampler) Probs(logits []float32, p *model.Sampling, out []float64) {
	clear(out)
	s.shape(logits, p)
	best := argmax(logits)
	if p.Temperature < model.GreedyBelow {
		out[best] = 1
		return
	}
	w := weights{top: logits[best], by: 1 / float64(p.Temperature)}
	if !cuts(p) {
		total := s.weigh(logits, w)
		for i, x := range logits {
			out[i] = w.of(x) / total
		}
		return
	}
	s.cut(logits, w, p)
	total := 0.0
	for _, c := range s.keep {
		total += c.p
	}
	for _, c := range s.keep {
		out[c.id] = c.p / total
	}
}

// draw picks a kept candidate by its weight. Candidates stand in ascending id order, so that how they were cut does not
// matter.
func (s *Sampler) draw(seed, counter uint64) int32 {
	total := 0.0
	for _, c := range s.keep {
		total += c.p
	}
	u := uniform(seed, counter) * total
	for _, c := range s.keep {
		if u < c.p {
			return c.id
		}
		u -= c.p
	}
	return s.keep[len(s.keep)-1].id
}

// drawAny picks any token by its weight: the run of ids first, then the id, so that most weights are computed once and
// none is kept. Rounding may leave the last step beyond every id: then it is the highest.
func (s *Sampler) drawAny(logits []float32, w weights, highest int32, p *model.Sampling) int32 {
	u := s.weigh(logits, w) * uniform(p.Seed, p.Counter)
	for b, sum := range s.blocks {
		if u >= sum {
			u -= sum
			continue
		}
		for i := b * blockIDs; i < min((b+1)*blockIDs, len(logits)); i++ {
			weight := w.of(logits[i])
			if u < weight {
				return int32(i)
			}
			u -= weight
		}
	}
	return highest
}

// argmax is the lowest id of the highest logit; a NaN is never higher than what stands before it.
func argmax(x []float32) int32 {
	best, top := 0, x[0]
	for i, v := range x {
		if v > top {
			best, top = i, v
		}
	}
	return int32(best)
}

func logSumExp(x []float32) float64 {
	w, sum := weights{top: x[argmax(x)], by: 1}, 0.0
	for _, v := range x {
		sum += w.of(v)
	}
	return float64(w.top) + math.Log(sum)
}
