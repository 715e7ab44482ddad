/* copy_heads.c - parts of heads from one layout to another. */
#include <string.h>

#include "kernels/ref/ref.h"

void ref_copy_heads(struct backend *b, struct tensor *y, const struct tensor *x,
                    const struct head_copy *copy)
{
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *from = x->data + (size_t)i * x->stride;
        float *to = y->data + (size_t)i * y->stride;
        for (uint32_t h = 0; h < copy->heads; h++)
            memcpy(to + (size_t)h * copy->y_step, from + (size_t)h * copy->x_step,
                   copy->dim * sizeof(float));
    }
}
