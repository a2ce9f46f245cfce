//go:build cgo && amd64

// Q4_K weights × 8-bit activations.
//
// Maths:    y = Σ_b d_a[b] · (d_w[b] Σ_j s[j] Σ_i c[j,i] · q_a[j,i] − m_w[b] Σ_j m[j] Σ_i q_a[j,i]), blocks b of 256 columns, sub-blocks
//           j of 32, c the 4-bit codes, s and m their 6-bit scales and minima.
// Layout:   8 rows of a block are one q4_k_group; columns lie in fours; sub-blocks 2p and 2p+1 share the bytes of q[p].
// Numerics: Σ_i stays within 16 bits (2 lanes of 16 · 15 · 127 < 2^15), Σ_j within 32: both sums are exact. Then two
//           multiplies and two fmas a block, blocks ascending.
// Bytes:    0.594 a weight; activations 1.14 an element.
#include "matmul.h"

#define GROUP_BYTES(cols) ((size_t)(cols) / 256 * sizeof(q4_k_group))

// pairs repeats each of 8 bytes in both halves of its lane.
INLINE __m256i pairs(const uint8_t *p) {
	const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
	return _mm256_or_si256(x, _mm256_slli_epi32(x, 16));
}

INLINE void tile(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, float *out, size_t ld, int cols) {
	const __m256i low4 = _mm256_set1_epi8(15);
	__m256 f[4][4];
	const act_i8k *x[4];
	UNROLL for (int m = 0; m < M; m++) {
		x[m] = (const act_i8k *)(a + m * stride);
		UNROLL for (int g = 0; g < G; g++) f[g][m] = _mm256_setzero_ps();
	}
	for (int b = 0; b < cols / 256; b++) {
		UNROLL for (int g = 0; g < G; g++) {
			const q4_k_group *wb = (const q4_k_group *)(w + g * size) + b;
			__m256i sum[4], low[4];
			UNROLL for (int m = 0; m < M; m++) sum[m] = low[m] = _mm256_setzero_si256();
			for (int p = 0; p < 4; p++) {
				__m256i t[4], u[4];
				UNROLL for (int c = 0; c < 8; c++) {
					const __m256i q = _mm256_loadu_si256((const __m256i *)wb->q[p][c]);
					const __m256i q0 = _mm256_and_si256(q, low4), q1 = _mm256_and_si256(_mm256_srli_epi16(q, 4), low4);
					UNROLL for (int m = 0; m < M; m++) {
						const int8_t *y = x[m][b].q + p * 64 + c * 4;
						const __m256i v = _mm256_maddubs_epi16(q0, four(y)), z = _mm256_maddubs_epi16(q1, four(y + 32));
						t[m] = c ? _mm256_add_epi16(t[m], v) : v;
						u[m] = c ? _mm256_add_epi16(u[m], z) : z;
						KEEP(t[m]);
						KEEP(u[m]);
					}
				}
				const __m256i s0 = pairs(wb->scale[2 * p]), s1 = pairs(wb->scale[2 * p + 1]);
				const __m256i m0 = pairs(wb->min[2 * p]), m1 = pairs(wb->min[2 * p + 1]);
				UNROLL for (int m = 0; m < M; m++) {
					const int16_t *s = x[m][b].sum + p * 4;
					sum[m] = _mm256_add_epi32(sum[m], _mm256_add_epi32(_mm256_madd_epi16(t[m], s0), _mm256_madd_epi16(u[m], s1)));
					low[m] = _mm256_add_epi32(low[m], _mm256_add_epi32(_mm256_madd_epi16(m0, four(s)), _mm256_madd_epi16(m1, four(s + 2))));
				}
			}
			const __m256 d = halves(wb->d), dmin = halves(wb->dmin);
			UNROLL for (int m = 0; m < M; m++) {
				const __m256 da = _mm256_set1_ps(x[m][b].d);
				f[g][m] = _mm256_fmadd_ps(_mm256_mul_ps(da, d), _mm256_cvtepi32_ps(sum[m]), f[g][m]);
				f[g][m] = _mm256_fnmadd_ps(_mm256_mul_ps(da, dmin), _mm256_cvtepi32_ps(low[m]), f[g][m]);
			}
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, f[g][m]);
}

MATMUL(matmul_q4_k, tile, GROUP_BYTES, 4, 2)

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
		const float s = _cvtsh_ss(b->d[r % 8]) * (float)b->scale[j][r % 8], m = _cvtsh_ss(b->dmin[r % 8]) * (float)b->min[j][r % 8];
		out[i] = (s * (float)(b->q[j / 2][c][at] >> (j % 2 * 4) & 15) - m) * scale;
	}
}
