/* quantise_avx2.c - activations to int8 in groups of 32: scale = absmax / 127, round to even.
 *
 * The scale times the group's sum of q is kept too: it multiplies the weights' min. So are the sums
 * of both halves, for classes with a min each.
 * A group smaller than 1e-30 counts as zeros, so that 127 / absmax stays finite. */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/simd_avx2.h"

#define SMALLEST 1e-30f

INLINE __m256 absolute(__m256 v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* Sums of the first and of the second 16. */
INLINE void sum_halves(__m256i q, int32_t ret_sums[2])
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    quads = _mm256_add_epi32(quads, _mm256_shuffle_epi32(quads, 0x4e));
    quads = _mm256_add_epi32(quads, _mm256_shuffle_epi32(quads, 0xb1));
    ret_sums[0] = _mm256_cvtsi256_si32(quads);
    ret_sums[1] = _mm256_extract_epi32(quads, 4);
}

INLINE void quantise_group(const float *x, int8_t *q, float *scale_sum, int16_t *half_sum)
{
    __m256 v[4];
    __m256i n[4];
    int32_t sums[2];
    UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + i * 8);
    __m256 largest = _mm256_max_ps(_mm256_max_ps(absolute(v[0]), absolute(v[1])),
                                   _mm256_max_ps(absolute(v[2]), absolute(v[3])));
    float absmax = v16_max_lanes(v16_of(largest, largest));
    float scale = absmax < SMALLEST ? 0 : absmax / 127;
    __m256 inverse = _mm256_set1_ps(absmax < SMALLEST ? 0 : 127 / absmax);
    UNROLL for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, bytes);
    sum_halves(bytes, sums);
    scale_sum[0] = scale;
    scale_sum[1] = scale * (float)(sums[0] + sums[1]);
    half_sum[0] = (int16_t)sums[0];
    half_sum[1] = (int16_t)sums[1];
}

void avx2_quantise_row(const float *x, uint32_t columns, const struct quant_rows *to)
{
    for (uint32_t g = 0; g < columns / GROUP; g++)
        quantise_group(x + (size_t)g * GROUP, to->q + (size_t)g * GROUP,
                       to->scale_sums + (size_t)g * 2, to->half_sums + (size_t)g * 2);
}
