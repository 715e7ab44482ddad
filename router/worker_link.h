/* worker_link.h - one worker as the router sees it: a DEALER socket in the uv loop and a state.
 *
 *   ANNOUNCED --Attach sent--> ATTACHING --Hello--> COLD --snapshot whole--> EXACT
 *                                  |                  |                       |  ^
 *                                  |                  |          gap, digest, |  | snapshot
 *                                  |                  |         index full    v  | whole
 *                                  |                  |                      STALE
 *                                  +------------------+--- socket loss, silence, close ---> GONE
 *
 * COLD: takes requests, no credit for prefixes. EXACT: full credit. STALE: keeps its old credit
 * (at worst a miss) until a new snapshot. GONE: bit purged from the index, every dispatch told.
 * Private to router/worker_links.c and router/worker_link.c. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_WORKER_LINK_H
#define REFRAIN_ROUTER_WORKER_LINK_H

#include <uv.h>

#include "proto/base/map.h"
#include "proto/base/metrics.h"
#include "proto/frame.h"
#include "router/route/policy.h"
#include "router/route/prefix_index.h"
#include "router/route/speed.h"
#include "router/route/ticket.h"
#include "router/worker_links.h"

#define LINK_RANKS_MAX 8u
#define LINK_FRAMES_PER_TURN 256u /* so that one worker cannot starve the loop */
#define LINK_TICK_MS 250u
#define LINK_ATTACH_MS 1000u  /* Attach doubles as the router's keep-alive */
#define LINK_SILENCE_MS 3000u /* twelve missed heartbeats: gone */
#define LINK_SNAPSHOT_MS 500u /* at most one request for a snapshot in this time */

enum link_state {
    LINK_ANNOUNCED = 0,
    LINK_ATTACHING,
    LINK_COLD,
    LINK_EXACT,
    LINK_STALE,
    LINK_GONE,
    LINK_STATES
};

/* One served model name; lives while any link has it. */
struct link_model {
    struct list link;
    struct model_card *card;
    uint32_t workers;
};

enum link_metric {
    LM_DISPATCHED = 0, /* by why */
    LM_PREDICTED_TOKENS,
    LM_CACHED_TOKENS,
    LM_PROMPT_TOKENS,
    LM_EVENTS,
    LM_EVENT_GAPS,
    LM_SNAPSHOTS,
    LM_LOST,
    LM_REFUSED,
    LM_WORKERS, /* gauges */
    LM_INFLIGHT,
    LM_INDEX_ENTRIES,
    LM_INDEX_BYTES,
    LINK_METRICS
};

struct worker_links {
    uv_loop_t *loop;
    struct links_settings settings;
    struct links_callbacks callbacks;
    const struct policy *policy;
    void *zmq;
    void *registration;
    uv_poll_t registration_poll;
    uv_timer_t tick;
    uv_idle_t idle;   /* runs while `dirty`: the loop must not block */
    uv_check_t check; /* drains dirty sockets once a turn */
    uint32_t handles_open;
    bool closing, registration_dirty;
    char uuid[33];
    struct list all; /* struct worker_link */
    struct worker_link *slots[PREFIX_INDEX_WORKERS_MAX];
    struct list models;
    struct list adapters; /* struct link_adapter */
    uint32_t adapters_count;
    uint64_t adapter_ticket; /* last one given */
    struct map *dispatches;  /* request id -> struct dispatch */
    struct prefix_index *index;
    struct metrics *metrics;
    uint32_t rotation;
    void (*on_closed)(void *user);
    void *on_closed_user;
};

struct worker_link {
    struct list link;
    struct worker_links *links;
    enum link_state state;
    uint32_t slot; /* bit in the index */
    char uuid[33];
    uint32_t group;
    char *endpoint;
    void *socket, *monitor;
    uv_poll_t poll, monitor_poll;
    uint32_t handles_open;
    bool dirty, draining, refused, overflowed;
    uint64_t attached_ms, heard_ms, snapshot_asked_ms;

    struct link_model *model; /* from Hello on */
    bool adapters_told;       /* its list of adapters came */
    uint32_t adapters_max;    /* 0: it serves none */
    uint32_t ranks, blocks_total, block_tokens, sequences_max, context_tokens_max;
    bool prefix_caching;
    int32_t pids[LINK_RANKS_MAX];
    char *version, *admin_socket, *kv_cache_dtype;

    uint32_t running, waiting; /* from heartbeats */
    uint32_t blocks_referenced, blocks_cached, blocks_empty;
    struct speed speed;
    double step_seconds;
    uint64_t kv_sequence; /* last applied */
    bool snapshot_open;

    struct list dispatches; /* struct dispatch */
    struct ticket_load load;
    struct metrics *rank_metrics[LINK_RANKS_MAX];
    struct metrics *vllm_metrics; /* of rank 0; NULL before Hello */
};

/* Connect to an announced worker. 0, -ENOSPC: no free slot; errno of ZeroMQ. */
int worker_link_new(struct worker_links *links, const Refrain__Announce *announce,
                    struct worker_link **ret_link, struct errmsg *err);
/* Socket closed, index purged, dispatches told through on_lost (not when links are closing). The
 * struct is freed once its handles are closed. Harmless the second time. */
void worker_link_lose(struct worker_link *link, const char *why);
void worker_link_tick(struct worker_link *link, uint64_t now_ms);
/* Take at most LINK_FRAMES_PER_TURN frames. */
void worker_link_drain(struct worker_link *link);
void worker_link_send(struct worker_link *link, enum frame_kind kind,
                      const ProtobufCMessage *message);
bool worker_link_takes_requests(const struct worker_link *link);
const char *link_state_name(enum link_state state);
/* Free what the links hold of a dispatch (ticket, hashes, map entry). */
void links_forget_dispatch(struct worker_links *links, struct dispatch *dispatch);
/* The model of a Hello: found, or made and reported; NULL: refused (another fingerprint). */
struct link_model *links_model_take(struct worker_links *links, struct model_card *card);
bool links_has_model(const struct worker_links *links, const char *name);
void links_model_release(struct worker_links *links, struct link_model *model);
/* The loop must come back to this socket without waiting for its file descriptor. */
void links_mark_dirty(struct worker_links *links);
void links_handle_closed(struct worker_links *links);

#endif
