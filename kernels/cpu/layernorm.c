/* layernorm.c - rows over threads; a row, or a head of it, is the family's. */
#include "kernels/cpu/cpu.h"

struct layernorm_job {
    const struct cpu_family *family;
    struct tensor *y;
    const struct tensor *x;
    const float *w;
    float eps;
    uint32_t dim;
};

static void layernorm_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct layernorm_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        const float *from = job->x->data + (size_t)i * job->x->stride;
        float *to = job->y->data + (size_t)i * job->y->stride;
        for (uint32_t k = 0; k < job->x->columns; k += job->dim)
            job->family->layernorm_row(from + k, job->w + k, job->eps, job->dim, to + k);
    }
}

void cpu_layernorm(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                   const float *w, float eps)
{
    const struct layernorm_job job = {cpu_state(b)->family, y, x, w, eps, dim};
    cpu_run_rows(b, layernorm_rows, &job, x->rows, 1 + x->columns / 4);
}
