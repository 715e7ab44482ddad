/* route.c - the experts of each row, rows over threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/router.h"

struct route_job {
    uint32_t *ids;
    float *weights;
    const struct tensor *logits;
    const float *bias;
    const struct router *router;
};

static void route_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct route_job *job = context;
    for (uint32_t i = first; i < end; i++) {
        size_t at = (size_t)i * job->router->chosen;
        router_choose(job->ids + at, job->weights + at,
                      job->logits->data + (size_t)i * job->logits->stride, job->bias, job->router);
    }
}

void cpu_route(struct backend *b, uint32_t *ret_ids, float *ret_weights,
               const struct tensor *logits, const float *bias, const struct router *router)
{
    const struct route_job job = {ret_ids, ret_weights, logits, bias, router};
    cpu_run_rows(b, route_rows, &job, logits->rows, 1 + router->experts * (8 + router->chosen));
}
