/* follower.c - wait, forward, done. Any error aborts the group, so that no rank waits for us. */
#include "worker/engine/follower.h"

#include <errno.h>
#include <stdatomic.h>

#include "worker/tp/step_ring.h"

/* 1: stop was asked for. */
static int follow_one(struct follower *follower)
{
    struct step_descriptor descriptor;
    int r = step_ring_wait(follower->group, &descriptor);
    if (r < 0)
        return r;
    if (descriptor.kind == STEP_STOP) {
        step_ring_done(follower->group);
        return 1;
    }
    group_beat(follower->group, descriptor.number);
    r = rank_model_forward(follower->model, &descriptor, NULL);
    step_ring_done(follower->group);
    if (r == 0)
        atomic_store_explicit(&follower->steps, descriptor.number, memory_order_relaxed);
    return r;
}

int follower_run(struct follower *follower, struct errmsg *err)
{
    int r = 0;
    while (r == 0)
        r = follow_one(follower);
    if (r == 1)
        return 0;
    const char *why = group_aborted(follower->group);
    (void)errmsg_set(err, r, "after step %llu: %s", (unsigned long long)follower_steps(follower),
                     why != NULL    ? why
                     : r == -EPROTO ? "a step out of range"
                                    : "no answer");
    group_abort(follower->group, err->text);
    return r;
}

uint64_t follower_steps(const struct follower *follower)
{
    return atomic_load_explicit(&follower->steps, memory_order_relaxed);
}
