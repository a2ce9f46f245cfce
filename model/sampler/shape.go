package sampler

import (
	"math"

	"github.com/berthd/berth/model"
)

// shape applies bias, penalties, bans and mask to logits in place.
func (s *Sampler) shape(logits []float32, p *model.Sampling) {
	inf := float32(math.Inf(-1))
	for _, b := range p.LogitBias {
		logits[b.ID] += b.Value
	}
	s.penalise(logits, p)
	for _, id := range p.Banned {
		logits[id] = inf
	}
	if p.Mask != nil {
		for i := range logits {
			if p.Mask[i/64]&(1<<(i%64)) == 0 {
				logits[i] = inf
			}
		}
	}
}

// penalise applies the repetition penalty once to each distinct id of prompt or output, and the frequency and presence
// penalties to those of the output.
func (s *Sampler) penalise(logits []float32, p *model.Sampling) {
	repetition := p.RepetitionPenalty
	if repetition == 0 {
		repetition = 1
	}
	if repetition == 1 && p.FrequencyPenalty == 0 && p.PresencePenalty == 0 {
		return
	}
	s.tally(p)
	for _, id := range s.seen {
		x, n := logits[id], s.count[id]
		if x > 0 {
			x /= repetition
		} else {
			x *= repetition
		}
		if n > 0 {
			x -= p.FrequencyPenalty * float32(n)
			x -= p.PresencePenalty
		}
		logits[id] = x
	}
}

// tally counts the ids of the branch: seen holds each distinct one, count how often it stands in the output.
func (s *Sampler) tally(p *model.Sampling) {
	s.call++
	if s.call == 0 {
		clear(s.stamp)
		s.call = 1
	}
	s.seen = s.seen[:0]
	for _, id := range p.Prompt {
		s.mark(id)
	}
	for _, id := range p.Output {
		s.mark(id)
		s.count[id]++
	}
}

func (s *Sampler) mark(id int32) {
	if s.stamp[id] != s.call {
		s.stamp[id], s.count[id] = s.call, 0
		s.seen = append(s.seen, id)
	}
}

// uniform is a number in [0, 1) that depends on seed and counter alone: two rounds of the SplitMix64 finaliser
// (Steele, Lea, Flood 2014) over their combination.
func uniform(seed, counter uint64) float64 {
	x := mix(seed + 0x9e3779b97f4a7c15)
	x = mix(x ^ mix(counter+0xd1b54a32d192ed03))
	return float64(x>>11) / (1 << 53)
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
