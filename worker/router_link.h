/* router_link.h - everything a worker says to routers and hears from them.
 *
 *   not attached --Attach--> ATTACHING (Hello sent, snapshot asked of the engine)
 *                --snapshot sent--> ATTACHED (gets every KvEvents from here on, its own
 * StepOutputs)
 *                --5 s of silence, gone, or it does not read--> forgotten, its requests cancelled
 *
 * An Attach of an attached router (same connection, same uuid) only keeps it alive. While fewer
 * routers are attached than endpoints are known, Announce goes to all endpoints.
 * Thread: io. */
#ifndef REFRAIN_WORKER_ROUTER_LINK_H
#define REFRAIN_WORKER_ROUTER_LINK_H

#include <poll.h>
#include <stdbool.h>

#include "worker/engine/engine.h"
#include "worker/grammars.h"
#include "worker/info.h"
#include "worker/lora/adapters.h"
#include "worker/metrics.h"

#define ROUTERS_MAX 16u

struct router_link;

struct router_link_settings {
    const struct worker_info *info; /* these outlive the link */
    struct engine *engine;
    struct worker_metrics *metrics;
    struct grammars *grammars;
    struct adapters *adapters; /* NULL: none are served */
};

/* Binds the data socket and connects to the registration endpoints. -EADDRINUSE etc. */
int router_link_new(const struct router_link_settings *settings, struct router_link **ret_link,
                    struct errmsg *err);
/* linger_ms: how long what was sent last may take to leave. NULL is fine. */
void router_link_free(struct router_link *link, int linger_ms);

/* For poll(POLLIN). Edge-triggered: after each wake and each send call router_link_turn(). */
int router_link_fd(const struct router_link *link);
/* Handle what has come, bounded. true: there may be more, do not sleep. */
bool router_link_turn(struct router_link *link);
/* Send what the engine made; the caller recycles it. */
void router_link_output(struct router_link *link, const struct output *output);
/* Tell how loads of adapters ended; call once a turn where there are any. */
void router_link_adapters_turn(struct router_link *link);
/* Go on with submits whose grammars are compiled; call once a turn. */
void router_link_grammars_turn(struct router_link *link);
/* Announce, Heartbeat, silence; call at least every 250 ms, right after router_link_turn(). */
void router_link_tick(struct router_link *link, uint64_t now_ms);
/* No Announce has left yet and it is worth trying more often: tick every few ms for a while. */
bool router_link_eager(const struct router_link *link);
uint32_t router_link_attached(const struct router_link *link);

#endif
