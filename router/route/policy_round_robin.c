/* policy_round_robin.c - each eligible worker in turn; for comparison. */
#include <errno.h>

#include "router/route/policy.h"

static int choose(const struct policy_view *view, struct policy_choice *ret_choice)
{
    uint32_t eligible = policy_eligible(view);
    if (!eligible)
        return -EAGAIN;

    uint32_t turn = view->rotation % eligible;
    for (uint32_t w = 0; w < view->workers_count; w++) {
        if (!view->workers[w].eligible)
            continue;
        if (turn-- == 0) {
            ret_choice->worker = w;
            break;
        }
    }
    const struct policy_worker *worker = &view->workers[ret_choice->worker];
    ret_choice->own_seconds = policy_own_seconds(view, worker);
    ret_choice->cost_seconds = worker->queued_seconds + ret_choice->own_seconds;
    ret_choice->why = eligible == 1 ? "only" : "round_robin";
    return 0;
}

const struct policy policy_round_robin = {"round_robin", choose};
