package sampler

import "math"

// weights is how logits become weights: e^((x − top) · by), 1 for the highest.
type weights struct {
	top float32
	by  float64 // 1 / temperature
}

// of is the weight of a logit that is at most top; 0 for −∞ and NaN. 2^(k/64) is from a table, the rest a cubic: within
// 10^−10 of the exponential, in a fraction of its time.
func (w weights) of(x float32) float64 {
	d := float64(x-w.top) * w.by
	if !(d > -700) {
		return 0
	}
	k := int(d*(64/math.Ln2) - 0.5)
	r := d - float64(k)*(math.Ln2/64)
	power := math.Float64frombits(math.Float64bits(powers[k&63]) + uint64(k>>6)<<52)
	return power * (1 + r*(1+r*(0.5+r*(1.0/6))))
}

// floor is the least logit whose weight is a share; −∞ for none.
func (w weights) floor(share float64) float64 { return float64(w.top) + math.Log(share)/w.by }

// powers are 2^(k/64).
var powers = func() (p [64]float64) {
	for k := range p {
		p[k] = math.Exp2(float64(k) / 64)
	}
	return p
}()

// blockIDs is how many ids share a sum.
const blockIDs = 512

// weigh sums the weights of all logits, by block and in all.
func (s *Sampler) weigh(logits []float32, w weights) (total float64) {
	for b := range s.blocks {
		sum := 0.0
		for _, x := range logits[b*blockIDs : min((b+1)*blockIDs, len(logits))] {
			sum += w.of(x)
		}
		s.blocks[b] = sum
		total += sum
	}
	return total
}
