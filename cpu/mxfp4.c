//go:build cgo && amd64

// MXFP4 weights × 16-bit activations: block8.h, with numbers twice those of E2M1, of half the scale. Activations have 16 bits
// although weights have 4: models of this type choose experts by logits that 8 bits would change.
//
// Bytes:    0.53 a weight; activations 2.125 an element.
#define GROUP mxfp4_group
#define SCALE(wb) powers((wb)->e)
#define TABLE 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
#include "vec.h"

// powers is 2^(e − 128) of 8 exponents: half the scale. Those of 0 and 1 are subnormal.
INLINE __m256 powers(const uint8_t *e) {
	const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)e)), one = _mm256_set1_epi32(1);
	const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(x, one), 23);
	const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), x);
	return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(x, one)));
}

#include "block8.h"

PRODUCT8(matmul_mxfp4)

#ifndef VNNI

typedef struct { uint8_t e, q[16]; } block;

INLINE void unit(const block *src, int b, mxfp4_group *dst, int r) {
	(void)b;
	dst->e[r] = src->e;
	pairs(src->q, 16, dst->q, r);
}

PACK8(pack_mxfp4, 32, unit)
GATHER8(gather_mxfp4)

#endif
