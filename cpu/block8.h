//go:build cgo && amd64

// Weights in blocks of 32 whose numbers have 8 bits × 16-bit activations: what their types share. A file of a type defines
//
//	GROUP       8 rows of a block; columns lie in pairs, so that a pair of all rows is 16 bytes
//	SCALE(wb)   8 scales
//	TABLE       the numbers that its 4-bit codes stand for, if it has codes: pairs 0–7 are low nibbles, pairs 8–15 high
//
// Maths:    y = Σ_b d_w[b] · d_a[b] · (Σ_i q_w[b,i] · q_a[b,i]), b over blocks of 32 columns. A pair of numbers is widened
//           once to 16 bits and multiplied by a token's pair, repeated in all lanes.
// Numerics: |Σ_i| ≤ 32 · 128 · 32767 < 2^27: exact in 32 bits. Then one multiply and one fma a block, blocks ascending.
#ifndef BERTH_BLOCK8_H
#define BERTH_BLOCK8_H

#include "matmul.h"

#define GROUP_BYTES(cols) ((size_t)(cols) / 32 * sizeof(GROUP))

// NUMBERS is pair c of 8 rows.
#ifdef TABLE
#define NUMBERS(wb, c) looked_up((wb)->q[(c) & 7], c)
INLINE __m128i looked_up(const void *p, const int c) {
	const __m128i q = _mm_loadu_si128((const __m128i *)p);
	const __m128i code = _mm_and_si128(c < 8 ? q : _mm_srli_epi16(q, 4), _mm_set1_epi8(15));
	return _mm_shuffle_epi8(_mm_setr_epi8(TABLE), code);
}
#else
#define NUMBERS(wb, c) _mm_loadu_si128((const __m128i *)(wb)->q[c])
#endif

INLINE void tile(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, float *out,
	size_t ld, int cols) {
	__m256 f[4][6];
	const act_i16 *x[6];
	UNROLL for (int m = 0; m < M; m++) {
		x[m] = (const act_i16 *)(a + m * stride);
		UNROLL for (int g = 0; g < G; g++) f[g][m] = _mm256_setzero_ps();
	}
	const size_t ahead = AHEAD(G, size);
	for (int b = 0; b < cols / 32; b++) {
		const GROUP *wb[4];
		__m256i s[4][6];
		UNROLL for (int g = 0; g < G; g++) {
			wb[g] = (const GROUP *)(w + g * size) + b;
			ASK(wb[g], sizeof *wb[g], ahead);
		}
		UNROLL for (int c = 0; c < 16; c++) {
			__m256i q[4];
			UNROLL for (int g = 0; g < G; g++) q[g] = _mm256_cvtepi8_epi16(NUMBERS(wb[g], c));
			UNROLL for (int m = 0; m < M; m++) {
				const __m256i y = four(x[m][b].q + 2 * c);
				UNROLL for (int g = 0; g < G; g++) {
					s[g][m] = c ? pairs2(s[g][m], q[g], y) : _mm256_madd_epi16(q[g], y);
					KEEP(s[g][m]);
				}
			}
		}
		UNROLL for (int g = 0; g < G; g++) {
			const __m256 d = SCALE(wb[g]);
			UNROLL for (int m = 0; m < M; m++)
				f[g][m] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(x[m][b].d), d), _mm256_cvtepi32_ps(s[g][m]), f[g][m]);
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, f[g][m]);
}

// PRODUCT8 defines the product of a type, and GATHER8 what reads a row back.
#define PRODUCT8(NAME) MATMUL(LEVEL(NAME), tile, GROUP_BYTES, 5, 4, 2, 2)
#define GATHER8(NAME) \
	KERNEL void NAME(const void *w, int cols, int r, float scale, float *out) { \
		const GROUP *g = (const GROUP *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols)); \
		for (int b = 0; b < cols / 32; b++, g++) { \
			float d[8]; \
			int8_t q[8][2]; \
			_mm256_storeu_ps(d, SCALE(g)); \
			UNROLL for (int c = 0; c < 16; c++) { \
				_mm_storeu_si128((__m128i *)q, NUMBERS(g, c)); \
				for (int i = 0; i < 2; i++) out[b * 32 + 2 * c + i] = d[r % 8] * (float)q[r % 8][i] * scale; \
			} \
		} \
	}

// PACK8 defines PACK from the stored block of `size` columns and UNIT(src, b, dst, r), which copies the b-th 32 columns.
#define PACK8(PACK, size, UNIT) \
	KERNEL void PACK(const void *rows, size_t row_bytes, int n, void *group, int cols) { \
		memset(group, 0, GROUP_BYTES(cols)); \
		for (int r = 0; r < n; r++) { \
			const block *src = (const block *)((const char *)rows + r * row_bytes); \
			GROUP *dst = group; \
			for (int b = 0; b < cols / 32; b++) UNIT(src + b / ((size) / 32), b % ((size) / 32), dst + b, r); \
		} \
	}

// pairs copies n bytes of stored codes or numbers to row r; stored nibbles lie as groups have them.
static inline void pairs(const void *from, int n, void *q, int r) {
	for (int i = 0; i < n; i += 2) memcpy((char *)q + i / 2 * 16 + 2 * r, (const char *)from + i, 2);
}

#endif
