//go:build cgo && amd64

// The kernels: what Go calls, and the layouts that they share. All matrices are packed in groups of 8 rows, lane = row.
#ifndef BERTH_KERNELS_H
#define BERTH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// Packed weights: one struct holds 8 rows of one block (32 or 256 columns). Dense types are [column][8 rows].
typedef struct { uint16_t d[8]; int8_t q[16][8][2]; } q8_0_group;                 // 272 B: columns in pairs
typedef struct { uint16_t d[8]; uint8_t high[32]; uint8_t q[4][32]; } q5_0_group; // 176 B: fours, low | high nibble
typedef struct { uint16_t d[8]; uint8_t q[4][32]; } q4_0_group;                             // 144 B
typedef struct { uint16_t d[8]; uint8_t q[8][8][2]; } iq4_nl_group;                     // 144 B
typedef struct { uint16_t d[8], m[8]; uint8_t high[32]; uint8_t q[4][32]; } q5_1_group; // 192 B: Q4_1 too
typedef struct { uint8_t e[8]; uint8_t q[8][8][2]; } mxfp4_group;                       // 136 B: pairs, low | high nibble
typedef struct { float d[8]; uint8_t q[8][8][2]; } iq4_xs_group;                        // 160 B
typedef struct { // 1216 B
	uint16_t d[8], dmin[8];
	uint8_t scale[8][8], min[8][8]; // by sub-block of 32, by row
	uint8_t q[4][8][32];            // pairs of sub-blocks share bytes: low | high nibble
} q4_k_group;
typedef struct { // 1472 B
	uint16_t d[8], dmin[8];
	uint8_t scale[8][8], min[8][8];
	uint8_t q[4][8][32];
	uint8_t high[8][32]; // by sub-block: bit c is the fifth of four c
} q5_k_group;
typedef struct { uint16_t d[8]; int8_t scale[16][8]; uint8_t q[64][32]; } q6_k_group; // 2192 B: codes 0-63 as bytes
typedef struct { // 800 B: four fours of 2-bit codes share bytes
	uint16_t d[8], dmin[8];
	int8_t scale[16][8], min[16][8];
	uint8_t q[16][32];
} q2_k_group;

// Quantised activations, one token after the other, a scale for each 32.
typedef struct { float d; int16_t q[32]; } act_i16; // for weights of 8 bits, and of codes for those
typedef struct {                                    // for the others
	float d, dsum;  // dsum = d · Σ q
	int16_t sum[2]; // Σ q of the first and the last 16
	int8_t q[32];
} act_i8;

// The greedy head's view of Q8_0 (scan.c).
typedef struct { uint16_t d[8]; uint8_t rest[8], high[32], q[4][32]; } scan_group; // 184 B
typedef struct { float k, n, c; int8_t q[32]; } act_scan;                // scale of codes, of rest, and a constant
typedef struct { float product; int32_t row; } choice;

// matmul is out[t·ld + row] = w[row] · a[t] for groups [lo, hi) and n tokens; stride is bytes from token to token.
typedef void matmul(const void *w, const void *a, size_t stride, float *out, size_t ld, int cols, int lo, int hi,
	int n);
matmul matmul_f32, matmul_f16, matmul_bf16;
#define BY_LEVEL(F) matmul F##_avx2, F##_vnni // see vec.h
BY_LEVEL(matmul_q8_0); BY_LEVEL(matmul_mxfp4); BY_LEVEL(matmul_iq4_nl); BY_LEVEL(matmul_iq4_xs);
BY_LEVEL(matmul_q4_0); BY_LEVEL(matmul_q5_0); BY_LEVEL(matmul_q5_1);
BY_LEVEL(matmul_q2_k); BY_LEVEL(matmul_q4_k); BY_LEVEL(matmul_q5_k); BY_LEVEL(matmul_q6_k);

// pack writes one group from up to 8 stored rows that are row_bytes apart; missing rows are zero.
typedef void pack(const void *rows, size_t row_bytes, int n, void *group, int cols);
pack pack_f32, pack_16, pack_q8_0, pack_q4_0, pack_q4_1, pack_q5_0, pack_q5_1, pack_mxfp4, pack_iq4_nl, pack_iq4_xs;
pack pack_q2_k, pack_q3_k, pack_q4_k, pack_q5_k, pack_q6_k;

// gather writes row r of a packed matrix times scale.
typedef void gather(const void *w, int cols, int r, float scale, float *out);
gather gather_f32, gather_f16, gather_bf16, gather_q8_0, gather_q4_0, gather_q5_0, gather_q5_1;
gather gather_mxfp4, gather_iq4_nl, gather_iq4_xs;
gather gather_q2_k, gather_q4_k, gather_q5_k, gather_q6_k;

// quantise writes cols activations x in a format.
typedef void quantise(const float *x, void *out, int cols);
quantise quantise_i16, quantise_i8;

// scan_q8_0 writes one bound for a group of 8 rows: out[t·ld + group].
matmul scan_q8_0_avx2, scan_q8_0_vnni;
int pack_scan_q8_0(const void *group, void *out, int cols);
void scan_vector(const act_i16 *x, act_scan *out, int cols, float reach);
void scan_lead(const void *w, const act_i16 *x, int cols, int rows, const float *bound, int parts, choice *best);
void scan_settle(const void *w, const act_i16 *x, int cols, int rows, const float *bound, int lo, int hi, choice *best);

// Kernels chosen by level (AVX2 or VNNI) and number: what Go calls.
enum { AVX2, AVX512VNNI };
void multiply(int level, int type, const void *w, const void *a, size_t stride, float *out, size_t ld, int cols,
	int lo, int hi, int n);
void scan(int level, const void *w, const void *a, size_t stride, float *out, size_t ld, int cols, int lo, int hi,
	int n);
size_t group_bytes(int type, int cols); // of 8 packed rows
void pack_group(int type, const void *rows, size_t row_bytes, int n, void *group, int cols);
void gather_row(int type, const void *w, int cols, int r, float scale, float *out);
void quantise_to(int format, const float *x, void *out, int cols);

void rmsnorm(const float *x, const float *w, float *out, int cols, float eps);
void rmsnorm_add(float *x, const float *branch, const float *w, int cols, float eps);
void add(float *x, const float *branch, int cols);
void add_scaled(float *x, const float *branch, float weight, int cols);
void rope(float *x, const float *cos, const float *sin, int head_dim);
void gated_gelu(const float *gate, const float *up, float *out, int n);
void gated_silu(const float *gate, const float *up, float *out, int n);
void gated_clamped(const float *gate, const float *up, float *out, int n, float limit, float alpha);

// kv is one key head of one layer in the pages.
typedef struct {
	const char *pages;
	size_t page_bytes, key_offset, value_offset; // bytes; keys in a page, values from keys
	int block_shift, head_dim, half, window;     // window 0: full attention
	float scale, cap; // cap: of soften in attention.c, 0 for none
	const float *sinks; // [heads], null for none
} kv;
void kv_store(void *key, size_t value_offset, const float *k, const float *v, int head_dim, int half);
void attend(const kv *c, const int32_t *table, const float *q, float *out, size_t stride, int heads, int pos, int n);

// has_f16c tells whether the processor converts halves, has_vnni whether the level AVX512VNNI runs here.
int has_f16c(void);
int has_vnni(void);

#endif
