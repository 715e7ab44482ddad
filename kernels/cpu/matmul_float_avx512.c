/* matmul_float_avx512.c - matmul with float panels of the AVX-512 family (matmul_float_simd.h). */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/matmul_float_simd.h"

void avx512_gemm_bf16(const struct gemm *gemm)
{
    multiply_float(TILE_BF16, gemm, run_bf16);
}

void avx512_gemm_f16(const struct gemm *gemm)
{
    multiply_float(TILE_F16, gemm, run_f16);
}

void avx512_gemm_f32(const struct gemm *gemm)
{
    multiply_float(TILE_F32, gemm, run_f32);
}
