/* pack_rows_amx.c - activations to bf16 in the order of tiles (family.h). */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/simd_avx512.h"

/* Pairs of k of one row, 16 pairs from k on; zeros past the end. */
INLINE __m512i load_pairs(const float *x, uint32_t k, uint32_t columns)
{
    uint32_t left = columns > k ? columns - k : 0;
    __m512 low = v16_load_some(x + k, left < 16 ? left : 16);
    __m512 high = v16_load_some(x + k + 16, left < 32 ? (left > 16 ? left - 16 : 0) : 16);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

static void pack_by_row(const float *x, size_t x_stride, uint32_t rows, uint32_t columns,
                        uint16_t *to)
{
    for (uint32_t r = 0; r < TILE_MAX_ROWS; r++) {
        uint16_t *at = to + (size_t)r * GROUP;
        for (uint32_t k = 0; k < columns; k += GROUP, at += (size_t)GROUP * TILE_MAX_ROWS)
            _mm512_storeu_si512(at, r < rows ? load_pairs(x + r * x_stride, k, columns)
                                             : _mm512_setzero_si512());
    }
}

static void pack_few(const float *x, size_t x_stride, uint32_t rows, uint32_t columns,
                     uint32_t width, uint16_t *to)
{
    for (uint32_t k = 0; k < columns; k += GROUP, to += (size_t)GROUP * width) {
        for (uint32_t r = 0; r < width; r++) {
            uint32_t pairs[GROUP / 2], *at = (uint32_t *)to + r;
            __m512i row =
                r < rows ? load_pairs(x + r * x_stride, k, columns) : _mm512_setzero_si512();
            _mm512_storeu_si512(pairs, row);
            for (uint32_t i = 0; i < GROUP / 2; i++)
                at[i * width] = pairs[i];
        }
    }
}

static void pack_pairs(const float *x, size_t x_stride, uint32_t rows, uint32_t columns,
                       uint16_t *to)
{
    for (uint32_t k = 0; k < columns; k += GROUP, to += (size_t)GROUP * TILE_MAX_ROWS) {
        __m512i v[TILE_MAX_ROWS];
        UNROLL for (uint32_t r = 0; r < TILE_MAX_ROWS; r++) v[r] =
            r < rows ? load_pairs(x + r * x_stride, k, columns) : _mm512_setzero_si512();
        transpose16((__m512 *)v);
        UNROLL for (uint32_t i = 0; i < TILE_MAX_ROWS; i++)
            _mm512_storeu_si512(to + (size_t)i * TILE_MAX_ROWS * 2, v[i]);
    }
}

void amx_pack_rows(const float *x, size_t x_stride, uint32_t rows, uint32_t columns,
                   enum packed_form form, uint16_t *to)
{
    if (form == PACKED_BY_ROW)
        pack_by_row(x, x_stride, rows, columns, to);
    else if (form == PACKED_16)
        pack_pairs(x, x_stride, rows, columns, to);
    else
        pack_few(x, x_stride, rows, columns, packed_width(form), to);
}
