/* rmsnorm.c - rows over threads; the row is the family's. */
#include "kernels/cpu/cpu.h"

struct rmsnorm_job {
    const struct cpu_family *family;
    struct tensor *y;
    const struct tensor *x;
    const float *w;
    float eps;
};

static void rmsnorm_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct rmsnorm_job *job = context;
    for (uint32_t i = first; i < end; i++)
        job->family->rmsnorm_row(job->x->data + (size_t)i * job->x->stride, job->w, job->eps,
                                 job->x->columns, job->y->data + (size_t)i * job->y->stride);
}

void cpu_rmsnorm(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                 float eps)
{
    const struct rmsnorm_job job = {cpu_state(b)->family, y, x, w, eps};
    cpu_run_rows(b, rmsnorm_rows, &job, x->rows, 1 + x->columns / 8);
}
