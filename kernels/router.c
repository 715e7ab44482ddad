/* router.c - one row's experts, for every backend whose activations lie in host memory: scalar
 * steps over a few hundred logits, so that no backend needs its own and none can rank differently.
 */
#include "kernels/router.h"

#include <math.h>

/* Index of the largest of `values`; the first of equals. */
static uint32_t largest(const float *values, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        best = values[i] > values[best] ? i : best;
    return best;
}

static void score(const float *logits, const struct router *router, float *ret_scores)
{
    float max = logits[largest(logits, router->experts)], sum = 0;
    for (uint32_t e = 0; e < router->experts; e++) {
        ret_scores[e] = router->sigmoid ? 1 / (1 + expf(-logits[e])) : expf(logits[e] - max);
        sum += ret_scores[e];
    }
    for (uint32_t e = 0; e < router->experts && !router->sigmoid; e++)
        ret_scores[e] /= sum;
}

static float group_rank(const float *ranks, uint32_t count, bool two)
{
    uint32_t best = largest(ranks, count);
    float second = -INFINITY;
    for (uint32_t i = 0; i < count && two; i++)
        second = i != best && ranks[i] > second ? ranks[i] : second;
    return count > 1 && two ? ranks[best] + second : ranks[best];
}

/* Index of the largest that is not taken yet. What is no number ranks as it may, but nothing is
 * taken twice: buffers of experts hold a row once. */
static uint32_t take_largest(const float *ranks, uint32_t count, bool *taken)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        if (!taken[i] && (best == count || ranks[i] > ranks[best]))
            best = i;
    }
    taken[best] = true;
    return best;
}

/* Experts of groups that are not among the best leave the ranking. */
static void drop_groups(float *ranks, const struct router *router)
{
    float group[ROUTER_EXPERTS_MAX];
    bool kept[ROUTER_EXPERTS_MAX] = {false};
    uint32_t each = router->experts / router->groups;
    for (uint32_t g = 0; g < router->groups; g++)
        group[g] = group_rank(ranks + (size_t)g * each, each, router->group_by_two);
    for (uint32_t n = 0; n < router->groups_chosen; n++)
        (void)take_largest(group, router->groups, kept);
    for (uint32_t e = 0; e < router->experts; e++)
        ranks[e] = kept[e / each] ? ranks[e] : -INFINITY;
}

void router_choose(uint32_t *ids, float *weights, const float *logits, const float *bias,
                   const struct router *router)
{
    float scores[ROUTER_EXPERTS_MAX], ranks[ROUTER_EXPERTS_MAX], sum = 0;
    bool chosen[ROUTER_EXPERTS_MAX] = {false};
    score(logits, router, scores);
    for (uint32_t e = 0; e < router->experts; e++)
        ranks[e] = scores[e] + (bias != NULL ? bias[e] : 0);
    if (router->groups_chosen < router->groups)
        drop_groups(ranks, router);
    for (uint32_t n = 0; n < router->chosen; n++)
        sum += scores[take_largest(ranks, router->experts, chosen)];
    float factor = router->normalise ? router->scale / (sum + 1e-20f) : router->scale;
    for (uint32_t e = 0, n = 0; e < router->experts && n < router->chosen; e++) {
        if (!chosen[e])
            continue;
        ids[n] = e;
        weights[n++] = scores[e] * factor;
    }
}
