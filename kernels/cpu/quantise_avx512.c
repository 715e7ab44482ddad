/* quantise_avx512.c - activations to int8 in groups of 32: the arithmetic of quantise_avx2.c, and
 * the sums of both halves of a group. */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd_avx512.h"

#define SMALLEST 1e-30f

INLINE __m512 absolute(__m512 v)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), v);
}

INLINE void quantise_group(const float *x, int8_t *q, float *scale_sum, int16_t *half_sum)
{
    __m512 v0 = _mm512_loadu_ps(x), v1 = _mm512_loadu_ps(x + 16);
    float absmax = v16_max_lanes(_mm512_max_ps(absolute(v0), absolute(v1)));
    float scale = absmax < SMALLEST ? 0 : absmax / 127;
    __m512 inverse = _mm512_set1_ps(absmax < SMALLEST ? 0 : 127 / absmax);
    __m128i q0 = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v0, inverse)));
    __m128i q1 = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v1, inverse)));
    _mm_storeu_si128((__m128i *)q, q0);
    _mm_storeu_si128((__m128i *)q + 1, q1);
    /* Lanes 0..3: the first half's sums of 4, lanes 4..7 the second's. */
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(q0), q1, 1);
    __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), both);
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
    int32_t first = _mm256_cvtsi256_si32(s), second = _mm256_extract_epi32(s, 4);
    scale_sum[0] = scale;
    scale_sum[1] = scale * (float)(first + second);
    half_sum[0] = (int16_t)first;
    half_sum[1] = (int16_t)second;
}

void avx512_quantise_row(const float *x, uint32_t columns, const struct quant_rows *to)
{
    for (size_t g = 0; g < columns / GROUP; g++)
        quantise_group(x + g * GROUP, to->q + g * GROUP, to->scale_sums + g * 2,
                       to->half_sums + g * 2);
}
