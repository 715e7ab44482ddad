/* gelu_mul.c - rows over threads; the row is the family's. */
#include "kernels/cpu/cpu.h"

struct gelu_job {
    const struct cpu_family *family;
    struct tensor *y;
    const struct tensor *gate_up;
};

static void gelu_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct gelu_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        const float *gate = job->gate_up->data + (size_t)i * job->gate_up->stride;
        job->family->gelu_mul_row(gate, gate + job->y->columns, job->y->columns,
                                  job->y->data + (size_t)i * job->y->stride);
    }
}

void cpu_gelu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up)
{
    const struct gelu_job job = {cpu_state(b)->family, y, gate_up};
    cpu_run_rows(b, gelu_rows, &job, y->rows, 1 + y->columns / 2);
}
