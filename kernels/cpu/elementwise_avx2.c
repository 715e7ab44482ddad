/* elementwise_avx2.c - rmsnorm and silu_mul of one row.
 *
 * The sum of squares runs in 32 lanes (column k belongs to lane k % 32), which are added up in one
 * fixed order: a row's bits depend on nothing but the row. */
#include "kernels/cpu/elementwise_avx2.h"

#include <math.h>

#include "kernels/cpu/simd_avx2.h"

INLINE __m256 load_some(const float *x, uint32_t count)
{
    return count >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes_mask(count));
}

INLINE void store_some(float *y, uint32_t count, __m256 v)
{
    if (count >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, lanes_mask(count), v);
}

static float sum_of_squares(const float *x, uint32_t columns)
{
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
    uint32_t k = 0;
    for (; k + 32 <= columns; k += 32) {
        UNROLL for (int i = 0; i < 4; i++)
        {
            __m256 v = _mm256_loadu_ps(x + k + i * 8);
            sum[i] = _mm256_fmadd_ps(v, v, sum[i]);
        }
    }
    for (int i = 0; k < columns; k += 8, i++) {
        __m256 v = load_some(x + k, columns - k);
        sum[i] = _mm256_fmadd_ps(v, v, sum[i]);
    }
    return sum_lanes(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

void avx2_rmsnorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y)
{
    float factor = 1 / sqrtf(sum_of_squares(x, columns) / (float)columns + eps);
    __m256 f = _mm256_set1_ps(factor);
    for (uint32_t k = 0; k < columns; k += 8) {
        uint32_t count = columns - k;
        __m256 v = _mm256_mul_ps(load_some(x + k, count), f);
        store_some(y + k, count, _mm256_mul_ps(v, load_some(w + k, count)));
    }
}

void avx2_silu_mul_row(const float *gate, const float *up, uint32_t columns, float *y)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    for (uint32_t k = 0; k < columns; k += 8) {
        uint32_t count = columns - k;
        __m256 g = load_some(gate + k, count);
        __m256 e = exp_ps(_mm256_xor_ps(g, sign));
        __m256 v = _mm256_div_ps(g, _mm256_add_ps(one, e));
        store_some(y + k, count, _mm256_mul_ps(v, load_some(up + k, count)));
    }
}

void avx2_exp(const float *x, float *y, uint32_t count)
{
    for (uint32_t k = 0; k < count; k += 8)
        store_some(y + k, count - k, exp_ps(load_some(x + k, count - k)));
}
