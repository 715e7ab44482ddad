/* softcap.c - x = cap * tanh(x / cap). */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_softcap(struct backend *b, struct tensor *x, float cap)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        float *row = x->data + (size_t)i * x->stride;
        for (uint32_t k = 0; k < x->columns; k++)
            row[k] = cap * tanhf(row[k] / cap);
    }
}
