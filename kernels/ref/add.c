/* add.c - x += y. */
#include "kernels/ref/ref.h"

void ref_add(struct backend *b, struct tensor *x, const struct tensor *y)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        float *to = x->data + (size_t)i * x->stride;
        const float *from = y->data + (size_t)i * y->stride;
        for (uint32_t k = 0; k < x->columns; k++)
            to[k] += from[k];
    }
}
