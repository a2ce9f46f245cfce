//go:build cgo && amd64

// Attention of query heads that share one key head, over paged keys and values.
//
// Maths:    out = Σ_p softmax_p(s[p]) v[p], p over (pos − window, pos], s[p] = scale · q·k[p], softly capped if asked for.
//           A head's sink is one score more, without a value: the first partial has its maximum and sum.
// Shapes:   q, out [tokens][heads][head_dim], tokens `stride` floats apart; keys and values [token in block][head_dim].
// Numerics: positions are taken in tiles of 64, aligned to absolute position 0. In a tile: q·k is one 8-lane
//           accumulator and the tree of vec.h; the maximum m; weights e^(s−m), their sum l by a fixed tree; o = Σ w·v,
//           positions ascending. A position that is out of sight is not loaded: its score is −∞, its weight 0. Tiles
//           merge ascending: (m, l, o) ∪ (m', l', o') = with M = max(m, m'): l·e^(m−M) + l'·e^(m'−M), and o alike.
//           Nothing here depends on the block size, on which token of a chunk this is, or on which heads go together.
// Bytes:    each token reads its keys and values once for up to 4 heads.
#include "kernels.h"
#include "vec.h"

enum { TILE = 64, STRIP = 16, MAX_HEAD = 512 };

INLINE __m256 element8(const char *p, int i, const int half) {
	return half ? halves(p + 2 * i) : _mm256_loadu_ps((const float *)p + i);
}

// locate writes the addresses of the keys at positions [lo, hi).
INLINE void locate(const kv *c, const int32_t *table, int lo, int hi, const char **key) {
	const int mask = (1 << c->block_shift) - 1;
	const size_t row = (size_t)c->head_dim * (c->half ? 2 : 4);
	for (int p = lo; p < hi; p++) {
		const char *page = c->pages + (size_t)table[p >> c->block_shift] * c->page_bytes;
		key[p - lo] = page + c->key_offset + (size_t)(p & mask) * row;
	}
}

// dots is the scores of N keys with H heads.
INLINE void dots(const int H, const int N, const kv *c, const char **key, const float *q, float (*score)[TILE], int at,
	const int half) {
	__m256 a[8][4];
	UNROLL for (int n = 0; n < N; n++) UNROLL for (int h = 0; h < H; h++) a[n][h] = _mm256_setzero_ps();
	for (int i = 0; i < c->head_dim; i += 8) {
		__m256 x[4];
		UNROLL for (int h = 0; h < H; h++) x[h] = _mm256_loadu_ps(q + h * c->head_dim + i);
		UNROLL for (int n = 0; n < N; n++) {
			const __m256 k = element8(key[n], i, half);
			UNROLL for (int h = 0; h < H; h++) a[n][h] = _mm256_fmadd_ps(k, x[h], a[n][h]);
		}
	}
	UNROLL for (int n = 0; n < N; n++) {
		float s[4];
		const __m128 sums = tree4(a[n][0], a[n][H > 1], a[n][H > 2 ? 2 : 0], a[n][H > 3 ? 3 : 0]);
		_mm_storeu_ps(s, _mm_mul_ps(sums, _mm_set1_ps(c->scale)));
		UNROLL for (int h = 0; h < H; h++) score[h][at + n] = s[h];
	}
}

// soften is cap · tanh(s / cap) of one head's scores, by the one exponential: tanh v = (e^2v − 1) / (e^2v + 1). What is
// out of sight stays so.
INLINE void soften(float *score, float cap) {
	const __m256 never = _mm256_set1_ps(-__builtin_inff()), unit = _mm256_set1_ps(1);
	for (int i = 0; i < TILE; i += 8) {
		const __m256 s = _mm256_loadu_ps(score + i);
		const __m256 e = exponential(_mm256_min_ps(_mm256_mul_ps(s, _mm256_set1_ps(2 / cap)), _mm256_set1_ps(80)));
		const __m256 t = _mm256_div_ps(_mm256_sub_ps(e, unit), _mm256_add_ps(e, unit));
		_mm256_storeu_ps(score + i, _mm256_blendv_ps(_mm256_mul_ps(t, _mm256_set1_ps(cap)), s,
			_mm256_cmp_ps(s, never, _CMP_EQ_OQ)));
	}
}

// weigh turns one head's scores into weights; it gives their maximum and sum.
INLINE float weigh(float *score, float *sum) {
	__m256 m = _mm256_loadu_ps(score);
	UNROLL for (int i = 8; i < TILE; i += 8) m = _mm256_max_ps(m, _mm256_loadu_ps(score + i));
	const float max = top(m);
	__m256 w[8];
	UNROLL for (int i = 0; i < 8; i++) {
		w[i] = exponential(_mm256_sub_ps(_mm256_loadu_ps(score + 8 * i), _mm256_set1_ps(max)));
		_mm256_storeu_ps(score + 8 * i, w[i]);
	}
	*sum = tree(_mm256_add_ps(_mm256_add_ps(_mm256_add_ps(w[0], w[1]), _mm256_add_ps(w[2], w[3])),
		_mm256_add_ps(_mm256_add_ps(w[4], w[5]), _mm256_add_ps(w[6], w[7]))));
	return max;
}

