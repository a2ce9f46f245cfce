//go:build cgo && amd64

// Q4_K weights × 8-bit activations, and Q5_K weights where HIGH is defined (q5_k.c).
//
// Maths:    y = Σ_b Σ_j d_w[b] s[b,j] d_a[b,j] (Σ_i c[b,j,i] · q_a[b,j,i]) − m_w[b] m[b,j] d_a[b,j] (Σ_i q_a[b,j,i]),
//           blocks b of 256 columns, sub-blocks j of 32, c the 4- or 5-bit codes, s and m their 6-bit scales and minima.
// Layout:   8 rows of a block are one group; columns lie in fours; sub-blocks 2p and 2p+1 share the bytes of q[p]. The
//           fifth bit of four c of sub-block j is bit c of high[j].
// Numerics: Σ_i of 4-bit codes stays within 16 bits (2 lanes of 16 · 15 · 127 < 2^15), and so does that of half as many
//           5-bit ones: exact. Then one multiply and two fmas a sub-block, sub-blocks ascending.
// Bytes:    0.594 a weight, 0.719 with five bits; activations 1.375 an element.
#include "wide.h"

#ifdef HIGH
#define GROUP q5_k_group
#define NAME(f) f##_q5_k
enum { WHOLE = 4 }; // fours whose sums stay within 16 bits
// fifth adds the fifth bits of four c.
#define FIFTH(q, wb, j, c) _mm256_or_si256(q, fifth(_mm256_loadu_si256((const __m256i *)(wb)->high[j]), c))
INLINE __m256i fifth(__m256i high, const int c) {
	const __m256i h = c < 4 ? _mm256_slli_epi16(high, 4 - c) : _mm256_srli_epi16(high, c - 4);
	return _mm256_and_si256(h, _mm256_set1_epi8(16));
}
#else
#define GROUP q4_k_group
#define NAME(f) f##_q4_k
enum { WHOLE = 8 };
#define FIFTH(q, wb, j, c) (q)
#endif

