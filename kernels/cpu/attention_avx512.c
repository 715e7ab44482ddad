/* attention_avx512.c - attention of the AVX-512 family (attention_fma.h). */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd_avx512.h"

#define INT8_KV false
#include "kernels/cpu/attention_fma.h"

void avx512_attend(const struct attention *attention, const struct attention_unit *unit,
                   float *scratch)
{
    attend_unit(attention, unit, scratch);
}

void avx512_attend_merge(const struct attention *attention, const struct attention_unit *unit,
                         float *scratch)
{
    merge_unit(attention, unit, scratch);
}
