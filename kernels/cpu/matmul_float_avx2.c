/* matmul_float_avx2.c - matmul with float panels of the AVX2 family (matmul_float_simd.h). */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/matmul_float_simd.h"

void avx2_gemm_bf16(const struct gemm *gemm)
{
    multiply_float(TILE_BF16, gemm, run_bf16);
}

void avx2_gemm_f16(const struct gemm *gemm)
{
    multiply_float(TILE_F16, gemm, run_f16);
}

void avx2_gemm_f32(const struct gemm *gemm)
{
    multiply_float(TILE_F32, gemm, run_f32);
}
