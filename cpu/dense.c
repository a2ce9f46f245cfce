//go:build cgo && amd64

// F32, F16 and BF16 weights × f32 activations.
//
// Maths:    y = Σ_k w[k] · x[k].
// Layout:   [column][8 rows]; 16-bit types are widened as they are loaded.
// Numerics: one fma a column, columns ascending. One sum alone would wait 4 cycles for each fma, so one token takes 8
//           groups at a time, two take 4, more take 2: 8 to 12 sums in flight.
// Bytes:    4 or 2 a weight.
#include "matmul.h"

#define DENSE(TYPE, BYTES, LOAD) \
	INLINE void tile_##TYPE(const int G, const int M, const char *w, size_t size, const char *a, size_t stride, \
		float *out, size_t ld, int cols) { \
		__m256 f[8][6]; \
		const float *x[6]; \
		UNROLL for (int m = 0; m < M; m++) { \
			x[m] = (const float *)(a + m * stride); \
			UNROLL for (int g = 0; g < G; g++) f[g][m] = _mm256_setzero_ps(); \
		} \
		for (int k = 0; k < cols; k++) { \
			__m256 q[8]; \
			UNROLL for (int g = 0; g < G; g++) q[g] = LOAD(w + g * size + (size_t)k * 8 * BYTES); \
			UNROLL for (int m = 0; m < M; m++) { \
				const __m256 y = _mm256_broadcast_ss(x[m] + k); \
				UNROLL for (int g = 0; g < G; g++) { \
					f[g][m] = _mm256_fmadd_ps(q[g], y, f[g][m]); \
					KEEP(f[g][m]); \
				} \
			} \
		} \
		UNROLL for (int g = 0; g < G; g++) \
			UNROLL for (int m = 0; m < M; m++) _mm256_storeu_ps(out + m * ld + g * 8, f[g][m]); \
	} \
	MATMUL(matmul_##TYPE, tile_##TYPE, GROUP_BYTES_##BYTES, 6, 8, 4, 2) \
	KERNEL void gather_##TYPE(const void *w, int cols, int r, float scale, float *out) { \
		const char *g = (const char *)w + (size_t)(r / 8) * GROUP_BYTES_##BYTES(cols); \
		for (int k = 0; k < cols; k++) { \
			float v[8]; \
			_mm256_storeu_ps(v, LOAD(g + (size_t)k * 8 * BYTES)); \
			out[k] = v[r % 8] * scale; \
		} \
	}

#define GROUP_BYTES_2(cols) ((size_t)(cols) * 16)
#define GROUP_BYTES_4(cols) ((size_t)(cols) * 32)
#define FLOATS(p) _mm256_loadu_ps((const float *)(p))

DENSE(f32, 4, FLOATS)
DENSE(f16, 2, halves)
DENSE(bf16, 2, bfloats)

static void interleave(const char *rows, size_t row_bytes, int n, char *group, int cols, size_t bytes) {
	memset(group, 0, (size_t)cols * 8 * bytes);
	for (int r = 0; r < n; r++)
		for (int k = 0; k < cols; k++) memcpy(group + ((size_t)k * 8 + r) * bytes, rows + r * row_bytes + k * bytes, bytes);
}

void pack_f32(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	interleave(rows, row_bytes, n, group, cols, 4);
}

void pack_16(const void *rows, size_t row_bytes, int n, void *group, int cols) {
	interleave(rows, row_bytes, n, group, cols, 2);
}
