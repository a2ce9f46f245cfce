//go:build cgo && amd64

// Q8_0 weights × 16-bit activations. IQ4_NL weights are codes of 8-bit numbers, and become Q8_0. Those of IQ4_XS do too,
// but for their scales, which are products of two and so f32: FINE is defined for them (iq4_xs.c).
//
// Maths:    y = Σ_b d_w[b] · d_a[b] · (Σ_i q_w[b,i] · q_a[b,i]), b over blocks of 32 columns.
// Layout:   8 rows of a block are one q8_0_group; columns lie in pairs, so that a pair of all rows is 16 bytes,
//           widened once to 16 bits and multiplied by a token's pair, repeated in all lanes.
// Numerics: |Σ_i| ≤ 32 · 128 · 32767 < 2^27: exact in 32 bits. Then one multiply and one fma a block, blocks ascending.
// Bytes:    1.0625 a weight, 1.125 with f32 scales; activations 2.125 an element.
#include "matmul.h"

#ifdef FINE
#define GROUP q8_fine_group
#define SCALE(d) _mm256_loadu_ps(d)
#define SCALAR(d) (d)
#define PRODUCT LEVEL(matmul_q8_fine)
#define GATHER gather_q8_fine
#else
#define GROUP q8_0_group
#define SCALE(d) halves(d)
#define SCALAR(d) _cvtsh_ss(d)
#define PRODUCT LEVEL(matmul_q8_0)
#define GATHER gather_q8_0
#endif

#define GROUP_BYTES(cols) ((size_t)(cols) / 32 * sizeof(GROUP))

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
			UNROLL for (int g = 0; g < G; g++) q[g] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)wb[g]->q[c]));
			UNROLL for (int m = 0; m < M; m++) {
				const __m256i y = four(x[m][b].q + 2 * c);
				UNROLL for (int g = 0; g < G; g++) {
					s[g][m] = c ? pairs2(s[g][m], q[g], y) : _mm256_madd_epi16(q[g], y);
					KEEP(s[g][m]);
				}
			}
		}
		UNROLL for (int g = 0; g < G; g++) {
			const __m256 d = SCALE(wb[g]->d);
			UNROLL for (int m = 0; m < M; m++)
				f[g][m] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(x[m][b].d), d), _mm256_cvtepi32_ps(s[g][m]), f[g][m]);
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, f[g][m]);
}

MATMUL(PRODUCT, tile, GROUP_BYTES, 5, 4, 2, 2)

#ifndef VNNI

KERNEL void GATHER(const void *w, int cols, int r, float scale, float *out) {
	const GROUP *g = (const GROUP *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols));
	for (int b = 0; b < cols / 32; b++) {
		const float d = SCALAR(g[b].d[r % 8]);
		for (int i = 0; i < 32; i++) out[b * 32 + i] = d * (float)g[b].q[i / 2][r % 8][i % 2] * scale;
	}
}

// number is what 4-bit codes of IQ4_NL and IQ4_XS stand for; elements 0–15 of 32 are the low nibbles of q.
static int8_t number(const uint8_t *q, int i) {
	static const int8_t of[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
	return of[i < 16 ? q[i] & 15 : q[i - 16] >> 4];
}

#ifdef FINE

typedef struct { uint16_t d, high; uint8_t low[4], q[128]; } __attribute__((packed)) block;

KERNEL void pack_iq4_xs(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		GROUP *dst = group;
		for (int b = 0; b < cols / 32; b++) {
			const block *s = src + b / 8;
			const int j = b % 8, scale = ((s->low[j / 2] >> j % 2 * 4 & 15) | (s->high >> 2 * j & 3) << 4) - 32;
			dst[b].d[r] = _cvtsh_ss(s->d) * (float)scale;
			for (int i = 0; i < 32; i++) dst[b].q[i / 2][r][i % 2] = number(s->q + 16 * j, i);
		}
	}
}

#else

void pack_iq4_nl(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	typedef struct { uint16_t d; uint8_t q[16]; } __attribute__((packed)) block;
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		GROUP *dst = group;
		for (int b = 0; b < cols / 32; b++) {
			dst[b].d[r] = src[b].d;
			for (int i = 0; i < 32; i++) dst[b].q[i / 2][r][i % 2] = number(src[b].q, i);
		}
	}
}

typedef struct { uint16_t d; int8_t q[32]; } __attribute__((packed)) block;

void pack_q8_0(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		q8_0_group *dst = group;
		for (int b = 0; b < cols / 32; b++) {
			dst[b].d[r] = src[b].d;
			for (int c = 0; c < 16; c++) memcpy(dst[b].q[c][r], src[b].q + 2 * c, 2);
		}
	}
}

#endif
#endif
