/* add_bias.c - x[i, :] += bias. */
#include "kernels/ref/ref.h"

void ref_add_bias(struct backend *b, struct tensor *x, const float *bias)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        for (uint32_t k = 0; k < x->columns; k++)
            x->data[(size_t)i * x->stride + k] += bias[k];
    }
}
