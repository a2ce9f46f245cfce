package sampler

import (
	"math"

	"github.com/berthd/berth/model"
)

// GreedyBelow is the temperature under which sampling is greedy.
const GreedyBelow = 1e-5

// Sampler holds the scratch memory of one sampling thread. It keeps nothing between calls.
type Sampler struct {
	count []int32     // by id: times seen in the output, valid where stamp matches
	stamp []uint32    // by id: the call that wrote count
	call  uint32      // number of the current call
	seen  []int32     // ids with a count in this call
	keep  []candidate // ids that are still in, ascending
	heap  []candidate // the same, as a heap by value, while top-k and top-p run
	given []float32   // the logits as given, when a log-probability is asked for
}

type candidate struct {
	id int32
	x  float32 // logit after bias, penalties and temperature
	p  float64 // probability, unnormalised
}

// New returns a sampler for a vocabulary of the given size.
func New(vocab int) *Sampler {
	return &Sampler{
		count: make([]int32, vocab), stamp: make([]uint32, vocab),
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
	case p.Temperature < GreedyBelow:
		return best
	}
	s.cut(logits, p)
	return s.draw(p.Seed, p.Counter)
}

// Probs writes the distribution that Next draws from into out, one f64 per id; logits are overwritten.
func (s *Sampler) Probs(logits []float32, p *model.Sampling, out []float64) {
	clear(out)
	s.shape(logits, p)
	if p.Temperature < GreedyBelow {
		out[argmax(logits)] = 1
		return
	}
	s.cut(logits, p)
	total := 0.0
	for _, c := range s.keep {
		total += c.p
	}
	for _, c := range s.keep {
		out[c.id] = c.p / total
	}
}

// cut fills keep with the tokens that may be drawn and their weights: min-p, then top-k, then top-p.
func (s *Sampler) cut(logits []float32, p *model.Sampling) {
	top := logits[argmax(logits)]
	floor := float32(math.Inf(-1))
	if p.MinP > 0 && p.MinP <= 1 {
		floor = top + float32(math.Log(float64(p.MinP)))
	}
	s.keep = s.keep[:0]
	for i, x := range logits {
		if x >= floor && !math.IsInf(float64(x), -1) {
			s.keep = append(s.keep, candidate{id: int32(i), x: x})
		}
	}
	topK, topP := p.TopK > 0 && p.TopK < len(s.keep), p.TopP > 0 && p.TopP < 1
	if topK {
		s.keepFrom(s.kthLargest(p.TopK))
	}
	for i := range s.keep {
		s.keep[i].p = math.Exp(float64(s.keep[i].x - top))
	}
	if topP {
		s.cutTail(float64(p.TopP))
	}
}

// keepFrom drops candidates below x; those equal to it stay.
func (s *Sampler) keepFrom(x float32) {
	n := 0
	for _, c := range s.keep {
		if c.x >= x {
			s.keep[n] = c
			n++
		}
	}
	s.keep = s.keep[:n]
}

// cutTail keeps the most likely candidates until they hold the share topP, the one that reaches it included.
func (s *Sampler) cutTail(topP float64) {
	total := 0.0
	for _, c := range s.keep {
		total += c.p
	}
	s.heapify()
	sum, last := 0.0, candidate{}
	for len(s.heap) > 0 && sum < topP*total {
		last = s.pop()
		sum += last.p
	}
	n := 0
	for _, c := range s.keep {
		if !less(c, last) {
			s.keep[n] = c
			n++
		}
	}
	s.keep = s.keep[:n]
}

// draw picks a candidate by its weight. Candidates stand in ascending id order, so that how they were cut does not matter.
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

// argmax is the lowest id of the highest logit; a NaN is never higher than what stands before it.
func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

func logSumExp(x []float32) float64 {
	top, sum := float64(x[argmax(x)]), 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum)
}
