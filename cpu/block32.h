//go:build cgo && amd64

// Weights in blocks of 32 with codes of up to 5 bits × 8-bit activations: what their types share. A file of a type defines
//
//	GROUP         8 rows of a block; columns lie in fours
//	CODES(wb, c)  the c-th four of 8 rows as 32 unsigned bytes, 0–31
//	SCALE(wb)     8 scales
//	OFFSET        what is taken off every code; or MINIMUM(wb), 8 numbers that are added to every value
//
// Maths:    y = Σ_b d_w[b] · d_a[b] · (Σ_i c[b,i] · q_a[b,i] − OFFSET Σ_i q_a[b,i]), blocks of 32 columns; with minima
//           y = Σ_b d_w[b] · d_a[b] · (Σ_i c[b,i] · q_a[b,i]) + m_w[b] · d_a[b] · Σ_i q_a[b,i].
// Numerics: four fours of products stay within 16 bits (16 · 31 · 127 / 2 lanes < 2^15), so the sum is exact; Σ q_a
//           comes with the activations. Then one multiply and one fma a block, two with minima, blocks ascending.
#ifndef BERTH_BLOCK32_H
#define BERTH_BLOCK32_H

#include "wide.h"

#define GROUP_BYTES(cols) ((size_t)(cols) / 32 * sizeof(GROUP))

#ifdef MINIMUM
#define OFFSET 0
#define LEAST(m, dsum, sum) _mm256_fmadd_ps(m, dsum, sum)
#else
#define MINIMUM(wb) _mm256_setzero_ps()
#define LEAST(m, dsum, sum) ((void)(m), (sum))
#endif

// taken is what the offset takes off a token's sum.
INLINE __m256i taken(const act_i8 *x) {
	if (OFFSET == 0) return _mm256_setzero_si256();
	return _mm256_madd_epi16(four(x->sum), _mm256_set1_epi16(-OFFSET));
}

INLINE void tile(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, float *out,
	size_t ld, int cols) {
	float f[4][8][8] __attribute__((aligned(32)));
	const act_i8 *x[8];
	UNROLL for (int m = 0; m < M; m++) {
		x[m] = (const act_i8 *)(a + m * stride);
		UNROLL for (int g = 0; g < G; g++) _mm256_store_ps(f[g][m], _mm256_setzero_ps());
	}
	const size_t ahead = AHEAD(G, size);
	for (int b = 0; b < cols / 32; b++) {
		UNROLL for (int g = 0; g < G; g++) {
			const GROUP *wb = (const GROUP *)(w + g * size) + b;
			ASK(wb, sizeof *wb, ahead);
			const __m256 d = SCALE(wb), least = MINIMUM(wb);
			__m256i sum[8];
			UNROLL for (int half = 0; half < 2; half++) {
				__m256i t[8];
				UNROLL for (int c = 0; c < 4; c++) {
					const __m256i q = CODES(wb, half * 4 + c);
					UNROLL for (int m = 0; m < M; m++) {
						const __m256i y = four(x[m][b].q + half * 16 + c * 4);
						t[m] = c ? more(t[m], q, y) : first(q, y);
						KEEP(t[m]);
					}
				}
				UNROLL for (int m = 0; m < M; m++) {
					const __m256i before = half ? sum[m] : taken(x[m] + b);
					sum[m] = _mm256_add_epi32(total(t[m]), before);
				}
			}
			UNROLL for (int m = 0; m < M; m++) {
				const __m256 v = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(x[m][b].d), d), _mm256_cvtepi32_ps(sum[m]),
					_mm256_load_ps(f[g][m]));
				_mm256_store_ps(f[g][m], LEAST(least, _mm256_set1_ps(x[m][b].dsum), v));
			}
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, _mm256_load_ps(f[g][m]));
}

static matmul narrow;
MATMUL(narrow, tile, GROUP_BYTES, 8, 4, 2, 1)

