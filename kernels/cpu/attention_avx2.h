/* attention_avx2.h - the attention of the AVX2 family; private to the family. */
#ifndef REFRAIN_KERNELS_CPU_ATTENTION_AVX2_H
#define REFRAIN_KERNELS_CPU_ATTENTION_AVX2_H

#include "kernels/cpu/family.h"

void avx2_attend(const struct attention *attention, const struct attention_unit *unit,
                 float *scratch);
void avx2_attend_merge(const struct attention *attention, const struct attention_unit *unit,
                       float *scratch);

#endif
