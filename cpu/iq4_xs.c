//go:build cgo && amd64

// IQ4_XS weights × 16-bit activations: block8.h, with IQ4_NL's codes. Scales of 32 columns are products of the block's and a
// 6-bit one, which f32 holds.
//
// Bytes:    0.625 a weight; activations 2.125 an element.
#define GROUP iq4_xs_group
#define SCALE(wb) _mm256_loadu_ps((wb)->d)
#define TABLE -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#include "block8.h"

PRODUCT8(matmul_iq4_xs)

#ifndef VNNI

typedef struct { uint16_t d, high; uint8_t low[4], q[128]; } __attribute__((packed)) block;

INLINE void unit(const block *src, int b, iq4_xs_group *dst, int r) {
	const int scale = (src->low[b / 2] >> b % 2 * 4 & 15) | (src->high >> 2 * b & 3) << 4;
	dst->d[r] = _cvtsh_ss(src->d) * (float)(scale - 32);
	pairs(src->q + 16 * b, 16, dst->q, r);
}

PACK8(pack_iq4_xs, 256, unit)
GATHER8(gather_iq4_xs)

#endif
