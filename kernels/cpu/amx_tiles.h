/* amx_tiles.h - the shape of the tiles of a thread. */
#ifndef REFRAIN_KERNELS_CPU_AMX_TILES_H
#define REFRAIN_KERNELS_CPU_AMX_TILES_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/simd.h"

#define TILE_MAX_ROWS 16
#define TILE_ROW_BYTES 64

struct tile_config { /* as the processor reads it */
    uint8_t palette, start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

INLINE void tile_shape(struct tile_config *config, int tile, uint32_t rows, uint32_t row_bytes)
{
    config->palette = 1;
    config->rows[tile] = (uint8_t)rows;
    config->row_bytes[tile] = (uint16_t)row_bytes;
}

/* gcc 12 believes that _tile_loadconfig reads 8 bytes of the 64 and may leave the others unwritten,
 * after which the first tile instruction faults: the empty asm makes it write them all. */
INLINE void tile_configure(const struct tile_config *config)
{
    __asm__ volatile("" : : "r"(config) : "memory");
    _tile_loadconfig(config);
}

/* The compiler may think that a tile load reads no memory: what was written before must be there.
 */
INLINE void tile_fence(void)
{
    __asm__ volatile("" : : : "memory");
}

/* v[i] lane j <-> v[j] lane i: pairs, quads, then 128-bit quarters change places. */
INLINE void transpose16(__m512 v[16])
{
    __m512 t[16];
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4)
    {
        UNROLL for (int h = 0; h < 2; h++)
        {
            __m512d low = _mm512_castps_pd(t[i + h]), high = _mm512_castps_pd(t[i + 2 + h]);
            v[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            v[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    /* v[4 g + c]: rows 4 g .. 4 g + 3 of columns c, 4 + c, 8 + c, 12 + c, a quarter each. */
    UNROLL for (int c = 0; c < 4; c++)
    {
        __m512 a = _mm512_shuffle_f32x4(v[c], v[4 + c], 0x44);
        __m512 b = _mm512_shuffle_f32x4(v[c], v[4 + c], 0xee);
        __m512 d = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0x44);
        __m512 e = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0xee);
        t[c] = _mm512_shuffle_f32x4(a, d, 0x88);
        t[4 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
        t[8 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
    }
    UNROLL for (int i = 0; i < 16; i++) v[i] = t[i];
}

#endif
