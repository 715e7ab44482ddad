/* bench_lora.c - what a term of an adapter costs: CSV of op_lora_add, microseconds per call, beside
 * the base model's bf16 product of the same shape. Rows of one adapter, or of two by turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"

#define COLUMNS 2048u /* inputs and outputs */
#define ROWS_MAX 512u
#define REPEATS 40

static float *filled(size_t count)
{
    void *memory = NULL;
    if (mem_map(count * sizeof(float), &memory) < 0)
        abort();
    float *values = memory;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i % 17) * 0.01f - 0.08f;
    return values;
}

static double least(double a, uint64_t ns)
{
    double us = (double)ns / 1e3;
    return a == 0 || us < a ? us : a;
}

static void measure(struct backend *b, const struct weight *weight, uint32_t rows, uint32_t rank)
{
    float *x = filled((size_t)rows * COLUMNS), *y = filled((size_t)rows * COLUMNS);
    float *low = filled((size_t)rows * lora_padded(rank));
    float *a = filled((size_t)lora_padded(rank) * COLUMNS), *up = filled((size_t)COLUMNS * rank);
    uint32_t order[2][ROWS_MAX], all[ROWS_MAX];
    struct tensor tx = tensor_of(x, rows, COLUMNS), ty = tensor_of(y, rows, COLUMNS);
    struct tensor tl = tensor_of(low, rows, lora_padded(rank));
    const struct lora_term term = {a, up, rank, 0, COLUMNS};
    struct lora_group one = {all, rows, 1, {term}}, two[2];
    for (uint32_t i = 0; i < rows; i++) {
        all[i] = i;
        order[i % 2][i / 2] = i;
    }
    two[0] = (struct lora_group){order[0], (rows + 1) / 2, 1, {term}};
    two[1] = (struct lora_group){order[1], rows / 2, 1, {term}};
    double base = 0, single = 0, mixed = 0;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t t0 = clock_ns();
        op_matmul(b, &ty, &tx, weight, false);
        uint64_t t1 = clock_ns();
        op_lora_add(b, &ty, &tx, &tl, &one, 1);
        uint64_t t2 = clock_ns();
        op_lora_add(b, &ty, &tx, &tl, two, 2);
        uint64_t t3 = clock_ns();
        base = least(base, t1 - t0);
        single = least(single, t2 - t1);
        mixed = least(mixed, t3 - t2);
    }
    (void)printf("%s,%u,%u,%u,%u,%.1f,%.1f,%.1f\n", b->isa, b->threads, COLUMNS, rows, rank, base,
                 single, mixed);
}

int main(int argc, char **argv)
{
    static const uint32_t rows[] = {1, 8, 64, 512}, ranks[] = {8, 16, 64};
    const struct backend_settings settings = {.name = "cpu",
                                              .threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1,
                                              .isa = argc > 2 ? argv[2] : NULL};
    struct errmsg err = {""};
    struct backend *b = NULL;
    struct weight *weight = NULL;
    if (backend_open(&settings, &b, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    uint16_t *stored = mem_calloc((size_t)COLUMNS * COLUMNS, sizeof(*stored));
    const struct weight_part part = {.dtype = DTYPE_BF16,
                                     .data = stored,
                                     .row_bytes = COLUMNS * sizeof(*stored),
                                     .rows = COLUMNS};
    if (op_weight_new(b, WEIGHT_MATMUL, &part, 1, COLUMNS, &weight, &err) < 0)
        return 1;
    (void)printf("isa,threads,columns,rows,rank,base_us,lora_us,two_adapters_us\n");
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 3; k++)
            measure(b, weight, rows[i], ranks[k]);
    }
    op_weight_free(b, weight);
    mem_free(stored);
    backend_close(b);
    return 0;
}
