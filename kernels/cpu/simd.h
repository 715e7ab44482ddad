/* simd.h - what the vector files of all families share: words for the compiler, and numbers. */
#ifndef REFRAIN_KERNELS_CPU_SIMD_H
#define REFRAIN_KERNELS_CPU_SIMD_H

#define INLINE static inline __attribute__((always_inline))

/* Loops over a micro-kernel's rows and vectors: constant, small, wanted flat. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* exp(x), at most 2 ulp off between -87.3 and 88.3 (contract test); exactly 0 below, so that a
 * masked score of -inf weighs nothing; above, exp(88.3).
 * x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r) with q of degree 4, a Chebyshev fit of
 * ours with a relative error of 1.1e-8; ln 2 in two parts keeps r exact. */
#define EXP_LOWEST (-87.3f)
#define EXP_HIGHEST 88.3f
#define EXP_LOG2_E 0x1.715476p0f
#define EXP_LN2_HIGH 0x1.62e4p-1f
#define EXP_LN2_LOW 0x1.7f7d1cp-20f
#define EXP_Q4 0x1.6d113cp-10f
#define EXP_Q3 0x1.120ba2p-7f
#define EXP_Q2 0x1.55551ap-5f
#define EXP_Q1 0x1.5554dcp-3f
#define EXP_Q0 0.5f

#endif
