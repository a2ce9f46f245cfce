package cpu

import (
	"math"

	"github.com/berthd/berth/model"
)

// rotation writes RopeGain times cos and sin of l's angles at one position: RopeScale · pos · RopeBase^(−2i/headDim) / RopeFactors[i]
// for pair i, formed in f64 and rounded once. Both have headDim/2 elements. It depends on the absolute position alone.
func rotation(l *model.Layer, headDim int, pos int32, cos, sin []float32) {
	for i := range headDim / 2 {
		angle := l.RopeScale * float64(pos) * math.Pow(l.RopeBase, -2*float64(i)/float64(headDim))
		if l.RopeFactors != nil {
			angle /= float64(l.RopeFactors[i])
		}
		s, c := math.Sincos(angle)
		cos[i], sin[i] = float32(c*l.RopeGain), float32(s*l.RopeGain)
	}
}
