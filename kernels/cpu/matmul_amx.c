/* matmul_amx.c - matmul with 4- to 8-bit and bf16 panels by bf16 tiles.
 *
 *   y^T [16 outputs][16 rows] += A [16 outputs][32 k] * B [32 k][16 rows]       sums over k: tiles
 *
 *   A    a group of a panel: bf16 as stored, or d * q + m, rounded to bf16, made here
 *   B    activations rounded to bf16, in tile order: made once per matmul (amx_pack_rows)
 *
 *   up to 96 rows:  for each group: make A (two groups ahead, 4 KiB on the stack), 1 to 6 products
 *   more:           make all A of a panel in the thread's scratch, then the same from there
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
#include "kernels/cpu/matmul_panels.h"
#include "kernels/cpu/simd_avx512.h"

#define TILE_VALUES (PANEL * GROUP)
#define TILES_MAX 6 /* row tiles per pass: C in tiles 0..5, A in 6, B in 7 */
#define RING 4      /* groups of A on the stack */
#define AHEAD 2
#define HEADER (PANEL * 2) /* bytes of one f16 vector */

typedef void (*dequantise_fn)(const uint8_t *group, uint16_t *to);

INLINE void store_bf16(uint16_t *to, __m512 low, __m512 high)
{
    __m512bh both = _mm512_cvtne2ps_pbh(high, low);
    _mm512_storeu_si512(to, (__m512i)both);
}

/* Rounded to bf16 in the high half of each value, half up: word 2 i + 1 of what 16 codes mean. */
INLINE __m512i table_of(__m512 codes, __m512 d, __m512 m)
{
    __m512 values = _mm512_fmadd_ps(codes, d, m);
    return _mm512_add_epi32(_mm512_castps_si512(values), _mm512_set1_epi32(0x8000));
}

/* Turns that bring nibble i of a word, i = lane / 8, to bits 1 to 4. */
INLINE __m512i nibble_turns(void)
{
    const __m128i left1 = _mm_set1_epi16(15), right3 = _mm_set1_epi16(3),
                  right7 = _mm_set1_epi16(7), right11 = _mm_set1_epi16(11);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(right3, left1)),
                              _mm256_set_m128i(right11, right7), 1);
}

/* One table holds both halves' meanings: entries 0..3 of the first, 4..7 of the second. */
static void dequantise_u2(const uint8_t *group, uint16_t *to)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i turns = nibble_turns(), code = _mm512_set1_epi16(6);
    const __m512i place = _mm512_inserti64x4(_mm512_set1_epi16(1), _mm256_set1_epi16(9), 1);
    float d[2][PANEL], m[2][PANEL];
    for (int h = 0; h < 2; h++) {
        v16_store(d[h], v16_load_f16(group + h * HEADER));
        v16_store(m[h], v16_load_f16(group + (2 + h) * HEADER));
    }
    group += 4 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++)
    {
        __m512 scale = _mm512_mask_blend_ps(0xf0, _mm512_set1_ps(d[0][n]), _mm512_set1_ps(d[1][n]));
        __m512 min = _mm512_mask_blend_ps(0xf0, _mm512_set1_ps(m[0][n]), _mm512_set1_ps(m[1][n]));
        __m512i words = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)group + n));
        __m512i which = _mm512_and_si512(_mm512_shrdv_epi16(words, words, turns), code);
        __m512i row =
            _mm512_permutexvar_epi16(_mm512_or_si512(which, place), table_of(codes, scale, min));
        _mm512_store_si512(to + n * GROUP, row);
    }
}

static void dequantise_u4(const uint8_t *group, uint16_t *to)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i turns = nibble_turns(), odd = _mm512_set1_epi16(1);
    float d[PANEL], m[PANEL];
    v16_store(d, v16_load_f16(group));
    v16_store(m, v16_load_f16(group + HEADER));
    group += 2 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++)
    {
        __m512i words = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)group + n));
        __m512i which = _mm512_or_si512(_mm512_shrdv_epi16(words, words, turns), odd);
        __m512i row = _mm512_permutexvar_epi16(
            which, table_of(codes, _mm512_set1_ps(d[n]), _mm512_set1_ps(m[n])));
        _mm512_store_si512(to + n * GROUP, row);
    }
}

