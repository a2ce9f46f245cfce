//go:build cgo && amd64

// Q4_0 weights × 8-bit activations: block32.h, with c the 4-bit codes less 8.
//
// Layout:   8 rows of a block are one q4_0_group. Nibbles lie in q.
// Bytes:    0.5625 a weight; activations 1.375 an element.
#define GROUP q4_0_group
#define CODES(wb, c) codes4((wb)->q[(c) & 3], c)
#define SCALE(wb) halves((wb)->d)
#define OFFSET 8
#include "block32.h"

BLOCK32(matmul_q4_0)

#ifndef VNNI

typedef struct { uint16_t d; uint8_t q[16]; } __attribute__((packed)) block;

static int code(const block *b, int i) { return i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4; }

#define SCALES(src, dst, r) (dst)->d[r] = (src)->d
#define VALUE(g, r, code) (_cvtsh_ss((g)->d[r]) * (float)((code) - OFFSET))
PACK32(pack_q4_0, gather_q4_0, SCALES, code, PUT4, GET4, VALUE)

#endif
