/* router.h - the owner: loop, HTTP server, links to workers, models, requests; start and stop.
 *
 *   RUNNING --SIGINT, -TERM, -HUP--> DRAINING --all answered, or --drain-timeout--> CLOSING -> end
 *      |                             +------ second signal ----------------------^
 *
 * DRAINING: no new connections; running answers go on. CLOSING: what is left is cut, handles are
 * closed. Thread: one, the loop's. */
#ifndef REFRAIN_ROUTER_ROUTER_H
#define REFRAIN_ROUTER_ROUTER_H

#include "router/settings.h"

struct router;

/* Everything is built and the port is bound. Negative errno: *err says what failed. */
int router_new(const struct router_settings *settings, struct router **ret_router,
               struct errmsg *err);
/* Until a signal ended it. */
void router_run(struct router *router);
void router_free(struct router *router); /* NULL is fine */

#endif
