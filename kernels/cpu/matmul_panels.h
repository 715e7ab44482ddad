/* matmul_panels.h - how the quantised matmuls of all families walk over panels; private to them.
 *
 *   for each panel: for each block of K: multiply(block, rows)      sums wait in y between blocks
 *
 * Why blocks of K: a panel's block stays in the first cache while the rows pass. Sums that wait in
 * y are stored and loaded whole, so the cut does not show in the bits. */
#ifndef REFRAIN_KERNELS_CPU_MATMUL_PANELS_H
#define REFRAIN_KERNELS_CPU_MATMUL_PANELS_H

#include "kernels/cpu/family.h"

#define GROUP_BLOCK 32 /* groups per block of K: 10 to 18 KiB of a panel */
#define TAIL_ROWS 32

/* Columns of y that the last, padded panel has (outputs % 16), in and out of a [rows][16] buffer.
 */
static inline void matmul_tail_load(const struct gemm *g, uint32_t panel, uint32_t row,
                                    uint32_t rows, float *buffer)
{
    uint32_t width = g->outputs - panel * PANEL;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = 0; j < PANEL; j++)
            buffer[r * PANEL + j] =
                j < width && g->accumulate ? g->y[(row + r) * g->y_stride + panel * PANEL + j] : 0;
    }
}

static inline void matmul_tail_store(const struct gemm *g, uint32_t panel, uint32_t row,
                                     uint32_t rows, const float *buffer)
{
    uint32_t width = g->outputs - panel * PANEL;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = 0; j < width; j++)
            g->y[(row + r) * g->y_stride + panel * PANEL + j] = buffer[r * PANEL + j];
    }
}

struct block { /* one panel, some groups, some rows */
    const uint8_t *panel;
    struct quant_rows quant;       /* of the first row and group */
    size_t q_stride, group_stride; /* of rows: in bytes of q, in groups */
    float *y;
    size_t y_stride;
    uint32_t groups;
    bool add; /* start from y, else from 0 */
};

typedef void (*block_fn)(const struct block *block, uint32_t rows);

static inline struct quant_rows quant_at(const struct quant_rows *quant, size_t q, size_t group)
{
    return (struct quant_rows){quant->q + q, quant->scale_sums + group * 2,
                               quant->half_sums + group * 2};
}

/* The block from row `rows` on. */
static inline struct block block_rows(const struct block *b, uint32_t rows)
{
    struct block next = *b;
    next.quant = quant_at(&b->quant, rows * b->q_stride, rows * b->group_stride);
    next.y += rows * b->y_stride;
    return next;
}

static inline struct block block_of(const struct gemm *g, uint32_t panel, uint32_t group)
{
    uint32_t groups = g->columns / GROUP, left = groups - group;
    return (struct block){
        .panel = g->panel + panel * g->panel_bytes + group * (g->panel_bytes / groups),
        .quant = quant_at(&g->quant, (size_t)group * GROUP, group),
        .q_stride = g->columns,
        .group_stride = groups,
        .y = g->y + (size_t)panel * PANEL,
        .y_stride = g->y_stride,
        .groups = left < GROUP_BLOCK ? left : GROUP_BLOCK,
        .add = group > 0 || g->accumulate,
    };
}

/* The last panel, wider than y: through a buffer, some rows at a time. */
static inline void multiply_tail(const struct gemm *g, uint32_t panel, block_fn multiply)
{
    float buffer[TAIL_ROWS * PANEL];
    for (uint32_t row = 0; row < g->rows; row += TAIL_ROWS) {
        uint32_t rows = g->rows - row < TAIL_ROWS ? g->rows - row : TAIL_ROWS;
        matmul_tail_load(g, panel, row, rows, buffer);
        for (uint32_t group = 0; group < g->columns / GROUP; group += GROUP_BLOCK) {
            struct block whole = block_of(g, panel, group), b = block_rows(&whole, row);
            b.y = buffer;
            b.y_stride = PANEL;
            multiply(&b, rows);
        }
        matmul_tail_store(g, panel, row, rows, buffer);
    }
}

static inline void multiply_all(const struct gemm *g, block_fn multiply)
{
    uint32_t whole = g->outputs / PANEL;
    for (uint32_t panel = 0; panel < whole; panel++) {
        for (uint32_t group = 0; group < g->columns / GROUP; group += GROUP_BLOCK) {
            struct block b = block_of(g, panel, group);
            multiply(&b, g->rows);
        }
    }
    if (whole < g->panels)
        multiply_tail(g, whole, multiply);
}

#endif
