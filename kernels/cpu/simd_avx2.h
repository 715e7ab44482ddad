/* simd_avx2.h - sixteen floats as two AVX2 registers, and what the AVX2 files share.
 *
 * simd_avx512.h defines the same v16 in one register. Code that is written for v16 (tile.h,
 * attention_simd.h, elementwise_simd.h, matmul_float_simd.h) does the same operations in the same
 * order on both, so the two families give the same bits.
 * Why explicit order everywhere: the bits of a result are part of the contract, so no sum is left
 * to the compiler. */
#ifndef REFRAIN_KERNELS_CPU_SIMD_AVX2_H
#define REFRAIN_KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/simd.h"

/* Rows and panels of the float micro-kernel (tile.h): 2 registers per 16 sums, of 16. */
enum { TILE_ROWS = 6, TILE_WIDTH_MANY = 1, TILE_WIDTH_4 = 1, TILE_WIDTH_3 = 1, TILE_WIDTH_2 = 2 };

typedef struct {
    __m256 half[2];
} v16;

/* Keep a sum in its register, here and now. gcc otherwise turns a chain of integer additions into a
 * tree, whose many live values it then spills: half the speed of a micro-kernel. */
INLINE void pin(__m256i *v)
{
    __asm__("" : "+x"(*v));
}

INLINE v16 v16_of(__m256 low, __m256 high)
{
    return (v16){{low, high}};
}

INLINE v16 v16_zero(void)
{
    return v16_of(_mm256_setzero_ps(), _mm256_setzero_ps());
}

INLINE v16 v16_set1(float x)
{
    __m256 v = _mm256_set1_ps(x);
    return v16_of(v, v);
}

INLINE v16 v16_broadcast(const float *x)
{
    __m256 v = _mm256_broadcast_ss(x);
    return v16_of(v, v);
}

INLINE v16 v16_load(const float *x)
{
    return v16_of(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
}

INLINE void v16_store(float *x, v16 v)
{
    _mm256_storeu_ps(x, v.half[0]);
    _mm256_storeu_ps(x + 8, v.half[1]);
}

/* First `count` (0..8 or more) lanes of eight. */
INLINE __m256i lanes_mask(int count)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes);
}

/* The first `count` (0..16) values; the other lanes are 0 and their memory is not touched. */
INLINE v16 v16_load_some(const float *x, uint32_t count)
{
    return v16_of(_mm256_maskload_ps(x, lanes_mask((int)count)),
                  _mm256_maskload_ps(x + 8, lanes_mask((int)count - 8)));
}

INLINE void v16_store_some(float *x, uint32_t count, v16 v)
{
    _mm256_maskstore_ps(x, lanes_mask((int)count), v.half[0]);
    _mm256_maskstore_ps(x + 8, lanes_mask((int)count - 8), v.half[1]);
}

INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return v16_of(_mm256_fmadd_ps(a.half[0], b.half[0], c.half[0]),
                  _mm256_fmadd_ps(a.half[1], b.half[1], c.half[1]));
}

/* sum += a * b where the sum stands. Compilers write it over a and copy, and keep loaded values
 * which cost no more to load again: 12 sums in 16 registers bear neither. */
INLINE void v16_add_product(v16 *sum, v16 a, v16 b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum->half[0]) : "x"(a.half[0]), "x"(b.half[0]));
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum->half[1]) : "x"(a.half[1]), "x"(b.half[1]));
}

/* The same address, behind which nothing counts as loaded before. */
INLINE const void *load_again(const void *pointer)
{
    __asm__ volatile("" : "+r"(pointer));
    return pointer;
}

INLINE v16 v16_mul(v16 a, v16 b)
{
    return v16_of(_mm256_mul_ps(a.half[0], b.half[0]), _mm256_mul_ps(a.half[1], b.half[1]));
}

INLINE v16 v16_add(v16 a, v16 b)
{
    return v16_of(_mm256_add_ps(a.half[0], b.half[0]), _mm256_add_ps(a.half[1], b.half[1]));
}

INLINE v16 v16_sub(v16 a, v16 b)
{
    return v16_of(_mm256_sub_ps(a.half[0], b.half[0]), _mm256_sub_ps(a.half[1], b.half[1]));
}

