/* tiles.c - AMX's tiles by AVX2. Names, order of checks and arithmetic are those of Intel's manual
 * (LDTILECFG, TILELOADD, TILESTORED, TDPBF16PS). */
#include "tests/emulate/tiles.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILES 8
#define ROWS 16
#define ROW_BYTES 64
#define MXCSR_OF_TILES 0x9fc0u /* no exceptions, to nearest even, FTZ, DAZ */

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct tile {
    uint32_t rows, row_bytes; /* 0: there is no such tile */
    _Alignas(32) uint8_t data[ROWS][ROW_BYTES];
};

static _Thread_local struct {
    bool held;
    struct tile tiles[TILES];
} state;

static void expect(bool good, const char *what)
{
    if (good)
        return;
    (void)fprintf(stderr, "emulated AMX: fault: %s\n", what);
    abort();
}

static struct tile *tile_of(int index)
{
    expect(state.held, "tiles are used that are not configured, or released");
    expect(index >= 0 && index < TILES && state.tiles[index].rows > 0, "no such tile");
    return &state.tiles[index];
}

void emulated_tile_loadconfig(const void *from)
{
    static const uint8_t nothing[16];
    struct config config;
    memcpy(&config, from, sizeof(config));
    expect(!state.held, "tiles are configured while the thread holds some");
    expect(config.palette == 1 && config.start_row == 0, "a palette that is not 1, or a start row");
    expect(memcmp(config.reserved, nothing, sizeof(config.reserved)) == 0 &&
               memcmp(config.row_bytes + TILES, nothing, 16) == 0 &&
               memcmp(config.rows + TILES, nothing, 8) == 0,
           "reserved bytes of a configuration");
    memset(&state, 0, sizeof(state));
    for (int t = 0; t < TILES; t++) {
        struct tile *tile = &state.tiles[t];
        tile->rows = config.rows[t];
        tile->row_bytes = config.row_bytes[t];
        expect(tile->rows <= ROWS && tile->row_bytes <= ROW_BYTES, "a tile is too large");
        expect((tile->rows == 0) == (tile->row_bytes == 0), "a tile has rows or bytes alone");
    }
    state.held = true;
}

void emulated_tile_release(void)
{
    memset(&state, 0, sizeof(state));
}

void emulated_tile_zero(int index)
{
    struct tile *tile = tile_of(index);
    memset(tile->data, 0, sizeof(tile->data));
}

void emulated_tile_loadd(int index, const void *from, size_t stride)
{
    struct tile *tile = tile_of(index);
    emulated_tile_zero(index);
    for (uint32_t r = 0; r < tile->rows; r++)
        memcpy(tile->data[r], (const uint8_t *)from + r * stride, tile->row_bytes);
}

void emulated_tile_stored(int index, void *to, size_t stride)
{
    const struct tile *tile = tile_of(index);
    for (uint32_t r = 0; r < tile->rows; r++)
        memcpy((uint8_t *)to + r * stride, tile->data[r], tile->row_bytes);
}

static __m256 even_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

static __m256 odd_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
}

/* Called through a pointer, so that nothing of it moves to the other side of a change of MXCSR. */
static void multiply(struct tile *sums, const struct tile *a, const struct tile *b)
{
    for (uint32_t m = 0; m < a->rows; m++) {
        __m256 even[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, odd[2] = {even[0], even[0]};
        for (uint32_t k = 0; k < b->rows; k++) {
            int32_t pair;
            memcpy(&pair, a->data[m] + (size_t)k * 4, sizeof(pair));
            for (int h = 0; h < 2; h++) {
                const __m256i row = _mm256_load_si256((const __m256i *)b->data[k] + h);
                const __m256i both = _mm256_set1_epi32(pair);
                even[h] = _mm256_fmadd_ps(even_of(both), even_of(row), even[h]);
                odd[h] = _mm256_fmadd_ps(odd_of(both), odd_of(row), odd[h]);
            }
        }
        for (int h = 0; h < 2; h++) {
            float *to = (float *)(void *)sums->data[m] + (size_t)h * 8;
            _mm256_store_ps(to, _mm256_add_ps(_mm256_load_ps(to), _mm256_add_ps(even[h], odd[h])));
        }
    }
}

void emulated_tile_dpbf16ps(int index, int index_a, int index_b)
{
    void (*volatile const run)(struct tile *, const struct tile *, const struct tile *) = multiply;
    struct tile *sums = tile_of(index);
    const struct tile *a = tile_of(index_a), *b = tile_of(index_b);
    expect(sums != a && sums != b && a != b, "a tile is used twice in a product");
    expect(sums->row_bytes % 4 == 0 && a->row_bytes % 4 == 0, "a row has half a pair");
    expect(sums->rows == a->rows && sums->row_bytes == b->row_bytes && a->row_bytes / 4 == b->rows,
           "shapes of a product do not fit");
    unsigned mode = _mm_getcsr();
    _mm_setcsr(MXCSR_OF_TILES);
    run(sums, a, b);
    _mm_setcsr(mode);
}
