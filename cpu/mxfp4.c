//go:build cgo && amd64

// MXFP4 weights × 8-bit activations: block32.h, with c twice the E2M1 values plus 12, 0–24, of half the scale.
//
// Layout:   8 rows of a block are one mxfp4_group. Nibbles lie in q as stored and are looked up; scales are exponents.
// Bytes:    0.53 a weight; activations 1.375 an element.
#define GROUP mxfp4_group
#define CODES(wb, c) _mm256_shuffle_epi8(doubled(), codes4((wb)->q[(c) & 3], c))
#define SCALE(wb) powers((wb)->e)
#define OFFSET 12
#include "vec.h"

// doubled is twice the values of 4-bit codes, plus 12.
INLINE __m256i doubled(void) {
	return _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

// powers is 2^(e − 128) of 8 exponents: half the scale. Those of 0 and 1 are subnormal.
INLINE __m256 powers(const uint8_t *e) {
	const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)e)), one = _mm256_set1_epi32(1);
	const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(x, one), 23);
	const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), x);
	return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(x, one)));
}

#include "block32.h"

BLOCK32(matmul_mxfp4)

#ifndef VNNI

typedef struct { uint8_t e, q[16]; } block;

static int code(const block *b, int i) { return i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4; }

INLINE float value(const mxfp4_group *g, int r, int code) {
	static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
	float power[8];
	_mm256_storeu_ps(power, powers(g->e));
	return power[r] * (float)twice[code];
}

#define SCALES(src, dst, r) (dst)->e[r] = (src)->e
PACK32(pack_mxfp4, gather_mxfp4, SCALES, code, PUT4, GET4, value)

#endif
