package model

import (
	"encoding/binary"
	"math"
)

// Dequantise writes the f32 values of whole stored blocks; len(out) is the elements of raw. Products are formed in the
// order of the gguf package's numpy code (scale · sub-scale, · code, − minimum), each rounded to f32, so that the
// values are its values bit for bit.
func Dequantise(t Type, raw []byte, out []float32) {
	elements, bytes := t.Block()
	decode := decoderOf(t)
	for len(raw) >= bytes {
		decode(raw[:bytes], out[:elements])
		raw, out = raw[bytes:], out[elements:]
	}
}

// decoderOf is the function for one block of t.
func decoderOf(t Type) func(b []byte, out []float32) {
	switch t {
	case F32:
		return func(b []byte, out []float32) { out[0] = math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	case F16:
		return func(b []byte, out []float32) { out[0] = half(b) }
	case BF16:
		return func(b []byte, out []float32) { out[0] = bfloatToFloat(binary.LittleEndian.Uint16(b)) }
	case Q4_0:
		return decodeQ4_0
	case Q4_1:
		return decodeQ4_1
	case Q5_0:
		return decodeQ5_0
	case Q5_1:
		return decodeQ5_1
	case Q8_0:
		return decodeQ8_0
	case Q2_K:
		return decodeQ2_K
	case Q3_K:
		return decodeQ3_K
	case Q4_K:
		return decodeQ4_K
	case Q5_K:
		return decodeQ5_K
	case Q6_K:
		return decodeQ6_K
	case IQ4NL:
		return decodeIQ4NL
	case IQ4XS:
		return decodeIQ4XS
	case MXFP4:
		return decodeMXFP4
	}
	panic("dequantise: the reader lets no other type through")
}

func half(b []byte) float32 { return HalfToFloat(binary.LittleEndian.Uint16(b)) }

// Blocks of 32: a scale d, for _1 a minimum m, and 4-bit codes whose low nibbles are elements 0–15 and high nibbles
// 16–31. 5-bit formats keep the fifth bit of element i in bit i of a word.

func decodeQ4_0(b []byte, out []float32) {
	d := half(b)
	for i, q := range b[2:18] {
		out[i] = d * float32(int(q&15)-8)
		out[i+16] = d * float32(int(q>>4)-8)
	}
}

func decodeQ4_1(b []byte, out []float32) {
	d, m := half(b), half(b[2:])
	for i, q := range b[4:20] {
		out[i] = float32(d*float32(q&15)) + m
		out[i+16] = float32(d*float32(q>>4)) + m
	}
}

func decodeQ5_0(b []byte, out []float32) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for i, q := range b[6:22] {
		out[i] = d * float32(int(q&15|uint8(high>>i&1)<<4)-16)
		out[i+16] = d * float32(int(q>>4|uint8(high>>(i+16)&1)<<4)-16)
	}
}

func decodeQ5_1(b []byte, out []float32) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i, q := range b[8:24] {
		out[i] = float32(d*float32(q&15|uint8(high>>i&1)<<4)) + m
		out[i+16] = float32(d*float32(q>>4|uint8(high>>(i+16)&1)<<4)) + m
	}
}

func decodeQ8_0(b []byte, out []float32) {
	d := half(b)
	for i, q := range b[2:34] {
		out[i] = d * float32(int8(q))
	}
}

// codes4 are the values of IQ4_NL's and IQ4_XS's 4-bit codes, codesE2M1 twice those of MXFP4's.
var (
	codes4    = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	codesE2M1 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

func decodeIQ4NL(b []byte, out []float32) {
	d := half(b)
	for i, q := range b[2:18] {
		out[i] = d * float32(codes4[q&15])
		out[i+16] = d * float32(codes4[q>>4])
	}
}

func decodeMXFP4(b []byte, out []float32) {
	// The exponent's value is halved, since the table's is doubled; 0 and 1 are subnormal.
	bits := uint32(0x00200000) << b[0]
	if b[0] >= 2 {
		bits = uint32(b[0]-1) << 23
	}
	d := math.Float32frombits(bits)
	for i, q := range b[1:17] {
		out[i] = d * float32(codesE2M1[q&15])
		out[i+16] = d * float32(codesE2M1[q>>4])
	}
}