INLINE void unpack(const char *w, int lo, int hi, plain_block *out) {
	for (const GROUP *wb = (const GROUP *)w + lo; lo < hi; lo++, wb++, out++) {
		UNROLL for (int c = 0; c < 8; c++) _mm256_storeu_si256((__m256i *)out->q[c], CODES(wb, c));
		_mm256_storeu_ps(out->d, SCALE(wb));
		_mm256_storeu_ps(out->m, MINIMUM(wb));
	}
}

INLINE void wide(const int G, const int M, const plain_block (*slab)[SLAB], int blocks, const char *a, size_t stride,
	sums *sum) {
	__m256i s[WIDE_M][2];
	const act_i8 *x[WIDE_M];
	UNROLL for (int m = 0; m < M; m++) x[m] = (const act_i8 *)(a + m * stride);
	for (int b = 0; b < blocks; b++) {
		__m256i t[2][WIDE_M];
		FOURS(0, 4)
		UNROLL for (int m = 0; m < M; m++) {
			const __m256i o = taken(x[m] + b);
			UNROLL for (int g = 0; g < G; g++) s[m][g] = _mm256_add_epi32(total(t[g][m]), o);
		}
		FOURS(4, 4)
		UNROLL for (int m = 0; m < M; m++) {
			const __m256 d = _mm256_set1_ps(x[m][b].d);
			UNROLL for (int g = 0; g < G; g++) {
				const __m256 v = _mm256_cvtepi32_ps(_mm256_add_epi32(total(t[g][m]), s[m][g]));
				const __m256 k = _mm256_mul_ps(d, _mm256_loadu_ps(slab[g][b].d));
				const __m256 f = _mm256_fmadd_ps(k, v, _mm256_loadu_ps(sum[m][g]));
				_mm256_storeu_ps(sum[m][g], LEAST(_mm256_loadu_ps(slab[g][b].m), _mm256_set1_ps(x[m][b].dsum), f));
			}
		}
	}
}

// BLOCK32 defines the product of a type.
#define BLOCK32(NAME) WIDE(LEVEL(NAME), narrow, unpack, wide, emit, act_i8, GROUP_BYTES)

// PACK32 defines PACK and GATHER from the stored block; SCALES(src, dst, r), which copies scales; CODE(src, i), the
// i-th code; PUT(dst, i, at, code), which stores it in byte `at` of its four; GET(group, i, at), which reads it; and
// VALUE(group, r, code), its value in row r.
#define PACK32(PACK, GATHER, SCALES, CODE, PUT, GET, VALUE) \
	void PACK(const void *rows, size_t row_bytes, int n, void *group, int cols) { \
		memset(group, 0, GROUP_BYTES(cols)); \
		for (int r = 0; r < n; r++) { \
			const block *src = (const block *)((const char *)rows + r * row_bytes); \
			GROUP *dst = group; \
			for (int b = 0; b < cols / 32; b++) { \
				SCALES(src + b, dst + b, r); \
				for (int i = 0; i < 32; i++) PUT(dst + b, i, r * 4 + i % 4, CODE(src + b, i)); \
			} \
		} \
	} \
	KERNEL void GATHER(const void *w, int cols, int r, float scale, float *out) { \
		const GROUP *g = (const GROUP *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols)); \
		for (int i = 0; i < cols; i++) \
			out[i] = VALUE(g + i / 32, r % 8, GET(g + i / 32, i % 32, r % 8 * 4 + i % 4)) * scale; \
	}

// Nibbles of fours 0–3 are the low ones of q[0..3], those of fours 4–7 the high ones.
#define PUT4(dst, i, at, code) (dst)->q[(i) / 4 & 3][at] |= (uint8_t)(((code) & 15) << ((i) < 16 ? 0 : 4))
#define GET4(g, i, at) ((g)->q[(i) / 4 & 3][at] >> ((i) < 16 ? 0 : 4) & 15)
// The fifth bit of four k is bit k of high.
#define PUT5(dst, i, at, code) PUT4(dst, i, at, code), (dst)->high[at] |= (uint8_t)(((code) >> 4) << (i) / 4)
#define GET5(g, i, at) (GET4(g, i, at) | ((g)->high[at] >> (i) / 4 & 1) << 4)

#endif
