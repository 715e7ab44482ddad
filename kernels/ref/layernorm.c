/* layernorm.c - y = (x - mean) / sqrt(variance + eps) * w of a row or of each of its heads (Ba et
 * al. 2016), sums in double. */
#include <math.h>

#include "kernels/ref/ref.h"

static void norm(const float *x, uint32_t columns, const float *w, float eps, float *y)
{
    double sum = 0, squares = 0;
    for (uint32_t k = 0; k < columns; k++)
        sum += (double)x[k];
    double mean = sum / columns;
    for (uint32_t k = 0; k < columns; k++)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    double factor = 1 / sqrt(squares / columns + (double)eps);
    for (uint32_t k = 0; k < columns; k++)
        y[k] = (float)(((double)x[k] - mean) * factor) * w[k];
}

void ref_layernorm(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                   const float *w, float eps)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *from = x->data + (size_t)i * x->stride;
        float *to = y->data + (size_t)i * y->stride;
        for (uint32_t k = 0; k < x->columns; k += dim)
            norm(from + k, dim, w + k, eps, to + k);
    }
}
