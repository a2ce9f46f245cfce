//go:build cgo && amd64

// Q5_0 weights × 8-bit activations: block32.h, with c the 5-bit codes less 16.
//
// Layout:   8 rows of a block are one q5_0_group. Nibbles lie in q, fifth bits in high.
// Bytes:    0.6875 a weight; activations 1.375 an element.
#define GROUP q5_0_group
#define CODES(wb, c) codes5((wb)->q[(c) & 3], _mm256_loadu_si256((const __m256i *)(wb)->high), c)
#define SCALE(wb) halves((wb)->d)
#define OFFSET 16
#include "block32.h"

BLOCK32(matmul_q5_0)

#ifndef VNNI

typedef struct { uint16_t d; uint8_t high[4]; uint8_t q[16]; } __attribute__((packed)) block;

static int code(const block *b, int i) {
	return (i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4) | (b->high[i / 8] >> i % 8 & 1) << 4;
}

#define SCALES(src, dst, r) (dst)->d[r] = (src)->d
#define VALUE(g, r, code) (_cvtsh_ss((g)->d[r]) * (float)((code) - OFFSET))
PACK32(pack_q5_0, gather_q5_0, SCALES, code, PUT5, GET5, VALUE)

#endif
