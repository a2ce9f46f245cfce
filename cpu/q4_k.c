//go:build cgo && amd64

// Q4_K weights × 8-bit activations.
//
// Maths:    y = Σ_b Σ_j d_w[b] s[b,j] d_a[b,j] (Σ_i c[b,j,i] · q_a[b,j,i]) − m_w[b] m[b,j] d_a[b,j] (Σ_i q_a[b,j,i]),
//           blocks b of 256 columns, sub-blocks j of 32, c the 4-bit codes, s and m their 6-bit scales and minima.
// Layout:   8 rows of a block are one q4_k_group; columns lie in fours; sub-blocks 2p and 2p+1 share the bytes of q[p].
// Numerics: Σ_i stays within 16 bits (2 lanes of 16 · 15 · 127 < 2^15): exact. Then one multiply and two fmas a
//           sub-block, sub-blocks ascending.
// Bytes:    0.594 a weight; activations 1.375 an element.
#include "wide.h"

#define GROUP_BYTES(cols) ((size_t)(cols) / 256 * sizeof(q4_k_group))

INLINE void tile(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, float *out,
	size_t ld, int cols) {
	const __m256i low4 = _mm256_set1_epi8(15);
	float f[4][4][8] __attribute__((aligned(32)));
	const act_i8 *x[4];
	UNROLL for (int m = 0; m < M; m++) {
		x[m] = (const act_i8 *)(a + m * stride);
		UNROLL for (int g = 0; g < G; g++) _mm256_store_ps(f[g][m], _mm256_setzero_ps());
	}
	const size_t ahead = AHEAD(G, size);
	for (int b = 0; b < cols / 256; b++) {
		UNROLL for (int g = 0; g < G; g++) {
			const q4_k_group *wb = (const q4_k_group *)(w + g * size) + b;
			const __m256 d = halves(wb->d), dmin = halves(wb->dmin);
			for (int p = 0; p < 4; p++) {
				const int j = b * 8 + 2 * p;
				ASK(wb->q[p], sizeof wb->q[p], ahead);
				__m256i t[2][4];
				UNROLL for (int c = 0; c < 8; c++) {
					const __m256i q = _mm256_loadu_si256((const __m256i *)wb->q[p][c]);
					const __m256i q0 = _mm256_and_si256(q, low4), q1 = _mm256_and_si256(_mm256_srli_epi16(q, 4), low4);
					UNROLL for (int m = 0; m < M; m++) {
						const __m256i y0 = four(x[m][j].q + c * 4), y1 = four(x[m][j + 1].q + c * 4);
						t[0][m] = c ? more(t[0][m], q0, y0) : first(q0, y0);
						t[1][m] = c ? more(t[1][m], q1, y1) : first(q1, y1);
						KEEP(t[0][m]);
						KEEP(t[1][m]);
					}
				}
				UNROLL for (int k = 0; k < 2; k++) {
					const __m256 scale = _mm256_mul_ps(d, bytes8(wb->scale[2 * p + k]));
					const __m256 min = _mm256_mul_ps(dmin, bytes8(wb->min[2 * p + k]));
					UNROLL for (int m = 0; m < M; m++) {
						const act_i8 *y = &x[m][j + k];
						const __m256 v = _mm256_cvtepi32_ps(total(t[k][m]));
						const __m256 k1 = _mm256_mul_ps(scale, _mm256_broadcast_ss(&y->d));
						const __m256 s = _mm256_fmadd_ps(k1, v, _mm256_load_ps(f[g][m]));
						_mm256_store_ps(f[g][m], _mm256_fnmadd_ps(min, _mm256_broadcast_ss(&y->dsum), s));
					}
				}
			}
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, _mm256_load_ps(f[g][m]));
}

static matmul narrow;
MATMUL(narrow, tile, GROUP_BYTES, 4, 2, 2, 1)

INLINE void unpack(const char *w, int lo, int hi, plain_block *out) {
	const __m256i low4 = _mm256_set1_epi8(15);
	for (; lo < hi; lo++, out++) {
		const q4_k_group *wb = (const q4_k_group *)w + lo / 8;
		const int j = lo % 8;
		UNROLL for (int c = 0; c < 8; c++) {
			const __m256i q = _mm256_loadu_si256((const __m256i *)wb->q[j / 2][c]);
			_mm256_storeu_si256((__m256i *)out->q[c], _mm256_and_si256(j % 2 ? _mm256_srli_epi16(q, 4) : q, low4));
		}
		_mm256_storeu_ps(out->d, _mm256_mul_ps(halves(wb->d), bytes8(wb->scale[j])));
		_mm256_storeu_ps(out->m, _mm256_mul_ps(halves(wb->dmin), bytes8(wb->min[j])));
	}
}

INLINE void wide(const int G, const int M, const plain_block (*slab)[SLAB], int blocks, const char *a, size_t stride,
	sums *sum) {
	const act_i8 *x[WIDE_M];
	UNROLL for (int m = 0; m < M; m++) x[m] = (const act_i8 *)(a + m * stride);
	for (int b = 0; b < blocks; b++) {
		__m256i t[2][WIDE_M];
		FOURS(0, 8)
		UNROLL for (int m = 0; m < M; m++) {
			const __m256 d = _mm256_broadcast_ss(&x[m][b].d), dsum = _mm256_broadcast_ss(&x[m][b].dsum);
			UNROLL for (int g = 0; g < G; g++) {
				const __m256 v = _mm256_cvtepi32_ps(total(t[g][m]));
				const __m256 k = _mm256_mul_ps(_mm256_loadu_ps(slab[g][b].d), d);
				const __m256 s = _mm256_fmadd_ps(k, v, _mm256_loadu_ps(sum[m][g]));
				_mm256_storeu_ps(sum[m][g], _mm256_fnmadd_ps(_mm256_loadu_ps(slab[g][b].m), dsum, s));
			}
		}
	}
}

WIDE(LEVEL(matmul_q4_k), narrow, unpack, wide, emit, act_i8, GROUP_BYTES)

#ifndef VNNI

typedef struct { uint16_t d, dmin; uint8_t packed[12], q[128]; } __attribute__((packed)) block;

// sub_scale is the 6-bit scale and minimum of sub-block j.
static void sub_scale(const uint8_t *s, int j, uint8_t *scale, uint8_t *min) {
	*scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
	*min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

void pack_q4_k(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		q4_k_group *dst = group;
		for (int b = 0; b < cols / 256; b++) {
			dst[b].d[r] = src[b].d;
			dst[b].dmin[r] = src[b].dmin;
			for (int j = 0; j < 8; j++) sub_scale(src[b].packed, j, &dst[b].scale[j][r], &dst[b].min[j][r]);
			for (int i = 0; i < 128; i++) dst[b].q[i / 32][i % 32 / 4][r * 4 + i % 4] = src[b].q[i];
		}
	}
}

KERNEL void gather_q4_k(const void *w, int cols, int r, float scale, float *out) {
	const q4_k_group *g = (const q4_k_group *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols));
	for (int i = 0; i < cols; i++) {
		const q4_k_group *b = g + i / 256;
		const int j = i % 256 / 32, c = i % 32 / 4, at = r % 8 * 4 + i % 4;
		const float s = _cvtsh_ss(b->d[r % 8]) * (float)b->scale[j][r % 8];
		const float m = _cvtsh_ss(b->dmin[r % 8]) * (float)b->min[j][r % 8];
		out[i] = (s * (float)(b->q[j / 2][c][at] >> (j % 2 * 4) & 15) - m) * scale;
	}
}

#endif