#define GROUP_BYTES(cols) ((size_t)(cols) / 256 * sizeof(GROUP))

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
			const GROUP *wb = (const GROUP *)(w + g * size) + b;
			const __m256 d = halves(wb->d), dmin = halves(wb->dmin);
			for (int p = 0; p < 4; p++) {
				const int j = b * 8 + 2 * p;
				ASK(wb->q[p], sizeof wb->q[p], ahead);
				__m256i t[2][4], half[2][4];
				UNROLL for (int c = 0; c < 8; c++) {
					const __m256i q = _mm256_loadu_si256((const __m256i *)wb->q[p][c]);
					const __m256i q0 = FIFTH(_mm256_and_si256(q, low4), wb, 2 * p, c);
					const __m256i q1 = FIFTH(_mm256_and_si256(_mm256_srli_epi16(q, 4), low4), wb, 2 * p + 1, c);
					if (c == WHOLE)
						UNROLL for (int m = 0; m < M; m++) half[0][m] = total(t[0][m]), half[1][m] = total(t[1][m]);
					UNROLL for (int m = 0; m < M; m++) {
						const __m256i y0 = four(x[m][j].q + c * 4), y1 = four(x[m][j + 1].q + c * 4);
						t[0][m] = c % WHOLE ? more(t[0][m], q0, y0) : first(q0, y0);
						t[1][m] = c % WHOLE ? more(t[1][m], q1, y1) : first(q1, y1);
						KEEP(t[0][m]);
						KEEP(t[1][m]);
					}
				}
				UNROLL for (int k = 0; k < 2; k++) {
					const __m256 scale = _mm256_mul_ps(d, bytes8(wb->scale[2 * p + k]));
					const __m256 min = _mm256_mul_ps(dmin, bytes8(wb->min[2 * p + k]));
					UNROLL for (int m = 0; m < M; m++) {
						const act_i8 *y = &x[m][j + k];
						const __m256i all = total(t[k][m]);
						const __m256 v = _mm256_cvtepi32_ps(WHOLE < 8 ? _mm256_add_epi32(all, half[k][m]) : all);
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
		const GROUP *wb = (const GROUP *)w + lo / 8;
		const int j = lo % 8;
		UNROLL for (int c = 0; c < 8; c++) {
			const __m256i q = _mm256_loadu_si256((const __m256i *)wb->q[j / 2][c]);
			const __m256i low = _mm256_and_si256(j % 2 ? _mm256_srli_epi16(q, 4) : q, low4);
			_mm256_storeu_si256((__m256i *)out->q[c], FIFTH(low, wb, j, c));
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
		__m256i t[2][WIDE_M], half[2][WIDE_M];
		FOURS(0, WHOLE)
		if (WHOLE < 8) {
			UNROLL for (int m = 0; m < M; m++) UNROLL for (int g = 0; g < G; g++) half[g][m] = total(t[g][m]);
			FOURS(8 - WHOLE, WHOLE)
		}
		UNROLL for (int m = 0; m < M; m++) {
			const __m256 d = _mm256_broadcast_ss(&x[m][b].d), dsum = _mm256_broadcast_ss(&x[m][b].dsum);
			UNROLL for (int g = 0; g < G; g++) {
				const __m256i all = total(t[g][m]);
				const __m256 v = _mm256_cvtepi32_ps(WHOLE < 8 ? _mm256_add_epi32(all, half[g][m]) : all);
				const __m256 k = _mm256_mul_ps(_mm256_loadu_ps(slab[g][b].d), d);
				const __m256 s = _mm256_fmadd_ps(k, v, _mm256_loadu_ps(sum[m][g]));
				_mm256_storeu_ps(sum[m][g], _mm256_fnmadd_ps(_mm256_loadu_ps(slab[g][b].m), dsum, s));
			}
		}
	}
}

#define PRODUCT(name) LEVEL(name) // so that NAME is expanded first
WIDE(PRODUCT(NAME(matmul)), narrow, unpack, wide, emit, act_i8, GROUP_BYTES)

#ifndef VNNI

#ifdef HIGH
typedef struct { uint16_t d, dmin; uint8_t packed[12], high[32], q[128]; } __attribute__((packed)) block;
#else
typedef struct { uint16_t d, dmin; uint8_t packed[12], q[128]; } __attribute__((packed)) block;
#endif

// sub_scale is the 6-bit scale and minimum of sub-block j.
static void sub_scale(const uint8_t *s, int j, uint8_t *scale, uint8_t *min) {
	*scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
	*min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

void NAME(pack)(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	memset(group, 0, GROUP_BYTES(cols));
	for (int r = 0; r < n; r++) {
		const block *src = (const block *)((const char *)rows + r * row_bytes);
		GROUP *dst = group;
		for (int b = 0; b < cols / 256; b++) {
			dst[b].d[r] = src[b].d;
			dst[b].dmin[r] = src[b].dmin;
			for (int j = 0; j < 8; j++) sub_scale(src[b].packed, j, &dst[b].scale[j][r], &dst[b].min[j][r]);
			for (int i = 0; i < 128; i++) dst[b].q[i / 32][i % 32 / 4][r * 4 + i % 4] = src[b].q[i];
#ifdef HIGH
			for (int i = 0; i < 256; i++) // bit j of byte i % 32 is that of sub-block j
				dst[b].high[i / 32][r * 4 + i % 4] |= (uint8_t)((src[b].high[i % 32] >> i / 32 & 1) << i % 32 / 4);
#endif
		}
	}
}

KERNEL void NAME(gather)(const void *w, int cols, int r, float scale, float *out) {
	const GROUP *g = (const GROUP *)((const char *)w + (size_t)(r / 8) * GROUP_BYTES(cols));
	for (int i = 0; i < cols; i++) {
		const GROUP *b = g + i / 256;
		const int j = i % 256 / 32, c = i % 32 / 4, at = r % 8 * 4 + i % 4;
		const float s = _cvtsh_ss(b->d[r % 8]) * (float)b->scale[j][r % 8];
		const float m = _cvtsh_ss(b->dmin[r % 8]) * (float)b->min[j][r % 8];
		int code = b->q[j / 2][c][at] >> (j % 2 * 4) & 15;
#ifdef HIGH
		code |= (b->high[j][at] >> c & 1) << 4;
#endif
		out[i] = (s * (float)code - m) * scale;
	}
}

#endif
