//go:build cgo && amd64

// The greedy head: which row of a Q8_0 matrix has the highest product, without reading all of it.
//
// Maths:    a code q of Q8_0 is 8 h + 3.5 + low, h its upper five bits, |low| ≤ 3.5. Activations x (int16, as the full
//           product reads them) are y + (x − y), y in int8. So in a block of 32 columns
//             q·x = (8 h + 3.5)·y + low·y + q·(x − y) ≤ (8 h + 3.5)·y + ‖low‖ ‖y‖ + max‖q‖ ‖x − y‖,
//           by Cauchy and Schwarz. The scan sums d times the right side over the blocks: a bound that no row exceeds.
//           Rows whose bound lies below a product already known can't win; those left are computed by the full kernel.
//           The answer is the full product's, bit for bit: the bound decides what is read, never what is chosen.
// Layout:   8 rows of a block are one scan_group: |d|, ⌈10 ‖low‖⌉, and h + 16 as Q5_0's codes lie. A row with d < 0 is
//           stored negated.
// Numerics: four fours of products stay within 16 bits, as in Q5_0. Terms that depend on the activations alone are one
//           float a block, and so is a slack above all rounding, of the scan and of the full product: each of the
//           cols/32 + 16 roundings errs by at most 2^−24 of the sum of magnitudes.
// Bytes:    0.719 a weight, then 8.5 a column for each group of rows that is left: less than 1 % of them in English text. A
//           fifth bit costs the scan 21 %, and leaves a twentieth of the groups that four bits leave.
#define OUT_A_GROUP 1
#include "wide.h"

#define GROUP_BYTES(cols) ((size_t)(cols) / 32 * sizeof(scan_group))

enum { UNIT = 10 };

INLINE void tile(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, float *out,
	size_t ld, int cols) {
	float f[4][8][8] __attribute__((aligned(32)));
	const act_scan *x[8];
	UNROLL for (int m = 0; m < M; m++) {
		x[m] = (const act_scan *)(a + m * stride);
		UNROLL for (int g = 0; g < G; g++) _mm256_store_ps(f[g][m], _mm256_setzero_ps());
	}
	const size_t ahead = AHEAD(G, size);
	for (int b = 0; b < cols / 32; b++) {
		UNROLL for (int g = 0; g < G; g++) {
			const scan_group *wb = (const scan_group *)(w + g * size) + b;
			const __m256i high = _mm256_loadu_si256((const __m256i *)wb->high);
			__m256i sum[8];
			ASK(wb, sizeof *wb, ahead);
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
					const __m256i v = total(t[m]);
					sum[m] = half ? _mm256_add_epi32(sum[m], v) : v;
				}
			}
			const __m256 d = halves(wb->d), rest = bytes8(wb->rest);
			UNROLL for (int m = 0; m < M; m++) {
				const act_scan *y = &x[m][b];
				const __m256 e = _mm256_fmadd_ps(rest, _mm256_broadcast_ss(&y->n), _mm256_broadcast_ss(&y->c));
				const __m256 v = _mm256_cvtepi32_ps(sum[m]);
				const __m256 s = _mm256_fmadd_ps(v, _mm256_broadcast_ss(&y->k), e);
				_mm256_store_ps(f[g][m], _mm256_fmadd_ps(d, s, _mm256_load_ps(f[g][m])));
			}
		}
	}
	UNROLL for (int g = 0; g < G; g++)
		UNROLL for (int m = 0; m < M; m++) out[m * ld + g] = top(_mm256_load_ps(f[g][m]));
}

static matmul narrow;
MATMUL(narrow, tile, GROUP_BYTES, 8, 4, 2, 1)

INLINE void unpack(const char *w, int lo, int hi, plain_block *out) {
	for (const scan_group *wb = (const scan_group *)w + lo; lo < hi; lo++, wb++, out++) {
		const __m256i high = _mm256_loadu_si256((const __m256i *)wb->high);
		UNROLL for (int c = 0; c < 8; c++) _mm256_storeu_si256((__m256i *)out->q[c], codes5(wb->q[c & 3], high, c));
		_mm256_storeu_ps(out->d, halves(wb->d));
		_mm256_storeu_ps(out->m, bytes8(wb->rest));
	}
}

INLINE void wide(const int G, const int M, const plain_block (*slab)[SLAB], int blocks, const char *a, size_t stride,
	sums *sum) {
	__m256i s[WIDE_M][2];
	const act_scan *x[WIDE_M];
	UNROLL for (int m = 0; m < M; m++) x[m] = (const act_scan *)(a + m * stride);
	for (int b = 0; b < blocks; b++) {
		__m256i t[2][WIDE_M];
		FOURS(0, 4)
		UNROLL for (int m = 0; m < M; m++)
			UNROLL for (int g = 0; g < G; g++) s[m][g] = total(t[g][m]);
		FOURS(4, 4)
		UNROLL for (int m = 0; m < M; m++) {
			const act_scan *y = &x[m][b];
			const __m256 n = _mm256_broadcast_ss(&y->n), c = _mm256_broadcast_ss(&y->c), k = _mm256_broadcast_ss(&y->k);
			UNROLL for (int g = 0; g < G; g++) {
				const __m256 e = _mm256_fmadd_ps(_mm256_loadu_ps(slab[g][b].m), n, c);
				const __m256 v = _mm256_cvtepi32_ps(_mm256_add_epi32(total(t[g][m]), s[m][g]));
				const __m256 z = _mm256_fmadd_ps(v, k, e);
				_mm256_storeu_ps(sum[m][g], _mm256_fmadd_ps(_mm256_loadu_ps(slab[g][b].d), z, _mm256_loadu_ps(sum[m][g])));
			}
		}
	}
}

