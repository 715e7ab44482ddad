/* matmul_float_simd.h - for v16, matmul with bf16, f16 and f32 panels: FMA, k in order.
 *
 *   for k in blocks of 512: for 4 panels (<= 128 KiB): all rows of the piece      sums wait in y
 *
 * Why blocks of k: a panel's block stays in the first cache while the rows pass. Sums that wait in
 * y between blocks are stored and loaded whole, so the cut does not show in the bits. With
 * `accumulate` the chain starts from y.
 * The last panel may be wider than y: it goes through a small buffer, a row tile at a time. */
#ifndef REFRAIN_KERNELS_CPU_MATMUL_FLOAT_SIMD_H
#define REFRAIN_KERNELS_CPU_MATMUL_FLOAT_SIMD_H

#include "kernels/cpu/matmul_panels.h"
#include "kernels/cpu/tile.h"

#define K_BLOCK 512

static struct tile tile_of(enum tile_kind kind, const struct gemm *g, uint32_t panel, uint32_t k)
{
    uint32_t left = g->columns - k;
    return (struct tile){
        .a = g->x + k,
        .a_stride = g->x_stride,
        .panel = g->panel + panel * g->panel_bytes + tile_bytes(kind, k),
        .panel_stride = g->panel_bytes,
        .k_end = left < K_BLOCK ? left : K_BLOCK,
        .c = g->y + (size_t)panel * PANEL,
        .c_stride = g->y_stride,
        .add = k > 0 || g->accumulate,
    };
}

typedef void (*tile_fn)(const struct tile *t, uint32_t rows, uint32_t panels);

static void multiply_float_tail(enum tile_kind kind, const struct gemm *g, uint32_t panel,
                                tile_fn run)
{
    float buffer[TAIL_ROWS * PANEL];
    for (uint32_t row = 0; row < g->rows; row += TAIL_ROWS) {
        uint32_t rows = g->rows - row < TAIL_ROWS ? g->rows - row : TAIL_ROWS;
        matmul_tail_load(g, panel, row, rows, buffer);
        for (uint32_t k = 0; k < g->columns; k += K_BLOCK) {
            struct tile t = tile_of(kind, g, panel, k);
            t.a += row * g->x_stride;
            t.c = buffer;
            t.c_stride = PANEL;
            run(&t, rows, 1);
        }
        matmul_tail_store(g, panel, row, rows, buffer);
    }
}

static void multiply_float(enum tile_kind kind, const struct gemm *g, tile_fn run)
{
    uint32_t whole = g->outputs / PANEL;
    for (uint32_t p = 0; p < whole; p += TILE_PANELS) {
        uint32_t panels = whole - p < TILE_PANELS ? whole - p : TILE_PANELS;
        for (uint32_t k = 0; k < g->columns; k += K_BLOCK) {
            struct tile t = tile_of(kind, g, p, k);
            run(&t, g->rows, panels);
        }
    }
    if (whole < g->panels)
        multiply_float_tail(kind, g, whole, run);
}

static void run_bf16(const struct tile *t, uint32_t rows, uint32_t panels)
{
    tile_run(TILE_BF16, t, rows, panels);
}

static void run_f16(const struct tile *t, uint32_t rows, uint32_t panels)
{
    tile_run(TILE_F16, t, rows, panels);
}

static void run_f32(const struct tile *t, uint32_t rows, uint32_t panels)
{
    tile_run(TILE_F32, t, rows, panels);
}

#endif
