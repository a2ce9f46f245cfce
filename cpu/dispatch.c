//go:build cgo && amd64

// By type number: the kernel of a weight type (GGUF's numbers), and of an activation format (formats_cgo.go's).
#include "kernels.h"

enum { F32 = 0, F16 = 1, Q5_0 = 6, Q8_0 = 8, Q4_K = 12, Q6_K = 14, BF16 = 30 };
enum { INT16X32 = 1, INT8X32 = 2 };

void multiply(int level, int type, const void *w, const void *a, size_t stride, float *out, size_t ld, int cols,
	int lo, int hi, int n) {
	const int vnni = level == AVX512VNNI;
	matmul *f = matmul_f32;
	switch (type) {
	case F16: f = matmul_f16; break;
	case BF16: f = matmul_bf16; break;
	case Q8_0: f = vnni ? matmul_q8_0_vnni : matmul_q8_0_avx2; break;
	case Q5_0: f = vnni ? matmul_q5_0_vnni : matmul_q5_0_avx2; break;
	case Q4_K: f = vnni ? matmul_q4_k_vnni : matmul_q4_k_avx2; break;
	case Q6_K: f = vnni ? matmul_q6_k_vnni : matmul_q6_k_avx2; break;
	}
	f(w, a, stride, out, ld, cols, lo, hi, n);
}

void scan(int level, const void *w, const void *a, size_t stride, float *out, size_t ld, int cols, int lo, int hi,
	int n) {
	(level == AVX512VNNI ? scan_q8_0_vnni : scan_q8_0_avx2)(w, a, stride, out, ld, cols, lo, hi, n);
}

void pack_group(int type, const void *rows, size_t row_bytes, int n, void *group, int cols) {
	pack *f = pack_f32;
	switch (type) {
	case F16: case BF16: f = pack_16; break;
	case Q8_0: f = pack_q8_0; break;
	case Q5_0: f = pack_q5_0; break;
	case Q4_K: f = pack_q4_k; break;
	case Q6_K: f = pack_q6_k; break;
	}
	f(rows, row_bytes, n, group, cols);
}

void gather_row(int type, const void *w, int cols, int r, float scale, float *out) {
	gather *f = gather_f32;
	switch (type) {
	case F16: f = gather_f16; break;
	case BF16: f = gather_bf16; break;
	case Q8_0: f = gather_q8_0; break;
	case Q5_0: f = gather_q5_0; break;
	case Q4_K: f = gather_q4_k; break;
	case Q6_K: f = gather_q6_k; break;
	}
	f(w, cols, r, scale, out);
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
