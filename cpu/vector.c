//go:build cgo && amd64

// Operations along one vector: norms, residual, rope, gated activations.
//
// Numerics: Σ x² uses four accumulators of 8 lanes, element i in accumulator (i/8) mod 4, summed (0+1)+(2+3), then the
//           tree of vec.h; 1/√ is a correctly rounded square root and division. Lengths are multiples of 8. A norm is
//           never split.
// Bytes:    reads each input once (norms twice, from the first-level cache), writes the output once.
#include "kernels.h"
#include "vec.h"

// inverse_rms is 1 / √(mean x² + eps).
INLINE float inverse_rms(const float *x, int cols, float eps) {
	__m256 s[4];
	for (int j = 0; j < 4; j++) s[j] = _mm256_setzero_ps();
	int i = 0;
	for (; i + 32 <= cols; i += 32)
		UNROLL for (int j = 0; j < 4; j++) {
			const __m256 v = _mm256_loadu_ps(x + i + 8 * j);
			s[j] = _mm256_fmadd_ps(v, v, s[j]);
		}
	UNROLL for (int j = 0; j < 3; j++)
		if (i + 8 * j < cols) {
			const __m256 v = _mm256_loadu_ps(x + i + 8 * j);
			s[j] = _mm256_fmadd_ps(v, v, s[j]);
		}
	const float sum = tree(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
	return 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(sum / (float)cols + eps)));
}

KERNEL void rmsnorm(const float *x, const float *w, float *out, int cols, float eps) {
	const __m256 k = _mm256_set1_ps(inverse_rms(x, cols, eps));
	for (int i = 0; i < cols; i += 8)
		_mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), k), _mm256_loadu_ps(w + i)));
}

// rmsnorm_add is x += rmsnorm(branch).
KERNEL void rmsnorm_add(float *x, const float *branch, const float *w, int cols, float eps) {
	const __m256 k = _mm256_set1_ps(inverse_rms(branch, cols, eps));
	for (int i = 0; i < cols; i += 8) {
		const __m256 v = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(branch + i), k), _mm256_loadu_ps(w + i));
		_mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), v));
	}
}

KERNEL void add(float *x, const float *branch, int cols) {
	for (int i = 0; i < cols; i += 8)
		_mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(branch + i)));
}

// add_scaled is x += weight · branch.
KERNEL void add_scaled(float *x, const float *branch, float weight, int cols) {
	const __m256 w = _mm256_set1_ps(weight);
	for (int i = 0; i < cols; i += 8)
		_mm256_storeu_ps(x + i, _mm256_fmadd_ps(w, _mm256_loadu_ps(branch + i), _mm256_loadu_ps(x + i)));
}

// rope turns the pairs (i, i + head_dim/2) of one head by the angles whose cos and sin are given.
KERNEL void rope(float *x, const float *cos, const float *sin, int head_dim) {
	float *y = x + head_dim / 2;
	for (int i = 0; i < head_dim / 2; i += 8) {
		const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(y + i);
		const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
		_mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
		_mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
	}
}

// logistic is x / (1 + e^−u).
INLINE __m256 logistic(__m256 x, __m256 u) {
	const __m256 e = exponential(_mm256_sub_ps(_mm256_setzero_ps(), u));
	return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

// gated_gelu is gelu(gate) ⊙ up by tanh: x/2 (1 + tanh v) = x / (1 + e^−2v), v = √(2/π)(x + 0.044715 x³).
KERNEL void gated_gelu(const float *gate, const float *up, float *out, int n) {
	for (int i = 0; i < n; i += 8) {
		const __m256 x = _mm256_loadu_ps(gate + i);
		const __m256 cubic = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(0.044715f), _mm256_set1_ps(1.0f));
		const __m256 u = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(1.5957691216f), x), cubic);
		_mm256_storeu_ps(out + i, _mm256_mul_ps(logistic(x, u), _mm256_loadu_ps(up + i)));
	}
}

// gated_silu is x / (1 + e^−x) ⊙ up, x the gate.
KERNEL void gated_silu(const float *gate, const float *up, float *out, int n) {
	for (int i = 0; i < n; i += 8) {
		const __m256 x = _mm256_loadu_ps(gate + i);
		_mm256_storeu_ps(out + i, _mm256_mul_ps(logistic(x, x), _mm256_loadu_ps(up + i)));
	}
}

// gated_clamped is x / (1 + e^−αx) · (y + 1), x the gate, at most the limit, y up, within it on both sides. The order of
// operands lets a NaN through.
KERNEL void gated_clamped(const float *gate, const float *up, float *out, int n, float limit, float alpha) {
	const __m256 hi = _mm256_set1_ps(limit), lo = _mm256_set1_ps(-limit), a = _mm256_set1_ps(alpha);
	for (int i = 0; i < n; i += 8) {
		const __m256 x = _mm256_min_ps(hi, _mm256_loadu_ps(gate + i));
		const __m256 y = _mm256_max_ps(lo, _mm256_min_ps(hi, _mm256_loadu_ps(up + i)));
		const __m256 g = logistic(x, _mm256_mul_ps(a, x));
		_mm256_storeu_ps(out + i, _mm256_mul_ps(g, _mm256_add_ps(y, _mm256_set1_ps(1.0f))));
	}
}
