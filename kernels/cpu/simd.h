/* simd.h - what the vector files of all families share: words for the compiler, and numbers. */
#ifndef REFRAIN_KERNELS_CPU_SIMD_H
#define REFRAIN_KERNELS_CPU_SIMD_H

#define INLINE static inline __attribute__((always_inline))

/* Loops over a micro-kernel's rows and vectors: constant, small, wanted flat. And over its k. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* exp(x), at most 2 ulp off between -87.3 and 88.3 (contract test); exactly 0 below, so that a
 * masked score of -inf weighs nothing; above, exp(88.3).
 * x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r) with q of degree 4, a Chebyshev fit of
 * ours with a relative error of 1.1e-8; ln 2 in two parts keeps r exact. */
#define EXP_LOWEST (-87.3f)
#define EXP_HIGHEST 88.3f
#define LOG2_E 0x1.715476p0f
#define EXP_LN2_HIGH 0x1.62e4p-1f
#define EXP_LN2_LOW 0x1.7f7d1cp-20f
#define EXP_Q4 0x1.6d113cp-10f
#define EXP_Q3 0x1.120ba2p-7f
#define EXP_Q2 0x1.55551ap-5f
#define EXP_Q1 0x1.5554dcp-3f
#define EXP_Q0 0.5f

/* Added to a number below 2^22, it leaves the nearest integer, ties to even, in the low bits. */
#define ROUND_MAGIC 12582912.0f /* 1.5 * 2^23 */

/* 2^x, to 2e-7 of it, for -126 <= x < 127; below, less than 1e-37, and exactly 0 from -127 down, so
 * that a masked score of -inf weighs nothing.
 * x = n + r, |r| <= 1/2; 2^r = 1 + r q(r) with q of degree 4, a minimax fit of ours with a relative
 * error of 9.1e-8. ROUND_MAGIC leaves n in the low bits, from where an integer addition brings it
 * to the exponent. */
#define EXP2_LOWEST (-127.0f)
#define EXP2_Q4 0x1.5bba0cp-10f
#define EXP2_Q3 0x1.3cea88p-7f
#define EXP2_Q2 0x1.c6b752p-5f
#define EXP2_Q1 0x1.ebf9bcp-3f
#define EXP2_Q0 0x1.62e42ap-1f

#endif
