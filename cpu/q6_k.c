//go:build cgo && amd64

// Q6_K weights × 8-bit activations. Q3_K weights, whose codes are −4 to 3 and whose scales are 6 bits, become Q6_K. Those of
// Q2_K have minima in place of an offset: MINIMA is defined for them (q2_k.c).
//
// Maths:    y = Σ_b Σ_j d_w[b] d_a[b,j] Σ_k s[b,j,k] (Σ_i c[b,j,k,i] · q_a − 32 Σ_i q_a), blocks b of 256 columns,
//           sub-blocks j of 32, halves k of 16, c the 6-bit codes 0–63, s their signed 8-bit scales. With minima
//           y = Σ_b Σ_j d_w[b] d_a[b,j] (Σ_k s[b,j,k] Σ_i c · q_a) − m_w[b] d_a[b,j] (Σ_k m[b,j,k] Σ_i q_a).
// Layout:   8 rows of a block are one q6_k_group; columns lie in fours, codes as whole bytes (26 % more than packed 6
//           bits, for four operations a column less). With minima, codes have 2 bits: fours 4p to 4p+3 share bytes.
// Numerics: two fours stay within 16 bits (2 · 2 · 63 · 127 < 2^15); Σ_k within 32. Both exact. Then one multiply and
//           one fma a sub-block, sub-blocks ascending; two of each with minima.
// Bytes:    1.07 a weight, 0.39 with minima; activations 1.375 an element.
#include "matmul.h"

#ifdef MINIMA
#define GROUP q2_k_group
#define PRODUCT LEVEL(matmul_q2_k)
#define CODES(wb, four) \
	_mm256_and_si256(_mm256_srli_epi16(_mm256_loadu_si256((const __m256i *)(wb)->q[(four) / 4]), (four) % 4 * 2), \
		_mm256_set1_epi8(3))
#else
#define GROUP q6_k_group
#define PRODUCT LEVEL(matmul_q6_k)
#define CODES(wb, four) _mm256_loadu_si256((const __m256i *)(wb)->q[four])
#endif

#define GROUP_BYTES(cols) ((size_t)(cols) / 256 * sizeof(GROUP))

// pairs repeats each of 8 signed bytes in both halves of its lane.
INLINE __m256i pairs(const int8_t *p) {
	const __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
	return _mm256_blend_epi16(x, _mm256_slli_epi32(x, 16), 0xaa);
}

INLINE void tile(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, float *out,
	size_t ld, int cols) {
	__m256 f[4][4];
	const act_i8 *x[4];
	UNROLL for (int m = 0; m < M; m++) {
		x[m] = (const act_i8 *)(a + m * stride);
		UNROLL for (int g = 0; g < G; g++) f[g][m] = _mm256_setzero_ps();
	}
	const size_t ahead = AHEAD(G, size);
	for (int b = 0; b < cols / 256; b++) {
		const GROUP *wb[4];
		__m256 d[4];
		UNROLL for (int g = 0; g < G; g++) {
			wb[g] = (const GROUP *)(w + g * size) + b;
			d[g] = halves(wb[g]->d);
		}
		for (int j = 0; j < 8; j++) {
			const act_i8 *y[4];
			__m256i s[4][2], sum[4][4];
			UNROLL for (int m = 0; m < M; m++) y[m] = x[m] + b * 8 + j;
			UNROLL for (int g = 0; g < G; g++) {
				s[g][0] = pairs(wb[g]->scale[2 * j]), s[g][1] = pairs(wb[g]->scale[2 * j + 1]);
#ifdef MINIMA
				ASK(wb[g]->q[j * 2], 2 * sizeof wb[g]->q[0], ahead);
				UNROLL for (int m = 0; m < M; m++) sum[g][m] = _mm256_setzero_si256();
#else
				// One 32-bit lane is a row: the scale of the first half below that of the second, both times 32.
				const __m256i offset = _mm256_slli_epi16(_mm256_blend_epi16(s[g][0], s[g][1], 0xaa), 5);
				ASK(wb[g]->q[j * 8], 8 * sizeof wb[g]->q[0], ahead);
				UNROLL for (int m = 0; m < M; m++)
					sum[g][m] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_madd_epi16(offset, four(y[m]->sum)));
#endif
			}
			UNROLL for (int h = 0; h < 4; h++) {
				__m256i q0[4], q1[4];
				UNROLL for (int g = 0; g < G; g++) {
					q0[g] = CODES(wb[g], j * 8 + h * 2);
					q1[g] = CODES(wb[g], j * 8 + h * 2 + 1);
				}
				UNROLL for (int m = 0; m < M; m++) {
					const __m256i a0 = four(y[m]->q + h * 8), a1 = four(y[m]->q + h * 8 + 4);
					UNROLL for (int g = 0; g < G; g++) {
						const __m256i t = _mm256_add_epi16(_mm256_maddubs_epi16(q0[g], a0), _mm256_maddubs_epi16(q1[g], a1));
						sum[g][m] = pairs2(sum[g][m], t, s[g][h / 2]);
						KEEP(sum[g][m]);
					}
				}
			}
			UNROLL for (int g = 0; g < G; g++)
				UNROLL for (int m = 0; m < M; m++) {
					const __m256 k = _mm256_mul_ps(d[g], _mm256_broadcast_ss(&y[m]->d));
					f[g][m] = _mm256_fmadd_ps(k, _mm256_cvtepi32_ps(sum[g][m]), f[g][m]);
				}
#ifdef MINIMA
			UNROLL for (int g = 0; g < G; g++) {
				const __m256i low = pairs(wb[g]->min[2 * j]), high = pairs(wb[g]->min[2 * j + 1]);
				const __m256i both = _mm256_blend_epi16(low, high, 0xaa);
				const __m256 dmin = halves(wb[g]->dmin);
				UNROLL for (int m = 0; m < M; m++) {
					const __m256 k = _mm256_mul_ps(dmin, _mm256_broadcast_ss(&y[m]->d));
					const __m256i least = _mm256_madd_epi16(both, four(y[m]->sum));
					f[g][m] = _mm256_fnmadd_ps(k, _mm256_cvtepi32_ps(least), f[g][m]);
				}
			}
#endif
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, f[g][m]);
}

