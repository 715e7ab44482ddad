/* matmul_amx.c - matmul of up to 64 rows with 4- to 8-bit and bf16 panels by bf16 tiles; more rows
 * are matmul_many_amx.c's.
 *
 *   y^T [16 outputs][16 rows] += A [16 outputs][32 k] * B [32 k][16 rows]       sums over k: tiles
 *
 *   A    a group of a panel: bf16 as stored, or d * q + m, rounded to bf16, made here
 *   B    activations rounded to bf16, in tile order: made once per matmul (amx_pack_rows)
 *
 *   for each group: make A (two groups ahead, 4 KiB on the stack), 1 to 4 products
 *
 * Why bf16 and not int8 tiles: the scales of groups of 32 would have every int8 product of 32 k
 *   pass through memory and four vector operations per row; that was measured, and no faster than
 *   VNNI where two threads share a core. bf16 products need nothing after them, and are nearer to
 *   f32: about 0.25 % of relative error instead of 0.6.
 * Why one bit pattern for any number of rows: a sum is a chain over all groups in one tile, and
 * what a tile does to one column does not depend on the others. Why weights are A: the values of
 * one output are then neighbours, and four bits become bf16 with one table per output and group: a
 * shift and a permutation per 32 values. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/amx_weights.h"
#include "kernels/cpu/matmul_panels.h"
#include "kernels/cpu/simd_avx512.h"

#define TILES_MAX (PACKED_FEW / TILE_MAX_ROWS) /* C in tiles 0..3, A in 5 and 6, B in 7 */
#define RING 4                                 /* groups of A on the stack */
#define AHEAD 2
/* Groups take 320 bytes or so, faster than memory sees them coming. */
#define PREFETCH_BYTES 16384

/* --- products -------------------------------------------------------------------------------- */

struct pass {             /* some panels, all K, some row tiles: panels * tiles <= TILES_MAX */
    const uint8_t *group; /* of the first panel */
    size_t panel_bytes, group_bytes;
    uint32_t groups;
    const uint16_t *a;      /* [groups] tiles; NULL: made by dequantise */
    const uint16_t *packed; /* first row tile */
    size_t packed_tile;     /* values of a row tile */
    uint32_t row_bytes;     /* of a B tile */
    uint32_t tiles;
    uint32_t panels; /* 2 only where tiles is 1 */
};

/* Products of group g with one panel's A: all row tiles. */
INLINE void multiply_group(const struct pass *pass, const uint16_t *a, uint32_t g)
{
    const size_t b_stride = pass->row_bytes;
    const uint8_t *b = (const uint8_t *)pass->packed + (size_t)g * GROUP / 2 * b_stride;
    const size_t next = pass->packed_tile * sizeof(uint16_t);
#define PRODUCT(c)                              \
    if (pass->tiles > (c)) {                    \
        _tile_loadd(7, b + (c)*next, b_stride); \
        _tile_dpbf16ps(c, 6, 7);                \
    }
    _tile_loadd(6, a, TILE_ROW_BYTES);
    PRODUCT(0)
    PRODUCT(1)
    PRODUCT(2)
    PRODUCT(3)
#undef PRODUCT
}

/* One row tile: products of group g with the A of one or two panels. */
INLINE void multiply_panels(const struct pass *pass, const uint16_t *a0, const uint16_t *a1,
                            uint32_t g)
{
    const size_t b_stride = pass->row_bytes;
    _tile_loadd(7, (const uint8_t *)pass->packed + (size_t)g * GROUP / 2 * b_stride, b_stride);
    _tile_loadd(6, a0, TILE_ROW_BYTES);
    _tile_dpbf16ps(0, 6, 7);
    if (pass->panels > 1) {
        _tile_loadd(5, a1, TILE_ROW_BYTES);
        _tile_dpbf16ps(1, 5, 7);
    }
}

INLINE void make_a(const struct pass *pass, dequantise_fn dequantise, uint32_t g,
                   uint16_t ring[2][RING][TILE_VALUES])
{
    for (uint32_t p = 0; g < pass->groups && p < pass->panels; p++) {
        const uint8_t *group = pass->group + p * pass->panel_bytes + g * pass->group_bytes;
        for (size_t i = 0; i < pass->group_bytes; i += 64)
            _mm_prefetch((const char *)group + PREFETCH_BYTES + i, _MM_HINT_T0);
        dequantise(group, ring[p][g % RING]);
    }
}

INLINE void multiply_groups(const struct pass *pass, dequantise_fn dequantise)
{
    _Alignas(64) uint16_t ring[2][RING][TILE_VALUES];
    const size_t panel_values = pass->panel_bytes / sizeof(uint16_t);
    for (uint32_t g = 0; pass->a == NULL && g < AHEAD; g++)
        make_a(pass, dequantise, g, ring);
    for (uint32_t g = 0; g < pass->groups; g++) {
        const uint16_t *a = ring[0][g % RING], *a1 = ring[1][g % RING];
        if (pass->a != NULL) {
            a = pass->a + (size_t)g * TILE_VALUES;
            a1 = a + panel_values;
        } else {
            make_a(pass, dequantise, g + AHEAD, ring);
        }
        if (pass->tiles == 1)
            multiply_panels(pass, a, a1, g);
        else
            multiply_group(pass, a, g);
    }
}

INLINE void zero_products(uint32_t tiles)
{
#define ZERO(c)      \
    if (tiles > (c)) \
        _tile_zero(c);
    ZERO(0) ZERO(1) ZERO(2) ZERO(3)
#undef ZERO
}

