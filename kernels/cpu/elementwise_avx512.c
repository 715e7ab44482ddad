/* elementwise_avx512.c - the norms, silu_mul, gelu_mul and exp of the AVX-512 family
 * (elementwise_simd.h). */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/elementwise_simd.h"

void avx512_rmsnorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y)
{
    rmsnorm_row(x, w, eps, columns, y);
}

void avx512_layernorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y)
{
    layernorm_row(x, w, eps, columns, y);
}

void avx512_silu_mul_row(const float *gate, const float *up, uint32_t columns, float *y)
{
    silu_mul_row(gate, up, columns, y);
}

void avx512_gelu_mul_row(const float *gate, const float *up, uint32_t columns, float *y)
{
    gelu_mul_row(gate, up, columns, y);
}

void avx512_exp_values(const float *x, float *y, uint32_t count)
{
    exp_values(x, y, count);
}
