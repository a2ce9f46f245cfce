//go:build cgo && amd64

// Q8_0 weights × 16-bit activations: block8.h.
//
// Bytes:    1.0625 a weight; activations 2.125 an element.
#define GROUP q8_0_group
#define SCALE(wb) halves((wb)->d)
#include "block8.h"

PRODUCT8(matmul_q8_0)

#ifndef VNNI

typedef struct { uint16_t d; int8_t q[32]; } __attribute__((packed)) block;

INLINE void unit(const block *src, int b, q8_0_group *dst, int r) {
	(void)b;
	dst->d[r] = src->d;
	pairs(src->q, 32, dst->q, r);
}

PACK8(pack_q8_0, 32, unit)
GATHER8(gather_q8_0)

#endif