INLINE v16 v16_div(v16 a, v16 b)
{
    return v16_of(_mm256_div_ps(a.half[0], b.half[0]), _mm256_div_ps(a.half[1], b.half[1]));
}

INLINE v16 v16_max(v16 a, v16 b)
{
    return v16_of(_mm256_max_ps(a.half[0], b.half[0]), _mm256_max_ps(a.half[1], b.half[1]));
}

/* Lane i + lane i + 8, then 4, 2, 1 apart. */
INLINE float v16_sum_lanes(v16 v)
{
    __m256 eight = _mm256_add_ps(v.half[0], v.half[1]);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

INLINE float v16_max_lanes(v16 v)
{
    __m256 eight = _mm256_max_ps(v.half[0], v.half[1]);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

/* v, but -infinity in lanes outside [first, end). */
INLINE v16 v16_hide(v16 v, int first, int end)
{
    const __m256 lowest = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xff800000u));
    __m256i low = _mm256_andnot_si256(lanes_mask(first), lanes_mask(end));
    __m256i high = _mm256_andnot_si256(lanes_mask(first - 8), lanes_mask(end - 8));
    return v16_of(_mm256_blendv_ps(lowest, v.half[0], _mm256_castsi256_ps(low)),
                  _mm256_blendv_ps(lowest, v.half[1], _mm256_castsi256_ps(high)));
}

/* 16 pairs of bf16: the first, or the second of each. */
INLINE v16 v16_load_even(const uint8_t *pairs)
{
    const __m256i *p = (const __m256i *)pairs;
    return v16_of(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p), 16)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p + 1), 16)));
}

INLINE v16 v16_load_odd(const uint8_t *pairs)
{
    const __m256i *p = (const __m256i *)pairs;
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    return v16_of(_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p), high)),
                  _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p + 1), high)));
}

INLINE v16 v16_load_f16(const uint8_t *halves)
{
    return v16_of(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves + 1)));
}

INLINE v16 v16_load_i8(const uint8_t *bytes)
{
    __m128i low = _mm_loadl_epi64((const __m128i *)bytes);
    __m128i high = _mm_loadl_epi64((const __m128i *)(bytes + 8));
    return v16_of(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)));
}

/* Four bytes of activations in every lane. */
INLINE __m256i broadcast_quad(const int8_t *q)
{
    int32_t quad;
    memcpy(&quad, q, sizeof(quad));
    return _mm256_set1_epi32(quad);
}

/* exp of eight; see simd.h. */
INLINE __m256 exp_ps(__m256 x)
{
    const __m256 lowest = _mm256_set1_ps(EXP_LOWEST);
    __m256 clamped = _mm256_min_ps(_mm256_max_ps(x, lowest), _mm256_set1_ps(EXP_HIGHEST));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(LOG2_E)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_HIGH), clamped);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_LOW), r);
    __m256 q = _mm256_set1_ps(EXP_Q4);
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q2));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q1));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q0));
    __m256 p = _mm256_fmadd_ps(q, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
    return _mm256_and_ps(p, _mm256_cmp_ps(x, lowest, _CMP_GE_OQ));
}

/* Whether any lane of a is above its lane of b. */
INLINE bool v16_any_above(v16 a, v16 b)
{
    __m256 low = _mm256_cmp_ps(a.half[0], b.half[0], _CMP_GT_OQ);
    __m256 high = _mm256_cmp_ps(a.half[1], b.half[1], _CMP_GT_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}

/* 2^x of eight; see simd.h. */
INLINE __m256 exp2_ps(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(ROUND_MAGIC);
    x = _mm256_max_ps(x, _mm256_set1_ps(EXP2_LOWEST));
    __m256 n = _mm256_add_ps(x, magic), r = _mm256_sub_ps(x, _mm256_sub_ps(n, magic));
    __m256 p = _mm256_set1_ps(EXP2_Q4);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_Q3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_Q2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_Q1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_Q0));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i power = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}

INLINE v16 v16_exp2(v16 x)
{
    return v16_of(exp2_ps(x.half[0]), exp2_ps(x.half[1]));
}

INLINE v16 v16_exp(v16 x)
{
    return v16_of(exp_ps(x.half[0]), exp_ps(x.half[1]));
}

#endif
