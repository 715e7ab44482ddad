/* link_adapters.h - which LoRA adapters the workers have, and how they get one.
 *
 *   LOADING --all workers of the model said yes--> READY --unload--> LEAVING --all answered--> AWAY
 *      +------- one said no: undone -------------------------------------^  `--undone--> gone
 *
 * Workers tell what they have. What one of them has, the others of its model are asked to load too:
 * groups that were started with an adapter, groups that come back after a crash, a router that was
 * started anew: all end with the same adapters everywhere. An adapter stays known while its workers
 * are away. One that was unloaded here stays AWAY for the router's life: a worker that was started
 * with it, or was away, has it in its first list and is asked to unload it. It comes back when it
 * is loaded again, here or, as a later list of a worker shows, through another router. Private to
 * router/worker_link*.c and this file. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_LINK_ADAPTERS_H
#define REFRAIN_ROUTER_LINK_ADAPTERS_H

#include "router/worker_link.h"

#define LINK_ADAPTERS_MAX 256u

enum adapter_state {
    ADAPTER_LOADING = 0,
    ADAPTER_READY,
    ADAPTER_LEAVING,
    ADAPTER_AWAY,
    ADAPTER_STATES
};

struct link_adapter {
    struct list link;
    enum adapter_state state;
    char *name, *path, *base; /* base: name of the model */
    char *key;                /* NULL: no worker has told it yet */
    uint64_t holders;         /* slots of links that have it */
    uint64_t awaited;         /* that have not answered yet */
    uint64_t ticket;          /* of what they were asked */
    bool unloaded;            /* LEAVING because an operator asked: AWAY next */
    int result;               /* first refusal, or 0 */
    char *why;                /* its text, or NULL */
    links_adapter_fn on_done; /* NULL: nobody waits */
    void *user;
};

/* READY ones only; NULL: none. */
const struct link_adapter *link_adapter_find(const struct worker_links *links, const char *name);
void link_adapters_on_list(struct worker_link *link, const Refrain__Adapters *message);
void link_adapters_on_result(struct worker_link *link, const Refrain__AdapterResult *message);
/* The link is gone, or starts anew: what it had and owed is not counted any more. */
void link_adapters_on_lost(struct worker_link *link);
void link_adapters_free(struct worker_links *links);

#endif
