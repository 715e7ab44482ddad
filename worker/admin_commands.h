/* admin_commands.h - what an operator may ask a worker: one table line and one handler each.
 *
 * Ranks > 0 know the commands about their own process only. Thread: io. */
#ifndef REFRAIN_WORKER_ADMIN_COMMANDS_H
#define REFRAIN_WORKER_ADMIN_COMMANDS_H

#include "worker/admin_socket.h"
#include "worker/engine/engine.h"
#include "worker/engine/follower.h"
#include "worker/info.h"
#include "worker/metrics.h"
#include "worker/router_link.h"

struct admin_context {
    struct admin_socket *admin; /* set once it is made */
    const struct worker_info *info;
    /* Rank 0, else NULL. */
    struct engine *engine;
    struct router_link *link;
    struct worker_metrics *metrics;
    /* Ranks > 0, else NULL. */
    struct follower *follower;
};

/* An admin_call_fn; user is a struct admin_context. */
void admin_commands_call(void *user, const struct admin_call *call);

#endif
