/* elementwise_avx2.c - the norms, silu_mul, gelu_mul and exp of the AVX2 family
 * (elementwise_simd.h). */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/elementwise_simd.h"

void avx2_rmsnorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y)
{
    rmsnorm_row(x, w, eps, columns, y);
}

void avx2_layernorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y)
{
    layernorm_row(x, w, eps, columns, y);
}

void avx2_silu_mul_row(const float *gate, const float *up, uint32_t columns, float *y)
{
    silu_mul_row(gate, up, columns, y);
}

void avx2_gelu_mul_row(const float *gate, const float *up, uint32_t columns, float *y)
{
    gelu_mul_row(gate, up, columns, y);
}

void avx2_exp_values(const float *x, float *y, uint32_t count)
{
    exp_values(x, y, count);
}
