/* gelu_mul.c - y = gelu(gate) * up, gelu in its tanh form (Hendrycks and Gimpel 2016). */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_gelu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up)
{
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *gate = gate_up->data + (size_t)i * gate_up->stride;
        const float *up = gate + y->columns;
        float *to = y->data + (size_t)i * y->stride;
        for (uint32_t k = 0; k < y->columns; k++) {
            float x = gate[k];
            float u = 0.7978845608028654f * (x + 0.044715f * x * x * x); /* sqrt(2 / pi) */
            to[k] = 0.5f * x * (1 + tanhf(u)) * up[k];
        }
    }
}
