package model

import "math"

// HalfToFloat is the f32 value of an IEEE 754 binary16 number, exactly.
func HalfToFloat(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp, frac := uint32(h>>10&31), uint32(h&1023)
	switch exp {
	case 0: // zero and subnormals: frac × 2^−24
		x := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(x) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// FloatToHalf rounds to binary16, ties to even, as VCVTPS2PH does; what is too large becomes infinite.
func FloatToHalf(x float32) uint16 {
	b := math.Float32bits(x)
	sign, mag := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case mag > 0x7f800000: // NaN keeps its top bits and is made quiet
		return sign | 0x7e00 | uint16(mag>>13&0x3ff)
	case mag >= 0x477ff000: // ≥ 65520
		return sign | 0x7c00
	case mag < 0x38800000: // below 2^−14: subnormal; adding 0.5 puts the last kept bit at the end of the fraction
		return sign | uint16(math.Float32bits(math.Float32frombits(mag)+0.5)-0x3f000000)
	}
	mag += 0xfff + mag>>13&1
	return sign | uint16((mag-0x38000000)>>13)
}

// bfloatToFloat is the f32 whose upper half is h.
func bfloatToFloat(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
