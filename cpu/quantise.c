//go:build cgo && amd64

// Activations f32 → integers, with a scale for each block of 32.
//
// Maths:    d = max|x| / top, q = round(x / d), ties to even, top = 32767 or 127; a block below 2^−100 is all zero.
// Numerics: maxima and integer sums have no order; a block depends on its own elements alone.
// Bytes:    reads 4 an element, writes 2.125 or 1.375.
#include "kernels.h"
#include "vec.h"

INLINE float top32(const float *x) {
	__m256 m = magnitude(_mm256_loadu_ps(x));
	UNROLL for (int i = 8; i < 32; i += 8) m = _mm256_max_ps(m, magnitude(_mm256_loadu_ps(x + i)));
	return top(m);
}

// step is d for a maximum; inverse is 1/d, both 0 for a block that is too small to divide by.
INLINE float step(float max, float range, float *inverse) {
	const float d = max < 0x1p-100f ? 0 : max / range;
	*inverse = d > 0 ? 1 / d : 0;
	return d;
}

INLINE __m256i rounded(const float *x, float inverse) {
	return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_set1_ps(inverse), _mm256_loadu_ps(x)));
}

// bytes32 is 32 elements as int8.
INLINE __m256i bytes32(const float *x, float inverse) {
	const __m256i ab = _mm256_packs_epi32(rounded(x, inverse), rounded(x + 8, inverse));
	const __m256i cd = _mm256_packs_epi32(rounded(x + 16, inverse), rounded(x + 24, inverse));
	return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// sums adds the first and the last 16 of 32 bytes: sum in lanes 0 and 4.
INLINE __m256i sums(__m256i q) {
	__m256i s = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
	s = _mm256_hadd_epi32(s, s);
	return _mm256_hadd_epi32(s, s);
}

KERNEL void quantise_i16(const float *x, void *out, int cols) {
	act_i16 *o = out;
	for (int b = 0; b < cols / 32; b++, x += 32) {
		float inverse;
		o[b].d = step(top32(x), 32767, &inverse);
		UNROLL for (int i = 0; i < 32; i += 16) {
			const __m256i p = _mm256_packs_epi32(rounded(x + i, inverse), rounded(x + i + 8, inverse));
			_mm256_storeu_si256((__m256i *)(o[b].q + i), _mm256_permute4x64_epi64(p, 0xd8));
		}
	}
}

// quantise_i8 keeps sums beside the codes: weights with unsigned codes or a minimum need them.
KERNEL void quantise_i8(const float *x, void *out, int cols) {
	act_i8 *o = out;
	for (int b = 0; b < cols / 32; b++, x += 32) {
		float inverse;
		o[b].d = step(top32(x), 127, &inverse);
		const __m256i q = bytes32(x, inverse), s = sums(q);
		const int s0 = _mm256_extract_epi32(s, 0), s1 = _mm256_extract_epi32(s, 4);
		_mm256_storeu_si256((__m256i *)o[b].q, q);
		o[b].sum[0] = (int16_t)s0;
		o[b].sum[1] = (int16_t)s1;
		o[b].dsum = o[b].d * (float)(s0 + s1);
	}
}
