/* cpu_features.h - which instructions this process can run.
 *
 * tests/emulate has another implementation, under which all are there. */
#ifndef REFRAIN_KERNELS_CPU_CPU_FEATURES_H
#define REFRAIN_KERNELS_CPU_CPU_FEATURES_H

#include <stdint.h>

enum cpu_feature { /* bits */
                   CPU_AVX2 = 1 << 0,
                   CPU_FMA = 1 << 1,
                   CPU_F16C = 1 << 2,
                   CPU_AVX512 = 1 << 3, /* F, BW, DQ and VL */
                   CPU_VNNI = 1 << 4,
                   CPU_BF16 = 1 << 5,
                   CPU_VBMI2 = 1 << 6, /* and VBMI, which came before it */
                   CPU_AMX = 1 << 7,   /* tiles, int8 and bf16 */
};

/* NULL: all of `features` (bits of enum cpu_feature) can be used; else the name of the first one
 * that is missing, static. With CPU_AMX the system is asked for its permission, which this process
 * then has: call it before threads exist; again is harmless. */
const char *cpu_features_missing(uint32_t features);

#endif
