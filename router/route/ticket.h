/* ticket.h - a dispatched request's charge on a worker: made once, released exactly once.
 *
 *   DISPATCHED --first token--> STREAMING --release--> (gone)      release from DISPATCHED too
 *
 * While DISPATCHED the predicted prefill seconds stand in the worker's queue and its blocks in the
 * worker's need: the next decision sees them at once, so that a burst does not herd. Sum of tickets
 * == the worker's load at any time; ticket_load_check asserts it, and 0 when idle.
 * Thread: the loop's. */
#ifndef REFRAIN_ROUTER_ROUTE_TICKET_H
#define REFRAIN_ROUTER_ROUTE_TICKET_H

#include <stdint.h>

#include "proto/base/list.h"

enum ticket_state { TICKET_DISPATCHED = 0, TICKET_STREAMING };

/* What a worker owes: embedded in the worker. Integers, so that charges cancel exactly. */
struct ticket_load {
    struct list tickets;
    uint32_t count;     /* requests in flight */
    uint64_t queued_ns; /* predicted prefill of those without a first token */
    uint64_t queued_blocks;
};

struct ticket {
    struct list link;
    struct ticket_load *load;
    enum ticket_state state;
    uint64_t own_ns;
    uint32_t blocks;
};

void ticket_load_init(struct ticket_load *load);
struct ticket *ticket_new(struct ticket_load *load, double own_seconds, uint32_t blocks);
/* The first token arrived: the prefill is paid. Harmless the second time. */
void ticket_first_token(struct ticket *ticket);
void ticket_release(struct ticket *ticket); /* frees it */
void ticket_load_check(const struct ticket_load *load);

#endif
