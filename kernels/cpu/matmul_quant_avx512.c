/* matmul_quant_avx512.c - matmul with 4- to 8-bit panels by VNNI; the sums of matmul_quant_avx2.c.
 *
 *   one group, R rows x 16 outputs:
 *     a vector of panel = 16 outputs x 4 k; vpdpbusd with 4 broadcast activations, 8 times
 *     -> 16 dot products in 32 bits -> float -> the FMAs of AVX2, so the same bits
 *
 * vpdpbusd wants weights unsigned: S6 gets 32 added and S8 128, and the dot products start from
 * minus that times the sum of the activations, which quantise_row has left in half_sums. Integers
 * are exact, so nothing of this shows.
 * Cost per group and row: 8 vpdpbusd, 1 conversion, 2 or 3 float operations: 6 cycles for 1024
 * operations on two ports. */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/matmul_vnni.h"

static void block_u2(const struct block *block, uint32_t rows)
{
    vnni_block(PANEL_U2, block, rows);
}

static void block_u4(const struct block *block, uint32_t rows)
{
    vnni_block(PANEL_U4, block, rows);
}

static void block_u5(const struct block *block, uint32_t rows)
{
    vnni_block(PANEL_U5, block, rows);
}

static void block_s6(const struct block *block, uint32_t rows)
{
    vnni_block(PANEL_S6, block, rows);
}

static void block_s8(const struct block *block, uint32_t rows)
{
    vnni_block(PANEL_S8, block, rows);
}

void avx512_gemm_u2(const struct gemm *gemm)
{
    multiply_all(gemm, block_u2);
}

void avx512_gemm_u4(const struct gemm *gemm)
{
    multiply_all(gemm, block_u4);
}

void avx512_gemm_u5(const struct gemm *gemm)
{
    multiply_all(gemm, block_u5);
}

void avx512_gemm_s6(const struct gemm *gemm)
{
    multiply_all(gemm, block_s6);
}

void avx512_gemm_s8(const struct gemm *gemm)
{
    multiply_all(gemm, block_s8);
}
