package sampler

import (
	"math"

	"github.com/berthd/berth/model"
)

// cuts says that p leaves some tokens out.
func cuts(p *model.Sampling) bool {
	return p.MinP > 0 && p.MinP <= 1 || p.TopK > 0 || p.TopP > 0 && p.TopP < 1
}

// cut fills keep with the tokens that may be drawn and their weights: min-p, then top-k, then top-p.
func (s *Sampler) cut(logits []float32, w weights, p *model.Sampling) {
	floor := math.Inf(-1)
	if p.MinP > 0 && p.MinP <= 1 {
		floor = w.floor(float64(p.MinP))
	}
	topK, topP := p.TopK > 0 && p.TopK < len(logits), p.TopP > 0 && p.TopP < 1
	if topK {
		floor = max(floor, float64(s.kthLargest(logits, p.TopK)))
	}
	if !topP {
		s.gather(logits, w, floor)
		return
	}
	if topK || floor > math.Inf(-1) {
		s.cutTail(float64(p.TopP) * s.gather(logits, w, floor))
		return
	}
	// Nearly all weight is close to the highest: so few are sorted, and all of them only when that is not so.
	enough := float64(p.TopP) * s.weigh(logits, w)
	for share := 1e-3; s.gather(logits, w, w.floor(share)) < enough && share > 0; share *= share {
	}
	s.cutTail(enough)
}

// gather keeps the candidates that reach floor, and gives their weight.
func (s *Sampler) gather(logits []float32, w weights, floor float64) (total float64) {
	s.keep = s.keep[:0]
	for i, x := range logits {
		if float64(x) >= floor && x > float32(math.Inf(-1)) {
			c := candidate{id: int32(i), x: x, p: w.of(x)}
			s.keep = append(s.keep, c)
			total += c.p
		}
	}
	return total
}

// cutTail keeps the most likely candidates until they weigh enough, the one that reaches it included.
func (s *Sampler) cutTail(enough float64) {
	s.heapify()
	sum, last := 0.0, candidate{}
	for len(s.heap) > 0 && sum < enough {
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

// kthLargest is the value that k logits reach; 1 ≤ k ≤ len(logits). Equal ones count each for itself; NaN is none.
func (s *Sampler) kthLargest(logits []float32, k int) float32 {
	h := s.most[:0]
	for _, x := range logits {
		switch {
		case x != x:
		case len(h) < k:
			h = append(h, x)
			for i := len(h) - 1; i > 0 && h[i] < h[(i-1)/2]; i = (i - 1) / 2 {
				h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
			}
		case x > h[0]:
			h[0] = x
			sink(h)
		}
	}
	s.most = h
	return h[0]
}

// sink puts the first of a heap, least first, where it belongs.
func sink(h []float32) {
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c] < h[least] {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
