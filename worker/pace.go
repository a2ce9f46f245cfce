package worker

import (
	"math"
	"math/bits"

	"github.com/berthd/berth/model"
)

// pace predicts from the steps so far how long a step will take, so that none comes near the step timeout (ADR 0021). It is
// pure: seconds in, tokens out. Text does not depend on chunks (W4), so it may choose any.
//
//	seconds = base + decode × rows of one token + Σ rate(position) × tokens of prompts
//
// A prompt's token costs more the further back attention reads, so there is a rate for each range of positions. Everything
// rises at once to what was measured and falls slowly. Where nothing was measured, the rate is that of the nearest range
// before, doubled with each doubling of the position: attention grows with the position, and the rest does not. A device of
// which nothing is known begins with a few tokens, and a step has at most maxGrowth times the tokens of those before.
type pace struct {
	target float64 // seconds that a step may take by prediction; 0: nothing is bounded
	most   int     // tokens of prompts in a step
	base   float64 // seconds of a step of next to nothing
	rates  [2][ranges]float64
	decode float64 // seconds a row of one token, 0 if unknown
}

const (
	ranges     = 32 // of positions: up to rangeWidth, then each as long as all before it
	rangeWidth = 64
	firstChunk = 4
	maxGrowth  = 4    // times the tokens of the steps before
	forgets    = 0.25 // of the distance to a lower rate, in a step
	// safety is how much of the step timeout a step may take by prediction: a machine may become eight times slower from one
	// step to the next.
	safety = 0.125
	// tolerated is how much of it a step may take before the next one has fewer tokens: the base alone may take as long, and
	// fewer tokens would cost more steps of it.
	tolerated = 0.33
	// least is the part of a step's time that prompts may have whatever else it has.
	least = 0.25
)

func newPace(timeout float64) *pace { return &pace{target: timeout * safety, most: firstChunk} }

// rangeOf is the range of positions that one is in.
func rangeOf(position int) int { return min(bits.Len(uint(position/rangeWidth)), ranges-1) }

// kind is 1 for rows whose tokens are scored: each has logits.
func kind(scored bool) int {
	if scored {
		return 1
	}
	return 0
}

// rate is the seconds that a prompt's token takes at a position, 0 if nothing is known.
func (p *pace) rate(position int, scored bool) float64 {
	rates := &p.rates[kind(scored)]
	at := rangeOf(position)
	for r := at; r >= 0; r-- {
		if rates[r] > 0 {
			known := math.Ldexp(rates[r], at-r)
			for above := at + 1; above < ranges; above++ {
				if rates[above] > 0 {
					return min(known, rates[above])
				}
			}
			return known
		}
	}
	for above := at + 1; above < ranges; above++ {
		if rates[above] > 0 {
			return rates[above]
		}
	}
	if scored {
		return maxGrowth * p.rate(position, false)
	}
	return 0
}

// decodes says that a row is of a branch's last token, and not of its prompt.
func decodes(r *model.Row) bool {
	return len(r.Tokens)-r.Guesses == 1 && r.Outputs > 0 && len(r.Next) == 0
}

// rows is how many of n branches may have a token each in a step.
func (p *pace) rows(n int) int {
	if p.target == 0 || p.decode == 0 {
		return n
	}
	return max(1, int(min(float64(n), p.beside(p.base)/p.decode)))
}

// room is the seconds that a step with so many rows of one token has for prompts.
func (p *pace) room(rows int) float64 {
	if p.target == 0 {
		return math.Inf(1)
	}
	return p.beside(p.base + float64(rows)*p.decode)
}

// beside is what is left of the target, or a part of it where what cannot be smaller takes all.
func (p *pace) beside(seconds float64) float64 { return max(p.target*least, p.target-seconds) }

// fit is how many of n tokens of a prompt from a position on fit into room, and the seconds that they take.
func (p *pace) fit(n, start int, scored bool, room float64) (int, float64) {
	if p.target == 0 {
		return n, 0
	}
	for n = min(n, p.most); n > 0; {
		rate := p.rate(start+n, scored)
		if takes := float64(n) * rate; takes <= room {
			return n, takes
		}
		before := 0 // tokens up to the range before, where each costs less
		if r := rangeOf(start + n); r > 0 {
			before = rangeWidth<<(r-1) - 1 - start
		}
		n = min(n-1, max(int(room/rate), before))
	}
	return 0, 0
}

// learn enters how long a step took. One of a few tokens says what every step costs, and nothing of rates: those fall, so
// that larger steps are tried again.
func (p *pace) learn(rows []model.Row, seconds float64) {
	if p.target == 0 || len(rows) == 0 {
		return
	}
	single, tokens, predicted := 0, 0, 0.0
	for i := range rows {
		if r := &rows[i]; decodes(r) {
			single++
		} else {
			tokens += len(r.Tokens)
			predicted += float64(len(r.Tokens)) * p.rateOf(r)
		}
	}
	small := single+tokens <= firstChunk && seconds <= p.target*tolerated/safety
	switch {
	case small:
		p.base = moved(p.base, seconds)
	default:
		p.base = min(p.base, seconds)
	}
	if tokens > 0 {
		p.learnRates(rows, max(seconds-p.base-float64(single)*p.decode, seconds/2*float64(tokens)/float64(tokens+single)), predicted, small)
		switch {
		case seconds > p.target*tolerated/safety:
			p.most = max(1, int(float64(tokens)*p.target/seconds))
		case seconds > p.target/2: // twice that is still far from the timeout
			p.most = tokens * 2
		default:
			p.most = max(p.most, tokens*maxGrowth)
		}
	} else if !small {
		p.decode = moved(p.decode, max(seconds-p.base, seconds/2)/float64(single))
	}
}

// learnRates enters the seconds that the tokens of prompts took, in proportion to what was predicted of each.
func (p *pace) learnRates(rows []model.Row, seconds, predicted float64, small bool) {
	was, tokens := *p, 0
	for i := range rows {
		if r := &rows[i]; !decodes(r) {
			tokens += len(r.Tokens)
		}
	}
	for i := range rows {
		r := &rows[i]
		if decodes(r) {
			continue
		}
		each := seconds / float64(tokens)
		switch {
		case small:
			each = 0
		case predicted > 0:
			each = was.rateOf(r) * seconds / predicted
		}
		k, at := kind(len(r.Next) > 0), rangeOf(r.Start+len(r.Tokens))
		switch known := was.rates[k][at]; {
		case small && known == 0:
			p.rates[k][at] = moved(was.rateOf(r), 0)
		default:
			p.rates[k][at] = moved(known, each)
		}
	}
}

// rateOf is the rate of a row's tokens.
func (p *pace) rateOf(r *model.Row) float64 { return p.rate(r.Start+len(r.Tokens), len(r.Next) > 0) }

// moved is a rate after a measurement.
func moved(known, measured float64) float64 {
	if known == 0 || measured > known {
		return measured
	}
	return known + (measured-known)*forgets
}
