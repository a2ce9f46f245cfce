package sampler

import (
	"math"

	"github.com/berthd/berth/model"
)

// NextScored is Next with the score of the chosen token, and the top likeliest, under the logits as given.
func (s *Sampler) NextScored(logits []float32, p *model.Sampling, top int, into *model.Score) (id int32) {
	s.given = append(s.given[:0], logits...)
	if id = s.choose(logits, p); id >= 0 {
		Score(s.given, id, top, into)
	}
	return id
}

// Score says how likely id is by logits, log softmax of one f32 per id, and which top tokens are the likeliest. It uses
// the room that into has.
func Score(logits []float32, id int32, top int, into *model.Score) {
	total := logSumExp(logits)
	into.Logprob = float32(float64(logits[id]) - total)
	into.Rank = 1
	for _, x := range logits {
		if x > logits[id] {
			into.Rank++
		}
	}
	into.Top = likeliest(logits, min(top, len(logits)), into.Top[:0])
	for i := range into.Top {
		into.Top[i].Logprob = float32(float64(into.Top[i].Logprob) - total)
	}
}

// likeliest appends the ids of the n highest logits, with these, to list: the highest first, of equal ones the lower id.
// What comes is nearly always below the last one kept, so that a scan with insertion costs little more than the scan.
func likeliest(logits []float32, n int, list []model.Likely) []model.Likely {
	if n == 0 {
		return list
	}
	least := float32(math.Inf(-1))
	for i, x := range logits {
		if len(list) == n {
			if !(x > least) {
				continue
			}
			list = list[:n-1]
		}
		at := len(list)
		for at > 0 && x > list[at-1].Logprob {
			at--
		}
		list = append(list, model.Likely{})
		copy(list[at+1:], list[at:])
		list[at] = model.Likely{ID: int32(i), Logprob: x}
		least = list[len(list)-1].Logprob
	}
	return list
}
