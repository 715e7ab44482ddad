/* rope_avx2.c - rotation and KV write of the AVX2 family (rope_simd.h). */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/rope_simd.h"

void avx2_rotate_heads(float *x, uint32_t heads, uint32_t dim, const float *cos_sin, uint32_t half,
                       bool interleaved)
{
    rotate_heads(x, heads, dim, cos_sin, half, interleaved);
}

void avx2_write_kv(const float *k, const float *v, uint32_t dim, uint32_t slot, uint8_t *k_tile,
                   uint8_t *v_tile)
{
    write_kv(k, v, dim, slot, (uint16_t *)k_tile, (uint16_t *)v_tile);
}

void avx2_write_kv_int8(const float *k, const float *v, uint32_t dim, uint32_t slot,
                        uint8_t *k_tile, uint8_t *v_tile)
{
    write_kv_int8(k, v, dim, slot, k_tile, v_tile);
}