INLINE void highest(float *out, const float *sum) { *out = top(_mm256_loadu_ps(sum)); }

WIDE(LEVEL(scan_q8_0), narrow, unpack, wide, highest, act_scan, GROUP_BYTES)

#ifndef VNNI

// pack_scan_q8_0 writes the scan's group of a packed one; it gives the largest Σ q² of a block.
KERNEL int pack_scan_q8_0(const void *group, void *out, int cols) {
	const q8_0_group *src = group;
	scan_group *dst = out;
	int largest = 0;
	memset(out, 0, GROUP_BYTES(cols));
	for (int b = 0; b < cols / 32; b++)
		for (int r = 0; r < 8; r++) {
			int square = 0;
			float rest = 0;
			dst[b].d[r] = src[b].d[r] & 0x7fff;
			for (int i = 0; i < 32; i++) {
				const int q = src[b].q[i / 2][r][i % 2], v = src[b].d[r] >> 15 ? -q : q;
				int h = (v + 128) / 8;
				h = h > 31 ? 31 : h;
				const float low = (float)v - (8 * (float)h - 124.5f);
				rest += low * low;
				square += q * q;
				dst[b].q[i / 4 & 3][r * 4 + i % 4] |= (h & 15) << (i < 16 ? 0 : 4);
				dst[b].high[r * 4 + i % 4] |= (h >> 4) << (i / 4);
			}
			largest = square > largest ? square : largest;
			dst[b].rest[r] = (uint8_t)(UNIT * _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(rest))) + 1);
		}
	return largest;
}

INLINE float root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

// scan_vector writes what the scan reads of a token; reach is max‖q‖.
KERNEL void scan_vector(const act_i16 *x, act_scan *out, int cols, float reach) {
	const float above = 1 + 0x1p-10f, slack = (float)(cols / 32 + 16) * 0x1p-23f;
	for (int b = 0; b < cols / 32; b++) {
		int most = 0, sum = 0, size = 0, square = 0;
		for (int i = 0; i < 32; i++) {
			const int q = x[b].q[i] < 0 ? -x[b].q[i] : x[b].q[i];
			most = q > most ? q : most;
		}
		const float step = (float)most / 127, inverse = most ? 127 / (float)most : 0;
		float miss = 0;
		for (int i = 0; i < 32; i++) {
			const int q = _mm_cvtss_si32(_mm_set_ss((float)x[b].q[i] * inverse));
			const float left = (float)x[b].q[i] - (float)q * step;
			out[b].q[i] = (int8_t)q;
			sum += q;
			size += q < 0 ? -q : q;
			square += q * q;
			miss += left * left;
		}
		const float d = x[b].d * step, length = d * root((float)square), far = reach * x[b].d * root(miss);
		out[b].k = 8 * d;
		out[b].n = length / UNIT * above;
		out[b].c = -124.5f * d * (float)sum + far * above +
			slack * (512 * d * (float)(size + 16) + 64 * length + 2 * far);
	}
}

// consider computes group g in full and keeps the highest product and, of equal ones, the lowest row.
INLINE void consider(const void *w, const act_i16 *x, int cols, int rows, int g, choice *best) {
	float product[8];
	const size_t size = (size_t)cols / 32 * sizeof(q8_0_group);
	matmul_q8_0_avx2((const char *)w + g * size, x, 0, product, 0, cols, 0, 1, 1);
	for (int r = 0; r < 8 && g * 8 + r < rows; r++) {
		const int id = g * 8 + r;
		if (product[r] > best->product || (product[r] == best->product && id < best->row))
			*best = (choice){.product = product[r], .row = id};
	}
}

// scan_lead starts a choice: row 0, then the group with the highest bound in each of parts runs of groups.
KERNEL void scan_lead(const void *w, const act_i16 *x, int cols, int rows, const float *bound, int parts,
	choice *best) {
	const int groups = (rows + 7) / 8, run = (groups + parts - 1) / parts;
	float row0[8];
	matmul_q8_0_avx2(w, x, 0, row0, 0, cols, 0, 1, 1);
	*best = (choice){.product = row0[0], .row = 0};
	for (int lo = 0; lo < groups; lo += run) {
		int high = lo;
		for (int g = lo; g < lo + run && g < groups; g++)
			if (bound[g] > bound[high]) high = g;
		consider(w, x, cols, rows, high, best);
	}
}

// scan_settle looks at groups [lo, hi): every one whose bound is not below the best product so far.
KERNEL void scan_settle(const void *w, const act_i16 *x, int cols, int rows, const float *bound, int lo, int hi,
	choice *best) {
	for (int g = lo; g < hi; g++)
		if (!(bound[g] < best->product)) consider(w, x, cols, rows, g, best);
}

#endif
