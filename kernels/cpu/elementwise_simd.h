/* elementwise_simd.h - rmsnorm, layernorm, silu_mul and gelu_mul of one row, for v16.
 *
 * A sum or a sum of squares runs in 32 lanes (column k belongs to lane k % 32), which are added up
 * in one fixed order: a row's bits depend on nothing but the row. */
#ifndef REFRAIN_KERNELS_CPU_ELEMENTWISE_SIMD_H
#define REFRAIN_KERNELS_CPU_ELEMENTWISE_SIMD_H

#include <math.h>

INLINE v16 load_tail(const float *x, uint32_t count)
{
    return count >= 16 ? v16_load(x) : v16_load_some(x, count);
}

INLINE void store_tail(float *y, uint32_t count, v16 v)
{
    if (count >= 16)
        v16_store(y, v);
    else
        v16_store_some(y, count, v);
}

INLINE v16 add_lanes(v16 sum, v16 v, const bool squares)
{
    return squares ? v16_fma(v, v, sum) : v16_add(sum, v);
}

/* Of the values of a row, or of their squares. */
INLINE float sum_of(const float *x, uint32_t columns, const bool squares)
{
    v16 sum[2] = {v16_zero(), v16_zero()};
    uint32_t k = 0;
    for (; k + 32 <= columns; k += 32) {
        UNROLL for (int i = 0; i < 2; i++) sum[i] =
            add_lanes(sum[i], v16_load(x + k + i * 16), squares);
    }
    for (int i = 0; k < columns; k += 16, i++)
        sum[i] = add_lanes(sum[i], load_tail(x + k, columns - k), squares);
    return v16_sum_lanes(v16_add(sum[0], sum[1]));
}

INLINE void rmsnorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y)
{
    v16 factor = v16_set1(1 / sqrtf(sum_of(x, columns, true) / (float)columns + eps));
    for (uint32_t k = 0; k < columns; k += 16) {
        uint32_t count = columns - k;
        v16 v = v16_mul(load_tail(x + k, count), factor);
        store_tail(y + k, count, v16_mul(v, load_tail(w + k, count)));
    }
}

/* What is left of x stands in y between the passes, so that no lane past the last column counts:
 * there 0 - mean is not 0. */
INLINE void layernorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y)
{
    v16 mean = v16_set1(sum_of(x, columns, false) / (float)columns);
    for (uint32_t k = 0; k < columns; k += 16)
        store_tail(y + k, columns - k, v16_sub(load_tail(x + k, columns - k), mean));
    rmsnorm_row(y, w, eps, columns, y);
}

INLINE void silu_mul_row(const float *gate, const float *up, uint32_t columns, float *y)
{
    for (uint32_t k = 0; k < columns; k += 16) {
        uint32_t count = columns - k;
        v16 g = load_tail(gate + k, count);
        v16 e = v16_exp(v16_sub(v16_zero(), g));
        v16 v = v16_div(g, v16_add(v16_set1(1), e));
        store_tail(y + k, count, v16_mul(v, load_tail(up + k, count)));
    }
}

/* x / 2 * (1 + tanh(u)) = x / (1 + exp(-2 u)) */
INLINE void gelu_mul_row(const float *gate, const float *up, uint32_t columns, float *y)
{
    const v16 linear = v16_set1(-1.5957691216057308f); /* -2 sqrt(2 / pi) */
    const v16 cubic = v16_set1(-1.5957691216057308f * 0.044715f);
    for (uint32_t k = 0; k < columns; k += 16) {
        uint32_t count = columns - k;
        v16 g = load_tail(gate + k, count);
        v16 u = v16_mul(g, v16_fma(v16_mul(g, g), cubic, linear));
        v16 v = v16_div(g, v16_add(v16_set1(1), v16_exp(u)));
        store_tail(y + k, count, v16_mul(v, load_tail(up + k, count)));
    }
}

INLINE void exp_values(const float *x, float *y, uint32_t count)
{
    for (uint32_t k = 0; k < count; k += 16)
        store_tail(y + k, count - k, v16_exp(load_tail(x + k, count - k)));
}

#endif
