//go:build cgo && amd64

// Q5_1 and Q4_1 weights × 8-bit activations: block32.h, with c the 5-bit codes and a minimum.
//
// Layout:   8 rows of a block are one q5_1_group. Nibbles lie in q, fifth bits in high; those of Q4_1 are 0.
// Bytes:    0.75 a weight; activations 1.375 an element.
#define GROUP q5_1_group
#define CODES(wb, c) codes5((wb)->q[(c) & 3], _mm256_loadu_si256((const __m256i *)(wb)->high), c)
#define SCALE(wb) halves((wb)->d)
#define MINIMUM(wb) halves((wb)->m)
#include "block32.h"

BLOCK32(matmul_q5_1)

#ifndef VNNI

#define SCALES(src, dst, r) (dst)->d[r] = (src)->d, (dst)->m[r] = (src)->m
#define VALUE(g, r, code) (_cvtsh_ss((g)->d[r]) * (float)(code) + _cvtsh_ss((g)->m[r]))

#define block block5
typedef struct { uint16_t d, m; uint8_t high[4]; uint8_t q[16]; } __attribute__((packed)) block5;

static int code5(const block5 *b, int i) {
	return (i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4) | (b->high[i / 8] >> i % 8 & 1) << 4;
}

PACK32(pack_q5_1, gather_q5_1, SCALES, code5, PUT5, GET5, VALUE)

#undef block
#define block block4
typedef struct { uint16_t d, m; uint8_t q[16]; } __attribute__((packed)) block4;

static int code4(const block4 *b, int i) { return i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4; }

PACK32(pack_q4_1, gather_q4_1, SCALES, code4, PUT5, GET5, VALUE)

#endif
