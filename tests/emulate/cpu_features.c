/* cpu_features.c - everything is there, for the families that immintrin.h emulates. Instead of
 * kernels/cpu/cpu_features.c in the programs of emulate.cmake. */
#include "kernels/cpu/cpu_features.h"

#include <stddef.h>
#include <stdio.h>

/* Nobody shall take such a program for a real one. */
static __attribute__((constructor)) void tell(void)
{
    (void)fputs("EMULATE_ISA: AVX-512 and AMX are emulated by AVX2, for tests\n", stderr);
}

const char *cpu_features_missing(uint32_t features)
{
    (void)features;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? NULL
                                                                           : "AVX2 to emulate with";
}
