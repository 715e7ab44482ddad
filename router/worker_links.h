/* worker_links.h - the router's side of all workers: who is there, who holds what, where a request
 * goes, and what comes back.
 *
 *   registration ROUTER socket  --Announce-->  link (one DEALER per worker, worker_link.h)
 *   dispatch: policy over a view (route/policy.h) -> ticket charged (route/ticket.h) -> Submit
 *   StepOutput -> on_output of the dispatch;  link lost -> on_lost of each of its dispatches
 *
 * A link: ANNOUNCED -> ATTACHING -> COLD -> EXACT <-> STALE -> GONE (picture in worker_link.h).
 * Everything runs on one uv loop; ZMQ_FD is edge-triggered, so a uv_poll plus a drain after every
 * send and receive (a uv_idle/uv_check pair keeps going while there is more).
 *
 * Ownership: a dispatch is embedded in the caller's request. From a successful links_dispatch until
 * on_output with finish != NONE, on_lost, or links_cancel, the links hold a pointer to it.
 * Callbacks never run inside links_dispatch or links_cancel. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_WORKER_LINKS_H
#define REFRAIN_ROUTER_WORKER_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/base/buffer.h"
#include "proto/base/errmsg.h"
#include "proto/base/list.h"
#include "proto/block_hash.h"
#include "proto/model_card.h"
#include "proto/wire.pb-c.h"

struct worker_links;
struct ticket;

struct links_settings {
    const char *registration_endpoint; /* ipc://RUNDIR/router.sock */
    const char *policy;                /* "prefix", "round_robin", "least_loaded", "session" */
    uint32_t workers_max;              /* 64 */
    uint32_t dispatches_max;           /* in flight; past it -EBUSY -> 429 */
    double ttft_limit_seconds;         /* predicted first token later than this -> -EBUSY; 0: off */
};

struct dispatch {
    /* Set by the caller; must stay valid while held. */
    const char *request_id; /* unique in this router, at most 64 bytes */
    const char *model;      /* served model name */
    const char *adapter;    /* of a LoRA adapter of it; NULL: none */
    const uint32_t *ids;
    size_t ids_count;
    const Refrain__Sampling *sampling;
    const char *cache_salt; /* "" */
    const char *session;    /* hint for policy "session"; NULL */
    int32_t priority;
    uint32_t deadline_ms;
    bool no_prefix_reuse;
    int32_t avoid_group; /* -1, or the group that was just lost with this request */
    /* One StepItem of this request; valid during the call. finish != NONE: the last one. */
    void (*on_output)(struct dispatch *dispatch, const Refrain__StepItem *item);
    /* The worker is gone (or refused by closing). The dispatch is free for another try. */
    void (*on_lost)(struct dispatch *dispatch, const char *why);

    /* Set by links_dispatch. */
    uint32_t group;
    uint32_t predicted_hit_tokens;
    double predicted_seconds;
    const char *why; /* static: "prefix", "spill", "cold", "only", "round_robin"... */

    /* The links' own. */
    struct list link;
    struct ticket *ticket;
    struct block_hash *hashes;
    size_t hashes_count;
};

/* A LoRA adapter. key: name and content, as hashes of its blocks have it. */
struct links_adapter {
    const char *name, *path, *base, *key; /* base: name of its model */
};
/* How it ended at all workers of the model: 0, or the first one's negative errno and its reason. */
typedef void (*links_adapter_fn)(void *user, int r, const char *text);

struct links_callbacks {
    /* A model appeared (first worker of this name, or the fingerprint changed after all workers of
     * the old one went away). The card stays valid; take a reference to keep it. */
    void (*on_model)(void *user, struct model_card *card);
    /* Last worker of the model is gone. */
    void (*on_model_gone)(void *user, const char *name);
    /* An adapter is served now (again, or with another content); its base is. */
    void (*on_adapter)(void *user, const struct links_adapter *adapter);
    /* No worker has it any more. forgotten: it was unloaded; else its workers are away. */
    void (*on_adapter_gone)(void *user, const char *name, bool forgotten);
    void *user;
};

int worker_links_new(uv_loop_t *loop, const struct links_settings *settings,
                     const struct links_callbacks *callbacks, struct worker_links **ret_links,
                     struct errmsg *err);
/* Cancels everything in flight (no callbacks), closes handles; on_closed when done and freed. */
void worker_links_close(struct worker_links *links, void (*on_closed)(void *user), void *user);

/* Choose a worker and submit. 0; -ENOENT: no such model; -EAGAIN: no worker ready (503);
 * -EBUSY: limits (429; dispatch->predicted_seconds says when it would fit); -EINVAL: prompt longer
 * than the smallest context of the model's workers, *err has the numbers. */
int links_dispatch(struct worker_links *links, struct dispatch *dispatch, struct errmsg *err);
/* Stop it: ticket released, Cancel sent; no more callbacks for it. */
void links_cancel(struct worker_links *links, struct dispatch *dispatch);

bool links_ready(const struct worker_links *links); /* at least one worker can take requests */
/* Smallest context_tokens_max over the model's live workers; 0: none. */
uint32_t links_context_tokens(const struct worker_links *links, const char *model);
uint32_t links_inflight(const struct worker_links *links); /* tickets held: 0 when idle */
/* 0, or -ENOENT: no worker of this group is attached. */
int links_drain_group(struct worker_links *links, uint32_t group, bool undo);
void links_reset_prefix_cache(struct worker_links *links);
/* All workers of the model load it (wanted->key is not read). 0: on_done is called once, never from
 * in here; -EEXIST, -EBUSY: the name is taken; -ENOSPC; -EAGAIN: no worker of the model is ready.
 */
int links_load_adapter(struct worker_links *links, const struct links_adapter *wanted,
                       links_adapter_fn on_done, void *user, struct errmsg *err);
/* The name is unknown from here on; workers drop it when its last request has ended. 0: on_done is
 * called once, maybe from in here; -ENOENT; -EBUSY: it is being loaded. */
int links_unload_adapter(struct worker_links *links, const char *name, links_adapter_fn on_done,
                         void *user, struct errmsg *err);
/* Nobody waits any more: on_done of this user is not called. */
void links_leave_adapter(struct worker_links *links, const void *user);
/* Prometheus text: the links' own metrics and every rank's metrics with labels group and rank. */
void links_write_metrics(const struct worker_links *links, struct buffer *out);
/* JSON array of workers for `refrain status` and the status page: group, state, ranks, pids,
 * blocks by state, running, waiting, inflight, version, admin socket, model... */
void links_write_status(const struct worker_links *links, struct buffer *out);

#endif
