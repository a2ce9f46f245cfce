package model

import "encoding/binary"

// Super-blocks of 256 share one or two f16 scales; 8 or 16 sub-blocks have integer scales of their own.

// SubScale is the 6-bit scale and minimum of sub-block j of a Q4_K or Q5_K block, from its 12 packed bytes s.
func SubScale(s []byte, j int) (scale, minimum uint8) {
	if j < 4 {
		return s[j] & 63, s[j+4] & 63
	}
	return s[j+4]&15 | s[j-4]>>6<<4, s[j+4]>>4 | s[j]>>6<<4
}

func decodeQ4_K(b []byte, out []float32) {
	d, dmin, qs := half(b), half(b[2:]), b[16:144]
	for j := range 8 {
		sc, mn := SubScale(b[4:16], j)
		scale, minimum := d*float32(sc), dmin*float32(mn)
		for i := range 32 {
			q := qs[j/2*32+i] >> (j % 2 * 4) & 15
			out[j*32+i] = float32(scale*float32(q)) - minimum
		}
	}
}

func decodeQ5_K(b []byte, out []float32) {
	d, dmin, qh, qs := half(b), half(b[2:]), b[16:48], b[48:176]
	for j := range 8 {
		sc, mn := SubScale(b[4:16], j)
		scale, minimum := d*float32(sc), dmin*float32(mn)
		for i := range 32 {
			q := qs[j/2*32+i]>>(j%2*4)&15 | qh[i]>>j&1<<4
			out[j*32+i] = float32(scale*float32(q)) - minimum
		}
	}
}

func decodeQ6_K(b []byte, out []float32) {
	ql, qh, sc, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range 256 {
		// Each half of 128 has 64 bytes of low nibbles and 32 bytes of upper bits: quarter k takes bits 2k.
		h, k, l := i/128, i%128/32, i%32
		low := ql[h*64+k%2*32+l] >> (k / 2 * 4) & 15
		q := int(low|qh[h*32+l]>>(2*k)&3<<4) - 32
		out[i] = float32(d*float32(int8(sc[i/16]))) * float32(q)
	}
}

func decodeQ2_K(b []byte, out []float32) {
	sc, qs, d, dmin := b[:16], b[16:80], half(b[80:]), half(b[82:])
	for i := range 256 {
		h, k, l := i/128, i%128/32, i%32
		s := sc[i/16]
		scale, minimum := d*float32(s&15), dmin*float32(s>>4)
		out[i] = float32(scale*float32(qs[h*32+l]>>(2*k)&3)) - minimum
	}
}

func decodeQ3_K(b []byte, out []float32) {
	mask, qs, packed, d := b[:32], b[32:96], b[96:108], half(b[108:])
	for i := range 256 {
		h, k, l := i/128, i%128/32, i%32
		// 6-bit scales: low nibbles in bytes 0–7, two upper bits in bytes 8–11.
		s := i / 16
		scale := int(packed[s%8]>>(s/8*4)&15|packed[8+s%4]>>(s/4*2)&3<<4) - 32
		q := int(qs[h*32+l] >> (2 * k) & 3)
		if mask[l]>>(h*4+k)&1 == 0 {
			q -= 4
		}
		out[i] = float32(d*float32(scale)) * float32(q)
	}
}

func decodeIQ4XS(b []byte, out []float32) {
	d, high, low, qs := half(b), binary.LittleEndian.Uint16(b[2:]), b[4:8], b[8:136]
	for j := range 8 {
		scale := int(low[j/2]>>(j%2*4)&15|uint8(high>>(2*j)&3)<<4) - 32
		f := d * float32(scale)
		for i := range 16 {
			q := qs[j*16+i]
			out[j*32+i] = f * float32(codes4[q&15])
			out[j*32+i+16] = f * float32(codes4[q>>4])
		}
	}
}