static void dequantise_u5(const uint8_t *group, uint16_t *to)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 more = _mm512_add_ps(codes, _mm512_set1_ps(16));
    float d[PANEL], m[PANEL];
    v16_store(d, v16_load_f16(group));
    v16_store(m, v16_load_f16(group + HEADER));
    group += 2 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++)
    {
        __m512 scale = _mm512_set1_ps(d[n]), min = _mm512_set1_ps(m[n]);
        __m512i table = (__m512i)_mm512_cvtne2ps_pbh(_mm512_fmadd_ps(more, scale, min),
                                                     _mm512_fmadd_ps(codes, scale, min));
        __m512i which = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)group + n));
        _mm512_storeu_si512(to + n * GROUP, _mm512_permutexvar_epi16(which, table));
    }
}

INLINE __m512 load_signed(const uint8_t *bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)bytes)));
}

static void dequantise_s6(const uint8_t *group, uint16_t *to)
{
    float d[2][PANEL];
    v16_store(d[0], v16_load_f16(group));
    v16_store(d[1], v16_load_f16(group + HEADER));
    group += 2 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++) store_bf16(
        to + n * GROUP, _mm512_mul_ps(load_signed(group + n * GROUP), _mm512_set1_ps(d[0][n])),
        _mm512_mul_ps(load_signed(group + n * GROUP + 16), _mm512_set1_ps(d[1][n])));
}

static void dequantise_s8(const uint8_t *group, uint16_t *to)
{
    float d[PANEL];
    v16_store(d, v16_load_f16(group));
    group += HEADER;
    UNROLL for (int n = 0; n < PANEL; n++) store_bf16(
        to + n * GROUP, _mm512_mul_ps(load_signed(group + n * GROUP), _mm512_set1_ps(d[n])),
        _mm512_mul_ps(load_signed(group + n * GROUP + 16), _mm512_set1_ps(d[n])));
}

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
    PRODUCT(4)
    PRODUCT(5)
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
    for (uint32_t p = 0; g < pass->groups && p < pass->panels; p++)
        dequantise(pass->group + p * pass->panel_bytes + g * pass->group_bytes, ring[p][g % RING]);
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
    ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5)
#undef ZERO
}

INLINE void store_products(uint32_t tiles, uint32_t row_bytes, float (*c)[PANEL * TILE_MAX_ROWS])
{
#define STORE(i)     \
    if (tiles > (i)) \
        _tile_stored(i, c[i], row_bytes);
    STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5)
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
    _Alignas(64) float c[TILES_MAX][PANEL * TILE_MAX_ROWS];
    struct pass pass = {.group = g->panel + panel * g->panel_bytes,
                        .panel_bytes = g->panel_bytes,
                        .group_bytes = g->panel_bytes / groups,
                        .groups = groups,
                        .packed_tile = packed_tile_values(g->packed_width, g->columns),
                        .row_bytes = g->packed_width * 4,
                        .panels = panels};
    if (stored) {
        pass.a = (const uint16_t *)pass.group;
    } else if (tiles > TILES_MAX) {
        for (uint32_t i = 0; i < groups; i++)
            dequantise(pass.group + i * pass.group_bytes, g->scratch + (size_t)i * TILE_VALUES);
        pass.a = g->scratch;
    }
    for (uint32_t first = 0; first < tiles; first += TILES_MAX) {
        pass.tiles = tiles - first < TILES_MAX ? tiles - first : TILES_MAX;
        pass.packed = g->packed + first * pass.packed_tile;
        zero_products(pass.tiles * panels);
        multiply_groups(&pass, dequantise);
        store_products(pass.tiles * panels, pass.row_bytes, c);
        for (uint32_t i = 0; i < pass.tiles * panels; i++) {
            uint32_t row = panels > 1 ? 0 : (first + i) * TILE_MAX_ROWS, rows = g->rows - row;
            uint32_t p = panel + (panels > 1 ? i : 0);
            write_rows(g, c[i], g->packed_width, rows < TILE_MAX_ROWS ? rows : TILE_MAX_ROWS,
                       g->y + row * g->y_stride + p * PANEL, outputs_of(g, p));
        }
    }
}

