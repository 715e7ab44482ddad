/* avx2.h - functions of sampling in two builds: TARGET_AVX2 before the faster one, has_avx2() to
 * choose at run time. On other machines than x86-64 both are the same build. Thread: any. */
#ifndef REFRAIN_WORKER_SAMPLE_AVX2_H
#define REFRAIN_WORKER_SAMPLE_AVX2_H

#include <stdbool.h>

#ifdef __x86_64__
#define TARGET_AVX2 __attribute__((target("avx2")))

static inline bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define TARGET_AVX2

static inline bool has_avx2(void)
{
    return false;
}
#endif

#endif
