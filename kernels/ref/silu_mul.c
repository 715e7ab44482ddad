/* silu_mul.c - y = gate / (1 + exp(-gate)) * up (Shazeer 2020, SwiGLU). */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_silu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up)
{
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *gate = gate_up->data + (size_t)i * gate_up->stride;
        const float *up = gate + y->columns;
        float *to = y->data + (size_t)i * y->stride;
        for (uint32_t k = 0; k < y->columns; k++)
            to[k] = gate[k] / (1 + expf(-gate[k])) * up[k];
    }
}
