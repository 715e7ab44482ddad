/* rows.c - the cheap ops that go through rows once, in plain C: loops without sums, which the
 * compiler may vectorise as it likes without changing a bit. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

struct row_job {
    struct tensor *y;
    const struct tensor *x;
    const float *values; /* bias, sums */
    const float *w;
    float factor, eps; /* factor, cap */
    uint32_t count;    /* columns of all ranks */
    const struct head_copy *copy;
};

static float *row_of(const struct tensor *t, uint32_t row)
{
    return t->data + (size_t)row * t->stride;
}

static void add_bias_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct row_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        float *y = row_of(job->y, i);
        for (uint32_t k = 0; k < job->y->columns; k++)
            y[k] += job->values[k];
    }
}

void cpu_add_bias(struct backend *b, struct tensor *x, const float *bias)
{
    const struct row_job job = {.y = x, .values = bias};
    cpu_run_rows(b, add_bias_rows, &job, x->rows, 1 + x->columns / 12);
}

static void scale_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct row_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        float *y = row_of(job->y, i);
        for (uint32_t k = 0; k < job->y->columns; k++)
            y[k] *= job->factor;
    }
}

void cpu_scale(struct backend *b, struct tensor *x, float factor)
{
    const struct row_job job = {.y = x, .factor = factor};
    cpu_run_rows(b, scale_rows, &job, x->rows, 1 + x->columns / 12);
}

static void softcap_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct row_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        float *y = row_of(job->y, i);
        for (uint32_t k = 0; k < job->y->columns; k++)
            y[k] = job->factor * tanhf(y[k] / job->factor);
    }
}

void cpu_softcap(struct backend *b, struct tensor *x, float cap)
{
    const struct row_job job = {.y = x, .factor = cap};
    cpu_run_rows(b, softcap_rows, &job, x->rows, 1 + x->columns * 8);
}

/* Only where several ranks share a norm: rows are few, and one thread is enough. */
void cpu_square_sums(struct backend *b, float *sums, const struct tensor *x)
{
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *from = row_of(x, i);
        double sum = 0;
        for (uint32_t k = 0; k < x->columns; k++)
            sum += (double)from[k] * from[k];
        sums[i] = (float)sum;
    }
}

static void norm_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct row_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        float *y = row_of(job->y, i);
        double mean = (double)job->values[i] / job->count;
        float factor = (float)(1 / sqrt(mean + (double)job->eps));
        for (uint32_t k = 0; k < job->y->columns; k++)
            y[k] = y[k] * factor * job->w[k];
    }
}

void cpu_norm_by_sums(struct backend *b, struct tensor *x, const float *sums, uint32_t count,
                      const float *w, float eps)
{
    const struct row_job job = {.y = x, .values = sums, .w = w, .eps = eps, .count = count};
    cpu_run_rows(b, norm_rows, &job, x->rows, 1 + x->columns / 8);
}

static void copy_heads_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct row_job *job = context;
    const struct head_copy *copy = job->copy;
    for (uint32_t i = first; i < end; i++) {
        for (uint32_t h = 0; h < copy->heads; h++)
            memcpy(row_of(job->y, i) + (size_t)h * copy->y_step,
                   row_of(job->x, i) + (size_t)h * copy->x_step, copy->dim * sizeof(float));
    }
}

void cpu_copy_heads(struct backend *b, struct tensor *y, const struct tensor *x,
                    const struct head_copy *copy)
{
    const struct row_job job = {.y = y, .x = x, .copy = copy};
    cpu_run_rows(b, copy_heads_rows, &job, y->rows, 1 + copy->heads * copy->dim / 12);
}
