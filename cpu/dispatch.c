//go:build cgo && amd64

// By type number: the kernel of a weight type (GGUF's numbers), and of an activation format (formats_cgo.go's).
#include "kernels.h"

enum { INT16X32 = 1, INT8X32 = 2 };

// kind is what is computed with a stored type: how 8 rows are packed, their size for `columns` columns, and kernels by
// level. Types that share all but how they are packed are one type's values in another's form, bit for bit.
typedef struct {
	pack *pack;
	gather *gather;
	matmul *multiply[2];
	int columns, bytes;
} kind;

#define QUANTISED(PACK, NAME, COLUMNS, GROUP) \
	{pack_##PACK, gather_##NAME, {matmul_##NAME##_avx2, matmul_##NAME##_vnni}, COLUMNS, sizeof(GROUP)}
#define DENSE(PACK, NAME, BYTES) {pack_##PACK, gather_##NAME, {matmul_##NAME, matmul_##NAME}, 1, 8 * BYTES}

static const kind kinds[] = {
	[0] = DENSE(f32, f32, 4), [1] = DENSE(16, f16, 2), [30] = DENSE(16, bf16, 2),
	[2] = QUANTISED(q4_0, q4_0, 32, q4_0_group),
	[3] = QUANTISED(q4_1, q5_1, 32, q5_1_group),
	[6] = QUANTISED(q5_0, q5_0, 32, q5_0_group),
	[7] = QUANTISED(q5_1, q5_1, 32, q5_1_group),
	[8] = QUANTISED(q8_0, q8_0, 32, q8_0_group),
	[10] = QUANTISED(q2_k, q2_k, 256, q2_k_group),
	[11] = QUANTISED(q3_k, q6_k, 256, q6_k_group),
	[12] = QUANTISED(q4_k, q4_k, 256, q4_k_group),
	[13] = QUANTISED(q5_k, q5_k, 256, q5_k_group),
	[14] = QUANTISED(q6_k, q6_k, 256, q6_k_group),
	[20] = QUANTISED(iq4_nl, iq4_nl, 32, iq4_nl_group),
	[23] = QUANTISED(iq4_xs, iq4_xs, 32, iq4_xs_group),
	[39] = QUANTISED(mxfp4, mxfp4, 32, mxfp4_group),
};

size_t group_bytes(int type, int cols) { return (size_t)cols / kinds[type].columns * kinds[type].bytes; }

void multiply(int level, int type, const void *w, const void *a, size_t stride, float *out, size_t ld, int cols,
	int lo, int hi, int n) {
	kinds[type].multiply[level](w, a, stride, out, ld, cols, lo, hi, n);
}

void scan(int level, const void *w, const void *a, size_t stride, float *out, size_t ld, int cols, int lo, int hi,
	int n) {
	(level == AVX512VNNI ? scan_q8_0_vnni : scan_q8_0_avx2)(w, a, stride, out, ld, cols, lo, hi, n);
}

void pack_group(int type, const void *rows, size_t row_bytes, int n, void *group, int cols) {
	kinds[type].pack(rows, row_bytes, n, group, cols);
}

void gather_row(int type, const void *w, int cols, int r, float scale, float *out) {
	kinds[type].gather(w, cols, r, scale, out);
}

void quantise_to(int format, const float *x, void *out, int cols) {
	switch (format) {
	case INT16X32: quantise_i16(x, out, cols); break;
	case INT8X32: quantise_i8(x, out, cols); break;
	}
}

int has_f16c(void) { return __builtin_cpu_supports("f16c") != 0; }

#ifdef EMULATE
int has_vnni(void) { return 1; }
#else
int has_vnni(void) {
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512vnni");
}
#endif
