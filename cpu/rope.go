package cpu

import "math"

// rotation writes cos and sin of the angles of one position: scale · pos · base^(−2i/headDim) for pair i, formed in f64
// and rounded once. Both have headDim/2 elements. It depends on the absolute position alone.
func rotation(base, scale float64, headDim int, pos int32, cos, sin []float32) {
	for i := range headDim / 2 {
		angle := scale * float64(pos) * math.Pow(base, -2*float64(i)/float64(headDim))
		s, c := math.Sincos(angle)
		cos[i], sin[i] = float32(c), float32(s)
	}
}
