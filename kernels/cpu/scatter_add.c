/* scatter_add.c - y[rows[i], :] += scale[i] * x[i, :]. The few rows of one expert: one thread. */
#include "kernels/cpu/cpu.h"

void cpu_scatter_add(struct backend *b, struct tensor *y, const struct tensor *x,
                     const uint32_t *rows, const float *scale)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *from = x->data + (size_t)i * x->stride;
        float *to = y->data + (size_t)rows[i] * y->stride;
        for (uint32_t k = 0; k < x->columns; k++)
            to[k] += scale[i] * from[k];
    }
}
