/* simd_avx2.h - the few vector helpers that the AVX2 files share.
 *
 * Why intrinsics with explicit order everywhere: the bits of a result are part of the contract, so
 * no sum is left to the compiler. */
#ifndef REFRAIN_KERNELS_CPU_SIMD_AVX2_H
#define REFRAIN_KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Loops over a micro-kernel's rows and vectors: constant, small, wanted flat. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Keep a sum in its register, here and now. gcc otherwise turns a chain of integer additions into a
 * tree, whose many live values it then spills: half the speed of a micro-kernel. */
INLINE void pin(__m256i *v)
{
    __asm__("" : "+x"(*v));
}

/* First `count` (0..8) lanes. */
INLINE __m256i lanes_mask(uint32_t count)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes);
}

INLINE float sum_lanes(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

INLINE float max_lanes(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

/* Four bytes of activations in every lane. */
INLINE __m256i broadcast_quad(const int8_t *q)
{
    int32_t quad;
    memcpy(&quad, q, sizeof(quad));
    return _mm256_set1_epi32(quad);
}

/* exp(x), at most 2 ulp off between -87.3 and 88.3 (test_cpu_math.c); exactly 0 below, so that a
 * masked score of -inf weighs nothing; above, exp(88.3).
 * x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r) with q of degree 4, a Chebyshev fit of
 * ours with a relative error of 1.1e-8; ln 2 in two parts keeps r exact. */
INLINE __m256 exp_ps(__m256 x)
{
    const __m256 lowest = _mm256_set1_ps(-87.3f);
    __m256 clamped = _mm256_min_ps(_mm256_max_ps(x, lowest), _mm256_set1_ps(88.3f));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(0x1.715476p0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), clamped);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 q = _mm256_set1_ps(0x1.6d113cp-10f);
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.120ba2p-7f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.55551ap-5f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.5554dcp-3f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.5f));
    __m256 p = _mm256_fmadd_ps(q, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
    return _mm256_and_ps(p, _mm256_cmp_ps(x, lowest, _CMP_GE_OQ));
}

#endif
