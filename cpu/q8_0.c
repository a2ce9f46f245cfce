//go:build cgo && amd64

// Q8_0 weights × 16-bit activations.
//
// Maths:    y = Σ_b d_w[b] · d_a[b] · (Σ_i q_w[b,i] · q_a[b,i]), b over blocks of 32 columns.
// Layout:   8 rows of a block are one q8_0_group; columns lie in pairs, so that a pair of all rows is 16 bytes,
//           widened once to 16 bits and multiplied by a token's pair, repeated in all lanes.
// Numerics: |Σ_i| ≤ 32 · 128 · 32767 < 2^27: exact in 32 bits. Then one multiply and one fma a block, blocks ascending.
// Bytes:    1.0625 a weight; activations 2.125 an element.
#include "matmul.h"

#define GROUP_BYTES(cols) ((size_t)(cols) / 32 * sizeof(q8_0_group))

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
		const q8_0_group *wb[4];
		__m256i s[4][6];
		UNROLL for (int g = 0; g < G; g++) {
			wb[g] = (const q8_0_group *)(w + g * size) + b;
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
			const __m256 d = halves(wb[g]->d);
			UNROLL for (int m = 0; m < M; m++)
				f[g][m] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(x[m][b].d), d), _mm256_cvtepi32_ps(s[g][m]), f[g][m]);
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, f[g][m]);
}

MATMUL(LEVEL(matmul_q8_0), tile, GROUP_BYTES, 5, 4, 2, 2)

#ifndef VNNI

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

KERNEL void gather_q8_0(const void *w, int cols, int r, float scale, float *out) {
	const q8_0_group *g = (const q8_0_group *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols));
	for (int b = 0; b < cols / 32; b++) {
		const float d = _cvtsh_ss(g[b].d[r % 8]);
		for (int i = 0; i < 32; i++) out[b * 32 + i] = d * (float)g[b].q[i / 2][r % 8][i % 2] * scale;
	}
}

#endif
