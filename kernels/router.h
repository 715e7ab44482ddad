/* router.h - op_route of one row: what kernels/ref and kernels/cpu share. */
#ifndef REFRAIN_KERNELS_ROUTER_H
#define REFRAIN_KERNELS_ROUTER_H

#include "kernels/ops.h"

/* ids, weights [router->chosen]; logits [router->experts]; bias the same or NULL. */
void router_choose(uint32_t *ids, float *weights, const float *logits, const float *bias,
                   const struct router *router);

#endif
