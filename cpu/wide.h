//go:build cgo && amd64

// The loop nest for many tokens. Two groups of weights are unpacked once, to whole bytes, and meet up to WIDE_TOKENS tokens
// while they lie in the first-level cache; a tile is 16 rows by WIDE_M tokens, so that an activation once loaded serves
// two products. Sums wait in memory between slabs of columns. What is computed for an element, and in which order, is
// the same as in the narrow tiles of matmul.h.
#ifndef BERTH_WIDE_H
#define BERTH_WIDE_H

#include "matmul.h"

enum { WIDE_FROM = 8, WIDE_TOKENS = 100, WIDE_M = 5, SLAB = 32 };

// plain_block is 8 rows of 32 columns: codes in fours, a scale and a minimum for each row.
typedef struct { uint8_t q[8][32]; float d[8], m[8]; } plain_block;

// sums is the accumulators of one token.
typedef float sums[2][8];

// WIDE defines NAME from NARROW, the kernel for few tokens; UNPACK(w, lo, hi, out), which writes blocks [lo, hi) of a
// group; TILE(groups, tokens, slab, blocks, a, stride, sum), which adds a slab's products; and EMIT(out, sum).
#define WIDE(NAME, NARROW, UNPACK, TILE, EMIT, ACT, GROUP_BYTES) \
	KERNEL void NAME(const void *w, const void *a, size_t stride, float *out, size_t ld, int cols, int lo, int hi, \
		int n) { \
		if (n < WIDE_FROM) { \
			NARROW(w, a, stride, out, ld, cols, lo, hi, n); \
			return; \
		} \
		const size_t size = GROUP_BYTES(cols); \
		plain_block slab[2][SLAB]; \
		sums sum[WIDE_TOKENS]; \
		for (int t0 = 0; t0 < n; t0 += WIDE_TOKENS) { \
			const int count = n - t0 < WIDE_TOKENS ? n - t0 : WIDE_TOKENS; \
			for (int g = lo; g < hi; g += 2) { \
				const int two = g + 1 < hi; \
				memset(sum, 0, sizeof sum); \
				for (int b = 0; b < cols / 32; b += SLAB) { \
					const int e = b + SLAB < cols / 32 ? b + SLAB : cols / 32; \
					for (int i = 0; i <= two; i++) UNPACK((const char *)w + (g + i) * size, b, e, slab[i]); \
					for (int t = 0, m; t < count; t += m) { \
						m = share(count - t, WIDE_M); \
						const char *at = (const char *)a + (t0 + t) * stride + b * sizeof(ACT); \
						if (two) WIDE_TILES(TILE, 2) else WIDE_TILES(TILE, 1) \
					} \
				} \
				for (int t = 0; t < count; t++) \
					for (int i = 0; i <= two; i++) EMIT(out + (t0 + t) * ld + (g + i) * OUT_A_GROUP, sum[t][i]); \
			} \
		} \
	}

#define WIDE_TILES(TILE, G) \
	switch (m) { \
	case 1: TILE(G, 1, slab, e - b, at, stride, sum + t); break; \
	case 2: TILE(G, 2, slab, e - b, at, stride, sum + t); break; \
	case 3: TILE(G, 3, slab, e - b, at, stride, sum + t); break; \
	case 4: TILE(G, 4, slab, e - b, at, stride, sum + t); break; \
	case 5: TILE(G, 5, slab, e - b, at, stride, sum + t); break; \
	}

// FOURS multiplies fours [C, C + N) of block b by the activations of tokens x: sums t, before `total`.
#define FOURS(C, N) \
	UNROLL for (int c = (C); c < (C) + (N); c++) { \
		__m256i q[2]; \
		UNROLL for (int g = 0; g < G; g++) q[g] = _mm256_loadu_si256((const __m256i *)slab[g][b].q[c]); \
		UNROLL for (int m = 0; m < M; m++) { \
			const __m256i y = four(x[m][b].q + c * 4); \
			UNROLL for (int g = 0; g < G; g++) { \
				t[g][m] = c > (C) ? more(t[g][m], q[g], y) : first(q[g], y); \
				KEEP(t[g][m]); \
			} \
		} \
	}

INLINE void emit(float *out, const float *sum) { _mm256_storeu_ps(out, _mm256_loadu_ps(sum)); }

#endif