// mix adds weight · value of n positions to o [H][head_dim], a strip of positions at a time so that values stay in the
// first-level cache.
INLINE void mix(const int H, const kv *c, const char **key, float (*weight)[TILE], int at, int n, float *o,
	const int half) {
	for (int s = 0; s < n; s += STRIP) {
		const int e = s + STRIP < n ? s + STRIP : n;
		for (int i = 0; i < c->head_dim; i += 16) {
			__m256 a[4][2];
			UNROLL for (int h = 0; h < H; h++) {
				a[h][0] = _mm256_loadu_ps(o + h * c->head_dim + i);
				a[h][1] = _mm256_loadu_ps(o + h * c->head_dim + i + 8);
			}
			for (int p = s; p < e; p++) {
				const char *v = key[p] + c->value_offset;
				const __m256 v0 = element8(v, i, half), v1 = element8(v, i + 8, half);
				UNROLL for (int h = 0; h < H; h++) {
					const __m256 w = _mm256_broadcast_ss(&weight[h][at + p]);
					a[h][0] = _mm256_fmadd_ps(w, v0, a[h][0]);
					a[h][1] = _mm256_fmadd_ps(w, v1, a[h][1]);
				}
			}
			UNROLL for (int h = 0; h < H; h++) {
				_mm256_storeu_ps(o + h * c->head_dim + i, a[h][0]);
				_mm256_storeu_ps(o + h * c->head_dim + i + 8, a[h][1]);
			}
		}
	}
}

// merge adds the partial (max, sum, part) to (*m, *l, o); scale_by is e^x of a scalar by the one exponential.
INLINE float scale_by(float x) { return _mm256_cvtss_f32(exponential(_mm256_set1_ps(x))); }

INLINE void merge(float *m, float *l, float *o, float max, float sum, const float *part, int head_dim) {
	const float both = *m > max ? *m : max;
	const float a = scale_by(*m - both), b = scale_by(max - both);
	*m = both;
	*l = *l * a + sum * b;
	for (int i = 0; i < head_dim; i += 8)
		_mm256_storeu_ps(o + i, _mm256_fmadd_ps(_mm256_set1_ps(b), _mm256_loadu_ps(part + i),
			_mm256_mul_ps(_mm256_set1_ps(a), _mm256_loadu_ps(o + i))));
}

// one is one token's H heads.
INLINE void one(const int H, const kv *c, const int32_t *table, const float *sinks, const float *q, float *out, int pos,
	const int half) {
	const float never = -__builtin_inff();
	float score[4][TILE], part[4 * MAX_HEAD], m[4], l[4];
	const char *key[TILE];
	for (int h = 0; h < H; h++) m[h] = sinks ? sinks[h] : never, l[h] = sinks ? 1 : 0;
	memset(out, 0, (size_t)H * c->head_dim * 4);
	const int first = c->window && pos + 1 > c->window ? pos + 1 - c->window : 0;
	for (int tile = first / TILE * TILE; tile <= pos; tile += TILE) {
		const int lo = first > tile ? first - tile : 0, hi = pos + 1 - tile < TILE ? pos + 1 - tile : TILE;
		for (int h = 0; h < H; h++)
			for (int i = 0; i < TILE; i++) score[h][i] = never;
		locate(c, table, tile + lo, tile + hi, key);
		int p = lo;
		for (; p + 8 / H <= hi; p += 8 / H) dots(H, 8 / H, c, key + p - lo, q, score, p, half);
		for (; p < hi; p++) dots(H, 1, c, key + p - lo, q, score, p, half);
		for (int h = 0; h < H && c->cap > 0; h++) soften(score[h], c->cap);
		memset(part, 0, (size_t)H * c->head_dim * 4);
		float max[4], sum[4];
		for (int h = 0; h < H; h++) max[h] = weigh(score[h], &sum[h]);
		mix(H, c, key, score, lo, hi - lo, part, half);
		for (int h = 0; h < H; h++) {
			const int head = h * c->head_dim;
			merge(&m[h], &l[h], out + head, max[h], sum[h], part + head, c->head_dim);
		}
	}
	for (int h = 0; h < H; h++, out += c->head_dim)
		for (int i = 0; i < c->head_dim; i += 8)
			_mm256_storeu_ps(out + i, _mm256_div_ps(_mm256_loadu_ps(out + i), _mm256_set1_ps(l[h])));
}

#define HEADS(NAME, HALF) \
	KERNEL static void NAME(const kv *c, const int32_t *table, const float *q, float *out, int heads, int pos) { \
		const float *s = c->sinks; \
		for (; heads >= 4; heads -= 4, q += 4 * c->head_dim, out += 4 * c->head_dim, s = s ? s + 4 : s) \
			one(4, c, table, s, q, out, pos, HALF); \
		for (; heads >= 2; heads -= 2, q += 2 * c->head_dim, out += 2 * c->head_dim, s = s ? s + 2 : s) \
			one(2, c, table, s, q, out, pos, HALF); \
		if (heads) one(1, c, table, s, q, out, pos, HALF); \
	}

HEADS(heads_half, 1)
HEADS(heads_float, 0)

KERNEL void attend(const kv *c, const int32_t *table, const float *q, float *out, size_t stride, int heads, int pos,
	int n) {
	for (int t = 0; t < n; t++)
		(c->half ? heads_half : heads_float)(c, table, q + t * stride, out + t * stride, heads, pos + t);
}

// kv_store rounds one key and one value to the page's type, ties to even.
KERNEL void kv_store(void *key, size_t value_offset, const float *k, const float *v, int head_dim, int half) {
	char *kp = key, *vp = kp + value_offset;
	for (int i = 0; i < head_dim; i += 8) {
		const __m256 a = _mm256_loadu_ps(k + i), b = _mm256_loadu_ps(v + i);
		if (half) {
			_mm_storeu_si128((__m128i *)(kp + 2 * i), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
			_mm_storeu_si128((__m128i *)(vp + 2 * i), _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT));
		} else {
			_mm256_storeu_ps((float *)kp + i, a);
			_mm256_storeu_ps((float *)vp + i, b);
		}
	}
}
