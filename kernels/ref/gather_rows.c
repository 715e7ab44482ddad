/* gather_rows.c - y[i, :] = x[rows[i], :]. */
#include <string.h>

#include "kernels/ref/ref.h"

void ref_gather_rows(struct backend *b, struct tensor *y, const struct tensor *x,
                     const uint32_t *rows)
{
    for (uint32_t i = 0; i < y->rows; i++)
        memcpy(y->data + (size_t)i * y->stride, x->data + (size_t)rows[i] * x->stride,
               y->columns * sizeof(float));
}
