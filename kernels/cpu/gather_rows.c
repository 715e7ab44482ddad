/* gather_rows.c - y[i, :] = x[rows[i], :]. The few rows whose logits are wanted: one thread. */
#include <string.h>

#include "kernels/cpu/cpu.h"

void cpu_gather_rows(struct backend *b, struct tensor *y, const struct tensor *x,
                     const uint32_t *rows)
{
    for (uint32_t i = 0; i < y->rows; i++)
        memcpy(y->data + (size_t)i * y->stride, x->data + (size_t)rows[i] * x->stride,
               y->columns * sizeof(float));
}
