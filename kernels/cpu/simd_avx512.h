/* simd_avx512.h - sixteen floats as one AVX-512 register: the v16 of simd_avx2.h, bit by bit. */
#ifndef REFRAIN_KERNELS_CPU_SIMD_AVX512_H
#define REFRAIN_KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/simd.h"

/* Rows and panels of the float micro-kernel (tile.h): one register per 16 sums, of 32. */
enum { TILE_ROWS = 8, TILE_WIDTH_MANY = 2, TILE_WIDTH_4 = 4, TILE_WIDTH_3 = 4, TILE_WIDTH_2 = 4 };

typedef __m512 v16;

INLINE v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}

INLINE v16 v16_broadcast(const float *x)
{
    return _mm512_set1_ps(*x);
}

INLINE v16 v16_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

INLINE void v16_store(float *x, v16 v)
{
    _mm512_storeu_ps(x, v);
}

/* First `count` lanes; below 0 and above 16 as 0 and 16. */
INLINE __mmask16 lanes_mask(int count)
{
    return (__mmask16)(count >= 16 ? 0xffffu : count <= 0 ? 0 : (1u << count) - 1);
}

INLINE v16 v16_load_some(const float *x, uint32_t count)
{
    return _mm512_maskz_loadu_ps(lanes_mask((int)count), x);
}

INLINE void v16_store_some(float *x, uint32_t count, v16 v)
{
    _mm512_mask_storeu_ps(x, lanes_mask((int)count), v);
}

INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* 32 registers: the compiler needs none of the help of simd_avx2.h. */
INLINE void v16_add_product(v16 *sum, v16 a, v16 b)
{
    *sum = _mm512_fmadd_ps(a, b, *sum);
}

INLINE const void *load_again(const void *pointer)
{
    return pointer;
}

INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

INLINE float v16_sum_lanes(v16 v)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

INLINE float v16_max_lanes(v16 v)
{
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

INLINE v16 v16_hide(v16 v, int first, int end)
{
    const v16 lowest = _mm512_castsi512_ps(_mm512_set1_epi32((int)0xff800000u));
    return _mm512_mask_mov_ps(lowest, (__mmask16)(lanes_mask(end) & ~lanes_mask(first)), v);
}

INLINE v16 v16_load_even(const uint8_t *pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(pairs), 16));
}

INLINE v16 v16_load_odd(const uint8_t *pairs)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(pairs), _mm512_set1_epi32((int)0xffff0000u)));
}

INLINE v16 v16_load_f16(const uint8_t *halves)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves));
}

INLINE v16 v16_load_i8(const uint8_t *bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)bytes)));
}

INLINE bool v16_any_above(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}

INLINE v16 v16_exp2(v16 x)
{
    const v16 magic = _mm512_set1_ps(ROUND_MAGIC);
    x = _mm512_max_ps(x, _mm512_set1_ps(EXP2_LOWEST));
    v16 n = _mm512_add_ps(x, magic), r = _mm512_sub_ps(x, _mm512_sub_ps(n, magic));
    v16 p = _mm512_set1_ps(EXP2_Q4);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_Q3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_Q2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_Q1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_Q0));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512i power = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), power));
}

INLINE v16 v16_exp(v16 x)
{
    const v16 lowest = _mm512_set1_ps(EXP_LOWEST);
    v16 clamped = _mm512_min_ps(_mm512_max_ps(x, lowest), _mm512_set1_ps(EXP_HIGHEST));
    v16 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(LOG2_E)),
                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    v16 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_HIGH), clamped);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_LOW), r);
    v16 q = _mm512_set1_ps(EXP_Q4);
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_Q3));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_Q2));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_Q1));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_Q0));
    v16 p = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    p = _mm512_scalef_ps(p, n); /* a power of two: exact, as the multiplication of AVX2 is */
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_GE_OQ), p);
}

#endif
