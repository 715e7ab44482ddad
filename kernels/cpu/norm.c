/* norm.c - op_rmsnorm, op_head_norm and op_layernorm: rows over threads; a row, or each of its
 * heads, is the family's. */
#include "kernels/cpu/cpu.h"

struct norm_job {
    void (*norm)(const float *x, const float *w, float eps, uint32_t columns, float *y);
    struct tensor *y;
    const struct tensor *x;
    const float *w;
    uint32_t dim, w_step; /* columns of a head; from its weights to the next one's, 0: the same */
    float eps;
};

static void norm_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct norm_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        const float *from = job->x->data + (size_t)i * job->x->stride, *w = job->w;
        float *to = job->y->data + (size_t)i * job->y->stride;
        for (uint32_t k = 0; k < job->x->columns; k += job->dim, w += job->w_step)
            job->norm(from + k, w, job->eps, job->dim, to + k);
    }
}

void cpu_rmsnorm(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                 float eps)
{
    const struct norm_job job = {cpu_state(b)->family->rmsnorm_row, y, x, w, x->columns, 0, eps};
    cpu_run_rows(b, norm_rows, &job, x->rows, 1 + x->columns / 8);
}

void cpu_head_norm(struct backend *b, struct tensor *x, uint32_t dim, const float *w, float eps)
{
    const struct norm_job job = {cpu_state(b)->family->rmsnorm_row, x, x, w, dim, 0, eps};
    cpu_run_rows(b, norm_rows, &job, x->rows, 1 + x->columns / 4);
}

void cpu_layernorm(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                   const float *w, float eps)
{
    const struct norm_job job = {cpu_state(b)->family->layernorm_row, y, x, w, dim, dim, eps};
    cpu_run_rows(b, norm_rows, &job, x->rows, 1 + x->columns / 4);
}