INLINE void store_products(uint32_t tiles, uint32_t row_bytes, float (*c)[PANEL * TILE_MAX_ROWS])
{
#define STORE(i)     \
    if (tiles > (i)) \
        _tile_stored(i, c[i], row_bytes);
    STORE(0) STORE(1) STORE(2) STORE(3)
#undef STORE
}

/* Rows [0, rows) of c [16 outputs][width] to y. */
INLINE void write_rows(const struct gemm *g, const float *c, uint32_t width, uint32_t rows,
                       float *y, uint32_t outputs)
{
    __m512 v[TILE_MAX_ROWS];
    if (width == TILE_MAX_ROWS) {
        UNROLL for (int i = 0; i < TILE_MAX_ROWS; i++) v[i] = _mm512_loadu_ps(c + i * 16);
        transpose16(v);
    }
    for (uint32_t r = 0; r < rows; r++, y += g->y_stride) {
        float column[PANEL];
        __m512 sum;
        if (width == TILE_MAX_ROWS) {
            sum = v[r];
        } else {
            for (uint32_t n = 0; n < PANEL; n++)
                column[n] = c[n * width + r];
            sum = v16_load(column);
        }
        if (g->accumulate)
            sum = _mm512_add_ps(sum, v16_load_some(y, outputs));
        v16_store_some(y, outputs, sum);
    }
}

static uint32_t outputs_of(const struct gemm *g, uint32_t panel)
{
    uint32_t left = g->outputs - panel * PANEL;
    return left < PANEL ? left : PANEL;
}

/* One panel, or two of them where there is one row tile. */
INLINE void multiply_panel(const struct gemm *g, uint32_t panel, uint32_t panels, bool stored,
                           dequantise_fn dequantise)
{
    const uint32_t groups = (g->columns + GROUP - 1) / GROUP;
    const uint32_t tiles = (g->rows + TILE_MAX_ROWS - 1) / TILE_MAX_ROWS;
    const uint32_t width = packed_width(g->form);
    _Alignas(64) float c[TILES_MAX][PANEL * TILE_MAX_ROWS];
    struct pass pass = {.group = g->panel + panel * g->panel_bytes,
                        .panel_bytes = g->panel_bytes,
                        .group_bytes = g->panel_bytes / groups,
                        .groups = groups,
                        .packed_tile = packed_tile_values(width, g->columns),
                        .packed = g->packed,
                        .row_bytes = width * 4,
                        .tiles = tiles,
                        .panels = panels};
    if (stored)
        pass.a = (const uint16_t *)pass.group;
    zero_products(tiles * panels);
    multiply_groups(&pass, dequantise);
    store_products(tiles * panels, pass.row_bytes, c);
    for (uint32_t i = 0; i < tiles * panels; i++) {
        uint32_t row = panels > 1 ? 0 : i * TILE_MAX_ROWS, rows = g->rows - row;
        uint32_t p = panel + (panels > 1 ? i : 0);
        write_rows(g, c[i], width, rows < TILE_MAX_ROWS ? rows : TILE_MAX_ROWS,
                   g->y + row * g->y_stride + p * PANEL, outputs_of(g, p));
    }
}

INLINE void multiply(const struct gemm *g, bool stored, dequantise_fn dequantise)
{
    const uint32_t width = packed_width(g->form);
    struct tile_config config = {0};
    for (int c = 0; c < TILES_MAX; c++)
        tile_shape(&config, c, PANEL, width * 4);
    if (g->rows <= TILE_MAX_ROWS) /* two panels: the second A */
        tile_shape(&config, 5, PANEL, TILE_ROW_BYTES);
    tile_shape(&config, 6, PANEL, TILE_ROW_BYTES);
    tile_shape(&config, 7, GROUP / 2, width * 4);
    tile_configure(&config);
    for (uint32_t panel = 0, count; panel < g->panels; panel += count) {
        count = g->rows <= TILE_MAX_ROWS && g->panels - panel > 1 ? 2 : 1;
        multiply_panel(g, panel, count, stored, dequantise);
    }
    _tile_release();
}

void amx_gemm_u2(const struct gemm *gemm)
{
    if (gemm->form == PACKED_BY_ROW)
        amx_gemm_many(gemm, PANEL_U2);
    else
        multiply(gemm, false, dequantise_u2);
}

void amx_gemm_u4(const struct gemm *gemm)
{
    if (gemm->form == PACKED_BY_ROW)
        amx_gemm_many(gemm, PANEL_U4);
    else
        multiply(gemm, false, dequantise_u4);
}

void amx_gemm_u5(const struct gemm *gemm)
{
    if (gemm->form == PACKED_BY_ROW)
        amx_gemm_many(gemm, PANEL_U5);
    else
        multiply(gemm, false, dequantise_u5);
}

void amx_gemm_s6(const struct gemm *gemm)
{
    if (gemm->form == PACKED_BY_ROW)
        amx_gemm_many(gemm, PANEL_S6);
    else
        multiply(gemm, false, dequantise_s6);
}

void amx_gemm_s8(const struct gemm *gemm)
{
    if (gemm->form == PACKED_BY_ROW)
        amx_gemm_many(gemm, PANEL_S8);
    else
        multiply(gemm, false, dequantise_s8);
}

void amx_gemm_bf16(const struct gemm *gemm)
{
    if (gemm->form == PACKED_BY_ROW)
        amx_gemm_many(gemm, PANEL_BF16);
    else
        multiply(gemm, true, NULL);
}
