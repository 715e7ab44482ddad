/* rmsnorm.c - y = x / sqrt(mean(x^2) + eps) * w (Zhang and Sennrich 2019), sum in double. */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_rmsnorm(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                 float eps)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *from = x->data + (size_t)i * x->stride;
        float *to = y->data + (size_t)i * y->stride;
        double sum = 0;
        for (uint32_t k = 0; k < x->columns; k++)
            sum += (double)from[k] * from[k];
        float factor = (float)(1 / sqrt(sum / x->columns + (double)eps));
        for (uint32_t k = 0; k < x->columns; k++)
            to[k] = from[k] * factor * w[k];
    }
}
