//go:build cgo && amd64

// The loop nest around every matrix product.
//
// Tokens are taken TOKENS at a time, so that few of their activations leave the first-level cache while the chunk's
// weights come from the second; inside, a group of 8 rows meets a tile of MAX_M tokens. A tile of any shape computes each
// element by itself: one f32 accumulator over ascending columns. So the shape of tiles, of chunks and of the batch does
// not show in the bits.
#ifndef BERTH_MATMUL_H
#define BERTH_MATMUL_H

#include "kernels.h"
#include "vec.h"

enum { TOKENS = 24 };

// OUT_A_GROUP is how many results a tile writes for a group and a token.
#ifndef OUT_A_GROUP
#define OUT_A_GROUP 8
#endif

// AHEAD is how many bytes ahead of their use weights are asked for. G groups are read side by side, so those of short rows
// ask for their place in the next G, which nobody reads yet; those of long rows for a page, more than the processor's own
// prefetcher covers. Asking past the end is harmless.
#define AHEAD(G, size) ((size) < 8192 ? (G) * (size) : 4096)

// ASK asks for the weights that lie ahead of a part of a group.
#define ASK(part, bytes, ahead) \
	UNROLL for (int i = 0; i < (int)(bytes); i += 64) \
		_mm_prefetch((const char *)(part) + (ahead) + i, _MM_HINT_T0)

// MATMUL defines NAME from TILE(groups, tokens, w, group_bytes, a, stride, out, ld, cols), an inline function whose
// first two arguments are constants: ONE, TWO or MANY groups at a time for one, two or more tokens, so that enough
// sums are in flight, and MAX_M tokens at a time, so that they fit the registers.
#define MATMUL(NAME, TILE, GROUP_BYTES, MAX_M, ONE, TWO, MANY) \
	KERNEL void NAME(const void *w, const void *a, size_t stride, float *out, size_t ld, int cols, int lo, int hi, \
		int n) { \
		const size_t size = GROUP_BYTES(cols); \
		for (int t0 = 0; t0 < n; t0 += TOKENS) { \
			const int t1 = t0 + TOKENS < n ? t0 + TOKENS : n; \
			int g = lo; \
			if (t1 - t0 == 1) \
				for (; g + ONE <= hi; g += ONE) TILES(TILE, ONE, 1) \
			if (t1 - t0 == 2) \
				for (; g + TWO <= hi; g += TWO) TILES(TILE, TWO, 2) \
			if (t1 - t0 > 2) \
				for (; g + MANY <= hi; g += MANY) TILES(TILE, MANY, MAX_M) \
			for (; g < hi; g++) TILES(TILE, 1, MANY > 1 ? 1 : MAX_M) \
		} \
	}

// share is how many of n tokens the next tile takes: as few tiles as can be, of nearly equal size.
INLINE int share(int n, const int most) {
	const int tiles = (n + most - 1) / most;
	return (n + tiles - 1) / tiles;
}

// TILES runs tokens [t0, t1) past G groups, MAX_M at most at a time. Cases that MAX_M rules out are not compiled.
#define TILES(TILE, G, MAX_M) \
	for (int t = t0, m; t < t1; t += m) { \
		m = share(t1 - t, MAX_M); \
		const char *wg = (const char *)w + g * size, *at = (const char *)a + t * stride; \
		float *o = out + t * ld + g * OUT_A_GROUP; \
		switch (m) { \
		case 1: TILE(G, 1, wg, size, at, stride, o, ld, cols); break; \
		case 2: if (MAX_M >= 2) TILE(G, MAX_M < 2 ? 1 : 2, wg, size, at, stride, o, ld, cols); break; \
		case 3: if (MAX_M >= 3) TILE(G, MAX_M < 3 ? 1 : 3, wg, size, at, stride, o, ld, cols); break; \
		case 4: if (MAX_M >= 4) TILE(G, MAX_M < 4 ? 1 : 4, wg, size, at, stride, o, ld, cols); break; \
		case 5: if (MAX_M >= 5) TILE(G, MAX_M < 5 ? 1 : 5, wg, size, at, stride, o, ld, cols); break; \
		case 6: if (MAX_M >= 6) TILE(G, MAX_M < 6 ? 1 : 6, wg, size, at, stride, o, ld, cols); break; \
		case 7: if (MAX_M >= 7) TILE(G, MAX_M < 7 ? 1 : 7, wg, size, at, stride, o, ld, cols); break; \
		case 8: if (MAX_M >= 8) TILE(G, MAX_M < 8 ? 1 : 8, wg, size, at, stride, o, ld, cols); break; \
		} \
	}

#endif
