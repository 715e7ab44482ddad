/* attention_tile.h - the products of attention_fma.h: R rows of a times P panels of 16, sums in
 * registers.
 *
 *   sum[r][p][j]  +=  sum over k of  a[r][k] * panel[p][k][j]
 *
 *   add_pairs   for few rows: panels are bf16 pairs as they lie in the pages, read once, made f32
 *               on the way; what comes after them is asked for meanwhile, since pages lie anywhere
 *               and a processor looks ahead no further than the end of one
 *   add_bytes   the same of int8, as integers: scales come before (p) or after (scores)
 *   add_wide    for more: panels were made f32 (widen_) and wait in the first cache
 *
 * Either way the sum of one element is one chain of FMAs in the order of k: the bits are the same.
 * R, P and the steps of a are constants where these are inlined. */
#ifndef REFRAIN_KERNELS_CPU_ATTENTION_TILE_H
#define REFRAIN_KERNELS_CPU_ATTENTION_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/family.h"

#define PAIR_BYTES (PANEL * 2 * sizeof(uint16_t)) /* two k of a panel: a line of the cache */
#define BYTES_AT_ONCE 4                           /* the same of int8 */
#define WIDTH_MAX 4

/* Panels side by side that leave room for the sums of R rows. */
INLINE int width_of(const int R)
{
    const int sums = TILE_ROWS * TILE_WIDTH_MANY;
    return R * 4 <= sums ? 4 : R * 2 <= sums ? 2 : 1;
}

INLINE void load_sums(const int R, const int P, const float *c, size_t c_row,
                      v16 sum[TILE_ROWS][WIDTH_MAX])
{
    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int p = 0; p < P; p++) sum[r][p] = v16_load(c + (size_t)r * c_row + p * PANEL);
    }
}

INLINE void clear_sums(const int R, const int P, v16 sum[TILE_ROWS][WIDTH_MAX])
{
    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int p = 0; p < P; p++) sum[r][p] = v16_zero();
    }
}

INLINE void store_sums(const int R, const int P, float *c, size_t c_row,
                       v16 sum[TILE_ROWS][WIDTH_MAX])
{
    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int p = 0; p < P; p++) v16_store(c + (size_t)r * c_row + p * PANEL, sum[r][p]);
    }
}

/* One k, `from` the pairs where its values are. */
INLINE void add_half(const int R, const int P, const bool odd, const uint8_t *const from[WIDTH_MAX],
                     size_t at, const float *a, const size_t row, v16 sum[TILE_ROWS][WIDTH_MAX])
{
    UNROLL for (int p = 0; p < P; p++)
    {
        const uint8_t *pairs = load_again(from[p] + at);
        v16 v = odd ? v16_load_odd(pairs) : v16_load_even(pairs);
        a = load_again(a);
        UNROLL for (int r = 0; r < R; r++)
            v16_add_product(&sum[r][p], v16_broadcast(a + (size_t)r * row), v);
    }
}

/* a of row r and k: a[r * row + k * step]. */
INLINE void add_pairs(const int R, const int P, const uint8_t *const from[WIDTH_MAX],
                      const uint8_t *const ahead[WIDTH_MAX], uint32_t pairs, const float *a,
                      const size_t row, const size_t step, v16 sum[TILE_ROWS][WIDTH_MAX])
{
    for (size_t at = 0; at < pairs * PAIR_BYTES; at += PAIR_BYTES) {
        UNROLL for (int p = 0; p < P; p++) __builtin_prefetch(ahead[p] + at);
        add_half(R, P, false, from, at, a, row, sum);
        add_half(R, P, true, from, at, a + step, row, sum);
        a += 2 * step;
    }
}

/* `count` k of int8, a multiple of BYTES_AT_ONCE; `ahead` may reach behind a tile's end. */
INLINE void add_bytes(const int R, const int P, const uint8_t *const from[WIDTH_MAX],
                      const uint8_t *const ahead[WIDTH_MAX], uint32_t count, const float *a,
                      const size_t row, const size_t step, v16 sum[TILE_ROWS][WIDTH_MAX])
{
    for (size_t at = 0; at < (size_t)count * PANEL; at += (size_t)BYTES_AT_ONCE * PANEL) {
        UNROLL for (int p = 0; p < P; p++) __builtin_prefetch(ahead[p] + at);
        UNROLL for (int k = 0; k < BYTES_AT_ONCE; k++)
        {
            UNROLL for (int p = 0; p < P; p++)
            {
                v16 v = v16_load_i8(load_again(from[p] + at + (size_t)k * PANEL));
                a = load_again(a);
                UNROLL for (int r = 0; r < R; r++)
                    v16_add_product(&sum[r][p], v16_broadcast(a + (size_t)r * row), v);
            }
            a += step;
        }
    }
}

/* Panels of f32, `panel_floats` apart. */
INLINE void add_wide(const int R, const int P, const float *from, size_t panel_floats,
                     uint32_t count, const float *a, const size_t row, const size_t step,
                     v16 sum[TILE_ROWS][WIDTH_MAX])
{
    UNROLL_4 for (uint32_t k = 0; k < count; k++)
    {
        UNROLL for (int p = 0; p < P; p++)
        {
            v16 v = v16_load(from + (size_t)p * panel_floats);
            UNROLL for (int r = 0; r < R; r++)
                v16_add_product(&sum[r][p], v16_broadcast(a + (size_t)r * row), v);
        }
        from += PANEL;
        a += step;
    }
}

/* Pairs of k of one panel to [2 * pairs][16] f32; what comes next lies `ahead`. */
INLINE void widen_pairs(const uint8_t *from, const uint8_t *ahead, uint32_t pairs, float *to)
{
    for (; pairs > 0; pairs--, from += PAIR_BYTES, ahead += PAIR_BYTES, to += 2 * PANEL) {
        __builtin_prefetch(ahead);
        v16_store(to, v16_load_even(from));
        v16_store(to + PANEL, v16_load_odd(from));
    }
}

/* Int8 vectors of 16 to f32, as the integers that they are. */
INLINE void widen_bytes(const uint8_t *from, const uint8_t *ahead, uint32_t vectors, float *to)
{
    for (size_t i = 0; i < (size_t)vectors * PANEL; i += 64)
        __builtin_prefetch(ahead + i);
    for (; vectors > 0; vectors--, from += PANEL, to += PANEL)
        v16_store(to, v16_load_i8(from));
}

#endif