INLINE void multiply(const struct gemm *g, bool stored, dequantise_fn dequantise)
{
    struct tile_config config = {0};
    for (int c = 0; c < TILES_MAX; c++)
        tile_shape(&config, c, PANEL, g->packed_width * 4);
    if (g->rows <= TILE_MAX_ROWS) /* two panels: the second A */
        tile_shape(&config, 5, PANEL, TILE_ROW_BYTES);
    tile_shape(&config, 6, PANEL, TILE_ROW_BYTES);
    tile_shape(&config, 7, GROUP / 2, g->packed_width * 4);
    tile_configure(&config);
    for (uint32_t panel = 0, count; panel < g->panels; panel += count) {
        count = g->rows <= TILE_MAX_ROWS && g->panels - panel > 1 ? 2 : 1;
        multiply_panel(g, panel, count, stored, dequantise);
    }
    _tile_release();
}

void amx_gemm_u2(const struct gemm *gemm)
{
    multiply(gemm, false, dequantise_u2);
}

void amx_gemm_u4(const struct gemm *gemm)
{
    multiply(gemm, false, dequantise_u4);
}

void amx_gemm_u5(const struct gemm *gemm)
{
    multiply(gemm, false, dequantise_u5);
}

void amx_gemm_s6(const struct gemm *gemm)
{
    multiply(gemm, false, dequantise_s6);
}

void amx_gemm_s8(const struct gemm *gemm)
{
    multiply(gemm, false, dequantise_s8);
}

void amx_gemm_bf16(const struct gemm *gemm)
{
    multiply(gemm, true, NULL);
}

/* --- activations ----------------------------------------------------------------------------- */

/* Pairs of k of one row, 16 pairs from k on; zeros past the end. */
INLINE __m512i load_pairs(const float *x, uint32_t k, uint32_t columns)
{
    uint32_t left = columns > k ? columns - k : 0;
    __m512 low = v16_load_some(x + k, left < 16 ? left : 16);
    __m512 high = v16_load_some(x + k + 16, left < 32 ? (left > 16 ? left - 16 : 0) : 16);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

void amx_pack_rows(const float *x, size_t x_stride, uint32_t rows, uint32_t columns, uint32_t width,
                   uint16_t *to)
{
    for (uint32_t k = 0; k < columns; k += GROUP, to += (size_t)GROUP * width) {
        __m512i v[TILE_MAX_ROWS];
        if (width < TILE_MAX_ROWS) {
            for (uint32_t r = 0; r < width; r++) {
                uint32_t pairs[GROUP / 2], *at = (uint32_t *)to + r;
                __m512i row =
                    r < rows ? load_pairs(x + r * x_stride, k, columns) : _mm512_setzero_si512();
                _mm512_storeu_si512(pairs, row);
                for (uint32_t i = 0; i < GROUP / 2; i++)
                    at[i * width] = pairs[i];
            }
            continue;
        }
        UNROLL for (uint32_t r = 0; r < TILE_MAX_ROWS; r++) v[r] =
            r < rows ? load_pairs(x + r * x_stride, k, columns) : _mm512_setzero_si512();
        transpose16((__m512 *)v);
        UNROLL for (uint32_t i = 0; i < TILE_MAX_ROWS; i++)
            _mm512_storeu_si512(to + (size_t)i * TILE_MAX_ROWS * 2, v[i]);
    }
}
