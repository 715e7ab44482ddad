/* matmul_many_amx.c - matmul of many rows with by_output panels by bf16 tiles.
 *
 *   y [16 rows][16 outputs] += A [16 rows][32 k] * B [32 k][16 outputs]
 *
 *   for each two panels:
 *     for each block of K:        make B: groups to bf16, turned into pairs of k  (the first cache)
 *       for each two row tiles:   2 x 2 products per 4 tiles loaded               (A: the second)
 *
 * Why the roles of matmul_amx.c are swapped: weights are made once per 512 rows here, so turning
 * them costs little, and what comes out are rows of y. A product does not see which side a factor
 * came from and sums run over the same groups in the same order, so the bits are the same.
 * Why 2 x 2: a tile product takes 16 cycles, a tile from the second cache 25 or more; with one side
 * in the first cache and four products per four loads the products are what takes the time. A is
 * loaded as a stream, or it would push B out of the first cache.
 * Sums that wait between blocks of K are stored and loaded whole. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/amx_weights.h"

#define BLOCK_GROUPS 18 /* of two panels: 36 KiB */
#define TILE_BYTES (TILE_VALUES * 2)
#define SUMS (PANEL * TILE_MAX_ROWS) /* floats of a C tile */

typedef void (*make_fn)(const uint8_t *group, uint16_t *to);

static void make_u2(const uint8_t *group, uint16_t *to)
{
    dequantise_u2(group, to);
}

static void make_u4(const uint8_t *group, uint16_t *to)
{
    dequantise_u4(group, to);
}

static void make_u5(const uint8_t *group, uint16_t *to)
{
    dequantise_u5(group, to);
}

static void make_s6(const uint8_t *group, uint16_t *to)
{
    dequantise_s6(group, to);
}

static void make_s8(const uint8_t *group, uint16_t *to)
{
    dequantise_s8(group, to);
}

/* --- products -------------------------------------------------------------------------------- */

struct square {       /* 1 or 2 row tiles x 1 or 2 panels, a block of K */
    const uint8_t *a; /* first row tile; its groups follow each other */
    size_t a_next;    /* bytes to the second one */
    const uint8_t *b; /* [groups][panels] tiles */
    uint32_t groups;
    const float *from; /* [row tiles][panels] sums so far; NULL: zeros */
    float *to;
};

#define START(c)                                                   \
    {                                                              \
        if (s->from != NULL)                                       \
            _tile_loadd(c, s->from + (size_t)(c)*SUMS, PANEL * 4); \
        else                                                       \
            _tile_zero(c);                                         \
    }

