/* scale.c - x *= factor. */
#include "kernels/ref/ref.h"

void ref_scale(struct backend *b, struct tensor *x, float factor)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        for (uint32_t k = 0; k < x->columns; k++)
            x->data[(size_t)i * x->stride + k] *= factor;
    }
}
