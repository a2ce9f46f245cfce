//go:build cgo && amd64

// Vector primitives that every kernel shares: integer products, one exponential, one reduction tree. Compiled by target
// attribute, so that nothing else of the program is. -std=c11 turns contraction off: only what is written as an fma is
// one.
//
// Two levels of one arithmetic: AVX2 with FMA and F16C, and the same with the integer products of AVX-512 VNNI on
// 256-bit registers, where a file defines VNNI. Their sums are the same integers, so every result has the same bits.
// EMULATE makes the second level out of the first, for tests on processors that lack it.
#ifndef BERTH_VEC_H
#define BERTH_VEC_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(VNNI) && !defined(EMULATE)
#define TARGET "avx2,fma,f16c,avx512f,avx512vl,avx512vnni"
#else
#define TARGET "avx2,fma,f16c"
#endif
#ifdef VNNI
#define LEVEL(name) name##_vnni
#else
#define LEVEL(name) name##_avx2
#endif
#define KERNEL __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((always_inline, target(TARGET)))
#define UNROLL _Pragma("GCC unroll 16")

// KEEP pins a value in its register at this point: gcc otherwise forms all products of an unrolled block first, and
// spills.
#define KEEP(x) __asm__("" : "+x"(x))

INLINE __m256 halves(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

INLINE __m256 bfloats(const void *p) {
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

// bytes8 is 8 bytes as floats.
INLINE __m256 bytes8(const uint8_t *p) {
	return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

// four repeats the 4 bytes at p in every 32-bit lane.
INLINE __m256i four(const void *p) {
	int32_t v;
	memcpy(&v, p, 4);
	return _mm256_set1_epi32(v);
}

// Sums of products of 32 unsigned bytes q, 32 signed bytes y, as `total` gives them: 8 lanes of 32 bits, each over 4
// columns and all that was added. `first` starts a sum, `more` adds to it; before `total` it may not pass 16 bits.
// pairs2 adds products of 16 pairs of 16 bits to 8 lanes of 32.
#ifndef VNNI
INLINE __m256i first(__m256i q, __m256i y) { return _mm256_maddubs_epi16(q, y); }
INLINE __m256i more(__m256i sum, __m256i q, __m256i y) { return _mm256_add_epi16(sum, first(q, y)); }
INLINE __m256i total(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
INLINE __m256i pairs2(__m256i sum, __m256i x, __m256i y) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y)); }
#else
#ifdef EMULATE
INLINE __m256i dot4(__m256i sum, __m256i q, __m256i y) {
	const __m256i low = _mm256_set1_epi16(255);
	const __m256i even = _mm256_madd_epi16(_mm256_and_si256(q, low), _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8));
	const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(q, 8), _mm256_srai_epi16(y, 8));
	return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
INLINE __m256i pairs2(__m256i sum, __m256i x, __m256i y) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y)); }
#else
INLINE __m256i dot4(__m256i sum, __m256i q, __m256i y) { return _mm256_dpbusd_epi32(sum, q, y); }
INLINE __m256i pairs2(__m256i sum, __m256i x, __m256i y) { return _mm256_dpwssd_epi32(sum, x, y); }
#endif
INLINE __m256i first(__m256i q, __m256i y) { return dot4(_mm256_setzero_si256(), q, y); }
INLINE __m256i more(__m256i sum, __m256i q, __m256i y) { return dot4(sum, q, y); }
INLINE __m256i total(__m256i sum) { return sum; }
#endif

// codes4 is the c-th four of 4-bit codes of 8 rows, as 32 unsigned bytes: nibbles are low for c < 4, then high.
INLINE __m256i codes4(const void *nibbles, const int c) {
	const __m256i q = _mm256_loadu_si256((const __m256i *)nibbles);
	return _mm256_and_si256(c < 4 ? q : _mm256_srli_epi16(q, 4), _mm256_set1_epi8(15));
}

// codes5 is codes4 with a fifth bit: bit c of high.
INLINE __m256i codes5(const void *nibbles, __m256i high, const int c) {
	const __m256i h = c < 4 ? _mm256_slli_epi16(high, 4 - c) : _mm256_srli_epi16(high, c - 4);
	return _mm256_or_si256(codes4(nibbles, c), _mm256_and_si256(h, _mm256_set1_epi8(16)));
}

// tree4 sums four vectors, each by the tree ((x0+x1)+(x2+x3)) + ((x4+x5)+(x6+x7)).
INLINE __m128 tree4(__m256 a, __m256 b, __m256 c, __m256 d) {
	__m256 t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
	return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}

// tree sums one vector by the same tree.
INLINE float tree(__m256 a) { return _mm_cvtss_f32(tree4(a, a, a, a)); }

INLINE float top(__m256 v) {
	__m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	a = _mm_max_ps(a, _mm_movehl_ps(a, a));
	return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

INLINE __m256 magnitude(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

// exponential is e^x to 1-2 ulp for x ≤ 88 and 0 for x < -87 (Cephes expf: x = n ln 2 + r, polynomial of degree 6 in
// r).
INLINE __m256 exponential(__m256 x) {
	const __m256 zero = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_LT_OQ);
	x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.0f)), _mm256_set1_ps(88.0f));
	const int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
	const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), nearest);
	__m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
	__m256 p = _mm256_set1_ps(1.9875691500e-4f);
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
	p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
	p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
	return _mm256_andnot_ps(zero, p);
}

#endif
