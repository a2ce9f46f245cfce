//go:build cgo && amd64

// IQ4_NL weights × 16-bit activations: block8.h.
//
// Bytes:    0.5625 a weight; activations 2.125 an element.
#define GROUP iq4_nl_group
#define SCALE(wb) halves((wb)->d)
#define TABLE -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#include "block8.h"

PRODUCT8(matmul_iq4_nl)

#ifndef VNNI

typedef struct { uint16_t d; uint8_t q[16]; } __attribute__((packed)) block;

INLINE void unit(const block *src, int b, iq4_nl_group *dst, int r) {
	(void)b;
	dst->d[r] = src->d;
	pairs(src->q, 16, dst->q, r);
}

PACK8(pack_iq4_nl, 32, unit)
GATHER8(gather_iq4_nl)

#endif
