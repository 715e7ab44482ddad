/* route.c - the experts of each row. */
#include "kernels/ref/ref.h"
#include "kernels/router.h"

void ref_route(struct backend *b, uint32_t *ret_ids, float *ret_weights,
               const struct tensor *logits, const float *bias, const struct router *router)
{
    for (uint32_t i = 0; i < logits->rows; i++) {
        size_t at = (size_t)i * router->chosen;
        router_choose(ret_ids + at, ret_weights + at, logits->data + (size_t)i * logits->stride,
                      bias, router);
    }
}
