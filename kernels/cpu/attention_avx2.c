/* attention_avx2.c - attention of the AVX2 family (attention_fma.h). */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/simd_avx2.h"

#define INT8_KV false
#include "kernels/cpu/attention_fma.h"

void avx2_attend(const struct attention *attention, const struct attention_unit *unit,
                 float *scratch)
{
    attend_unit(attention, unit, scratch);
}

void avx2_attend_merge(const struct attention *attention, const struct attention_unit *unit,
                       float *scratch)
{
    merge_unit(attention, unit, scratch);
}