MATMUL(PRODUCT, tile, GROUP_BYTES, 3, 2, 2, 2)

#ifndef VNNI

#ifdef MINIMA

typedef struct { uint8_t scale[16], q[64]; uint16_t d, dmin; } __attribute__((packed)) block;

// Each half of 128 has 32 bytes; quarter k takes bits 2k.
void pack_q2_k(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		GROUP *dst = group;
		for (int b = 0; b < cols / 256; b++) {
			dst[b].d[r] = src[b].d, dst[b].dmin[r] = src[b].dmin;
			for (int j = 0; j < 16; j++) dst[b].scale[j][r] = src[b].scale[j] & 15, dst[b].min[j][r] = src[b].scale[j] >> 4;
			for (int i = 0; i < 256; i++) {
				const int code = src[b].q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
				dst[b].q[i / 16][r * 4 + i % 4] |= (uint8_t)(code << i / 4 % 4 * 2);
			}
		}
	}
}

KERNEL void gather_q2_k(const void *w, int cols, int r, float scale, float *out) {
	const GROUP *g = (const GROUP *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols));
	for (int i = 0; i < cols; i++) {
		const GROUP *b = g + i / 256;
		const int k = i % 256, code = b->q[k / 16][r % 8 * 4 + k % 4] >> k / 4 % 4 * 2 & 3;
		const float s = _cvtsh_ss(b->d[r % 8]) * (float)b->scale[k / 16][r % 8];
		const float m = _cvtsh_ss(b->dmin[r % 8]) * (float)b->min[k / 16][r % 8];
		out[i] = (s * (float)code - m) * scale;
	}
}

#else

// pack_q3_k: 6-bit scales have their low nibbles in bytes 0–7 and two bits more in bytes 8–11; a code is two bits of q as in
// Q2_K, less 4 where its bit of mask is not set.
void pack_q3_k(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	typedef struct { uint8_t mask[32], q[64], packed[12]; uint16_t d; } __attribute__((packed)) block;
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		GROUP *dst = group;
		for (int b = 0; b < cols / 256; b++) {
			const uint8_t *p = src[b].packed;
			dst[b].d[r] = src[b].d;
			for (int j = 0; j < 16; j++)
				dst[b].scale[j][r] = (int8_t)(((p[j % 8] >> j / 8 * 4 & 15) | (p[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32);
			for (int i = 0; i < 256; i++) {
				const int low = src[b].q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
				dst[b].q[i / 4][r * 4 + i % 4] = (uint8_t)(low + 28 + 4 * (src[b].mask[i % 32] >> i / 32 & 1));
			}
		}
	}
}

typedef struct { uint8_t low[128], high[64]; int8_t scale[16]; uint16_t d; } __attribute__((packed)) block;

// code is element i: each half of 128 has 64 bytes of low nibbles and 32 of upper bits, quarter k takes bits 2k.
static int code(const block *b, int i) {
	const int h = i / 128, k = i % 128 / 32, l = i % 32;
	return (b->low[h * 64 + k % 2 * 32 + l] >> (k / 2 * 4) & 15) | (b->high[h * 32 + l] >> (2 * k) & 3) << 4;
}

void pack_q6_k(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		GROUP *dst = group;
		for (int b = 0; b < cols / 256; b++) {
			dst[b].d[r] = src[b].d;
			for (int j = 0; j < 16; j++) dst[b].scale[j][r] = src[b].scale[j];
			for (int i = 0; i < 256; i++) dst[b].q[i / 4][r * 4 + i % 4] = (uint8_t)code(src + b, i);
		}
	}
}

KERNEL void gather_q6_k(const void *w, int cols, int r, float scale, float *out) {
	const GROUP *g = (const GROUP *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols));
	for (int i = 0; i < cols; i++) {
		const GROUP *b = g + i / 256;
		const int k = i % 256;
		const float s = _cvtsh_ss(b->d[r % 8]) * (float)b->scale[k / 16][r % 8];
		out[i] = s * (float)((int)b->q[k / 4][r % 8 * 4 + k % 4] - 32) * scale;
	}
}

#endif
#endif
