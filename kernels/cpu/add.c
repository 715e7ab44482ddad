/* add.c - x += y, rows over threads. */
#include "kernels/cpu/cpu.h"

struct add_job {
    struct tensor *x;
    const struct tensor *y;
};

static void add_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct add_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        float *to = job->x->data + (size_t)i * job->x->stride;
        const float *from = job->y->data + (size_t)i * job->y->stride;
        for (uint32_t k = 0; k < job->x->columns; k++)
            to[k] += from[k];
    }
}

void cpu_add(struct backend *b, struct tensor *x, const struct tensor *y)
{
    const struct add_job job = {x, y};
    cpu_run_rows(b, add_rows, &job, x->rows, 1 + x->columns / 12);
}
