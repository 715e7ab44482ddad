/* policy_least_loaded.c - fewest requests in flight, blind to prefixes; for comparison. */
#include <errno.h>

#include "router/route/policy.h"

static int choose(const struct policy_view *view, struct policy_choice *ret_choice)
{
    uint32_t best = view->workers_count;

    for (uint32_t i = 0; i < view->workers_count; i++) {
        uint32_t w = (i + view->rotation) % view->workers_count;
        if (!view->workers[w].eligible)
            continue;
        if (best == view->workers_count || view->workers[w].inflight < view->workers[best].inflight)
            best = w;
    }
    if (best == view->workers_count)
        return -EAGAIN;
    ret_choice->worker = best;
    ret_choice->own_seconds = policy_own_seconds(view, &view->workers[best]);
    ret_choice->cost_seconds = view->workers[best].queued_seconds + ret_choice->own_seconds;
    ret_choice->why = policy_eligible(view) == 1 ? "only" : "least_loaded";
    return 0;
}

const struct policy policy_least_loaded = {"least_loaded", choose};