INLINE void multiply_square(const struct square *s, const int row_tiles, const int panels)
{
    const uint8_t *a = s->a, *b = s->b;
    START(0)
    if (panels > 1)
        START(1)
    if (row_tiles > 1)
        START(2)
    if (row_tiles > 1 && panels > 1)
        START(3)
    for (uint32_t g = 0; g < s->groups; g++, a += TILE_BYTES, b += panels * TILE_BYTES) {
        _tile_loadd(6, b, TILE_ROW_BYTES);
        _tile_stream_loadd(4, a, TILE_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (panels > 1) {
            _tile_loadd(7, b + TILE_BYTES, TILE_ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (row_tiles > 1) {
            _tile_stream_loadd(5, a + s->a_next, TILE_ROW_BYTES);
            _tile_dpbf16ps(2, 5, 6);
            if (panels > 1)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, s->to, PANEL * 4);
    if (panels > 1)
        _tile_stored(1, s->to + SUMS, PANEL * 4);
    if (row_tiles > 1) {
        _tile_stored(2, s->to + 2 * SUMS, PANEL * 4);
        if (panels > 1)
            _tile_stored(3, s->to + 3 * SUMS, PANEL * 4);
    }
}

/* Always [2][2] places in from and to. */
static void multiply_any(const struct square *s, uint32_t row_tiles, uint32_t panels)
{
    if (row_tiles > 1 && panels > 1)
        multiply_square(s, 2, 2);
    else if (row_tiles > 1)
        multiply_square(s, 2, 1);
    else if (panels > 1)
        multiply_square(s, 1, 2);
    else
        multiply_square(s, 1, 1);
}

/* --- panels ---------------------------------------------------------------------------------- */

/* One or two panels: groups [first, first + count) into scratch as [count][panels] B tiles. */
static void make_b(const struct gemm *g, uint32_t panel, uint32_t panels, uint32_t first,
                   uint32_t count, make_fn make)
{
    const size_t group_bytes = g->panel_bytes / ((g->columns + GROUP - 1) / GROUP);
    uint16_t *to = g->scratch;
    for (uint32_t i = first; i < first + count; i++) {
        for (uint32_t p = panel; p < panel + panels; p++, to += TILE_VALUES) {
            const uint8_t *group = g->panel + p * g->panel_bytes + i * group_bytes;
            _Alignas(64) uint16_t tile[TILE_VALUES];
            __m512 v[PANEL];
            if (make != NULL)
                make(group, tile);
            UNROLL for (int n = 0; n < PANEL; n++) v[n] =
                _mm512_loadu_ps(make != NULL ? (const void *)(tile + n * GROUP)
                                             : group + (size_t)n * TILE_ROW_BYTES);
            transpose16(v);
            UNROLL for (int k = 0; k < GROUP / 2; k++) _mm512_store_ps(to + k * GROUP, v[k]);
        }
    }
}

/* Sums of 16 outputs from column `panel` on, rows [row, row + rows), to y. */
static void write_sums(const struct gemm *g, const float *sums, uint32_t row, uint32_t rows,
                       uint32_t panel)
{
    uint32_t left = g->outputs - panel * PANEL, outputs = left < PANEL ? left : PANEL;
    float *y = g->y + row * g->y_stride + (size_t)panel * PANEL;
    for (uint32_t r = 0; r < rows; r++, y += g->y_stride, sums += PANEL) {
        __m512 sum = _mm512_load_ps(sums);
        if (g->accumulate)
            sum = _mm512_add_ps(sum, v16_load_some(y, outputs));
        v16_store_some(y, outputs, sum);
    }
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

static void write_square(const struct gemm *g, const float *sums, uint32_t row, uint32_t row_tiles,
                         uint32_t panel, uint32_t panels)
{
    for (uint32_t t = 0; t < row_tiles; t++, row += TILE_MAX_ROWS) {
        for (uint32_t p = 0; p < panels; p++)
            write_sums(g, sums + (t * 2 + p) * (size_t)SUMS, row,
                       at_most(g->rows - row, TILE_MAX_ROWS), panel + p);
    }
}

/* All rows with one or two panels. */
static void multiply_panels(const struct gemm *g, uint32_t panel, uint32_t panels, make_fn make)
{
    const uint32_t groups = (g->columns + GROUP - 1) / GROUP;
    const uint32_t blocks = (groups + BLOCK_GROUPS - 1) / BLOCK_GROUPS;
    const uint32_t block = (groups + blocks - 1) / blocks;
    const uint32_t tiles = (g->rows + TILE_MAX_ROWS - 1) / TILE_MAX_ROWS;
    const size_t a_next = packed_tile_values(TILE_MAX_ROWS, g->columns) * sizeof(uint16_t);
    float *waiting = (float *)(g->scratch + MANY_B_VALUES);
    _Alignas(64) float sums[4 * SUMS];
    for (uint32_t first = 0; first < groups; first += block) {
        bool last = first + block >= groups;
        struct square s = {.a_next = a_next,
                           .b = (const uint8_t *)g->scratch,
                           .groups = at_most(groups - first, block)};
        make_b(g, panel, panels, first, s.groups, make);
        for (uint32_t t = 0; t < tiles; t += 2) {
            uint32_t row_tiles = at_most(tiles - t, 2);
            float *here = waiting + t * 2 * (size_t)SUMS;
            s.a = (const uint8_t *)g->packed + t * a_next + (size_t)first * TILE_BYTES;
            s.from = first > 0 ? here : NULL;
            s.to = last ? sums : here;
            multiply_any(&s, row_tiles, panels);
            if (last)
                write_square(g, sums, t * TILE_MAX_ROWS, row_tiles, panel, panels);
        }
    }
}

static void multiply(const struct gemm *g, make_fn make)
{
    struct tile_config config = {0};
    for (int t = 0; t < 8; t++)
        tile_shape(&config, t, TILE_MAX_ROWS, TILE_ROW_BYTES);
    tile_configure(&config);
    for (uint32_t panel = 0; panel < g->panels; panel += 2)
        multiply_panels(g, panel, at_most(g->panels - panel, 2), make);
    _tile_release();
}

void amx_gemm_many(const struct gemm *gemm, enum panel_class class)
{
    static const make_fn makes[PANEL_CLASSES] = {[PANEL_U2] = make_u2,
                                                 [PANEL_U4] = make_u4,
                                                 [PANEL_U5] = make_u5,
                                                 [PANEL_S6] = make_s6,
                                                 [PANEL_S8] = make_s8};
    multiply(gemm, makes[class]);
}
