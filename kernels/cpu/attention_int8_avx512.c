/* attention_int8_avx512.c - attention of the AVX-512 family over int8 KV (attention_fma.h). */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd_avx512.h"

#define INT8_KV true
#include "kernels/cpu/attention_fma.h"

void avx512_attend_int8(const struct attention *attention, const struct attention_unit *unit,
                        float *scratch)
{
    attend_unit(attention, unit, scratch);
}

void avx512_attend_merge_int8(const struct attention *attention, const struct attention_unit *unit,
                              float *scratch)
{
    merge_unit(attention, unit, scratch);
}
