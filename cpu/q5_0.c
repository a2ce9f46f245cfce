//go:build cgo && amd64

// Q5_0 weights × 8-bit activations.
//
// Maths:    y = Σ_b d_w[b] · d_a[b] · (Σ_i c[b,i] · q_a[b,i] − 16 Σ_i q_a[b,i]), c the 5-bit codes 0–31, blocks of 32
//           columns.
// Layout:   8 rows of a block are one q5_0_group; columns lie in fours. Fours 0–3 are the low nibbles of q[0..3],
//           fours 4–7 the high ones; the fifth bit of four k is bit k of high.
// Numerics: four fours of products stay within 16 bits (16 · 31 · 127 / 2 lanes < 2^15), so the sum is exact; Σ q_a
//           comes with the activations. Then one multiply and one fma a block, blocks ascending.
// Bytes:    0.6875 a weight; activations 1.375 an element.
#include "wide.h"

#define GROUP_BYTES(cols) ((size_t)(cols) / 32 * sizeof(q5_0_group))

INLINE void tile(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, float *out,
	size_t ld, int cols) {
	const __m256i offset = _mm256_set1_epi16(-16);
	float f[4][8][8] __attribute__((aligned(32)));
	const act_i8 *x[8];
	UNROLL for (int m = 0; m < M; m++) {
		x[m] = (const act_i8 *)(a + m * stride);
		UNROLL for (int g = 0; g < G; g++) _mm256_store_ps(f[g][m], _mm256_setzero_ps());
	}
	const size_t ahead = AHEAD(G, size);
	for (int b = 0; b < cols / 32; b++) {
		UNROLL for (int g = 0; g < G; g++) {
			const q5_0_group *wb = (const q5_0_group *)(w + g * size) + b;
			ASK(wb, sizeof *wb, ahead);
			const __m256i high = _mm256_loadu_si256((const __m256i *)wb->high);
			const __m256 d = halves(wb->d);
			__m256i sum[8];
			UNROLL for (int half = 0; half < 2; half++) {
				__m256i t[8];
				UNROLL for (int c = 0; c < 4; c++) {
					const __m256i q = codes5(wb->q[c], high, half * 4 + c);
					UNROLL for (int m = 0; m < M; m++) {
						const __m256i y = four(x[m][b].q + half * 16 + c * 4);
						t[m] = c ? more(t[m], q, y) : first(q, y);
						KEEP(t[m]);
					}
				}
				UNROLL for (int m = 0; m < M; m++) {
					const __m256i before = half ? sum[m] : _mm256_madd_epi16(four(x[m][b].sum), offset);
					sum[m] = _mm256_add_epi32(total(t[m]), before);
				}
			}
			UNROLL for (int m = 0; m < M; m++)
				_mm256_store_ps(f[g][m], _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(x[m][b].d), d),
					_mm256_cvtepi32_ps(sum[m]), _mm256_load_ps(f[g][m])));
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, _mm256_load_ps(f[g][m]));
}

static matmul narrow;
MATMUL(narrow, tile, GROUP_BYTES, 8, 4, 2, 1)

INLINE void unpack(const char *w, int lo, int hi, plain_block *out) {
	for (const q5_0_group *wb = (const q5_0_group *)w + lo; lo < hi; lo++, wb++, out++) {
		const __m256i high = _mm256_loadu_si256((const __m256i *)wb->high);
		UNROLL for (int c = 0; c < 8; c++) _mm256_storeu_si256((__m256i *)out->q[c], codes5(wb->q[c & 3], high, c));
		_mm256_storeu_ps(out->d, halves(wb->d));
	}
}

INLINE void wide(const int G, const int M, const plain_block (*slab)[SLAB], int blocks, const char *a, size_t stride,
	sums *sum) {
	const __m256i offset = _mm256_set1_epi16(-16);
	__m256i s[WIDE_M][2];
	const act_i8 *x[WIDE_M];
	UNROLL for (int m = 0; m < M; m++) x[m] = (const act_i8 *)(a + m * stride);
	for (int b = 0; b < blocks; b++) {
		__m256i t[2][WIDE_M];
		FOURS(0, 4)
		UNROLL for (int m = 0; m < M; m++) {
			const __m256i o = _mm256_madd_epi16(four(x[m][b].sum), offset);
			UNROLL for (int g = 0; g < G; g++) s[m][g] = _mm256_add_epi32(total(t[g][m]), o);
		}
		FOURS(4, 4)
		UNROLL for (int m = 0; m < M; m++) {
			const __m256 d = _mm256_set1_ps(x[m][b].d);
			UNROLL for (int g = 0; g < G; g++) {
				const __m256 v = _mm256_cvtepi32_ps(_mm256_add_epi32(total(t[g][m]), s[m][g]));
				const __m256 k = _mm256_mul_ps(d, _mm256_loadu_ps(slab[g][b].d));
				_mm256_storeu_ps(sum[m][g], _mm256_fmadd_ps(k, v, _mm256_loadu_ps(sum[m][g])));
			}
		}
	}
}

WIDE(LEVEL(matmul_q5_0), narrow, unpack, wide, emit, act_i8, GROUP_BYTES)

#ifndef VNNI

typedef struct { uint16_t d; uint8_t high[4]; uint8_t q[16]; } __attribute__((packed)) block;

static int code(const block *b, int i) {
	uint32_t high;
	memcpy(&high, b->high, 4);
	return (i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4) | (int)(high >> i & 1) << 4;
}

void pack_q5_0(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		q5_0_group *dst = group;
		for (int b = 0; b < cols / 32; b++) {
			dst[b].d[r] = src[b].d;
			for (int i = 0; i < 32; i++) {
				const int q = code(src + b, i), c = i / 4;
				dst[b].q[c & 3][r * 4 + i % 4] |= (q & 15) << (c < 4 ? 0 : 4);
				dst[b].high[r * 4 + i % 4] |= (q >> 4) << c;
			}
		}
	}
}

KERNEL void gather_q5_0(const void *w, int cols, int r, float scale, float *out) {
	const q5_0_group *g = (const q5_0_group *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols));
	for (int b = 0; b < cols / 32; b++) {
		const float d = _cvtsh_ss(g[b].d[r % 8]);
		for (int i = 0; i < 32; i++) {
			const int at = r % 8 * 4 + i % 4, c = i / 4;
			const int q = (g[b].q[c & 3][at] >> (c < 4 ? 0 : 4) & 15) | (g[b].high[at] >> c & 1) << 4;
			out[b * 32 + i] = d * (float)(q - 16) * scale;
		}
	}
}

#endif
