/* head_norm.c - RMS norms within rows: of each head, and of rows that ranks share. */
#include <math.h>

#include "kernels/ref/ref.h"

static double square_sum(const float *x, uint32_t columns)
{
    double sum = 0;
    for (uint32_t k = 0; k < columns; k++)
        sum += (double)x[k] * x[k];
    return sum;
}

static void norm(float *x, uint32_t columns, double mean, const float *w, float eps)
{
    float factor = (float)(1 / sqrt(mean + (double)eps));
    for (uint32_t k = 0; k < columns; k++)
        x[k] = x[k] * factor * w[k];
}

void ref_head_norm(struct backend *b, struct tensor *x, uint32_t dim, const float *w, float eps)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        float *row = x->data + (size_t)i * x->stride;
        for (float *head = row; head < row + x->columns; head += dim)
            norm(head, dim, square_sum(head, dim) / dim, w, eps);
    }
}

void ref_square_sums(struct backend *b, float *sums, const struct tensor *x)
{
    for (uint32_t i = 0; i < x->rows; i++)
        sums[i] = (float)square_sum(x->data + (size_t)i * x->stride, x->columns);
}

void ref_norm_by_sums(struct backend *b, struct tensor *x, const float *sums, uint32_t count,
                      const float *w, float eps)
{
    for (uint32_t i = 0; i < x->rows; i++)
        norm(x->data + (size_t)i * x->stride, x->columns, (double)sums[i] / count, w, eps);
}
