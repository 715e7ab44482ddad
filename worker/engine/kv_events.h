/* kv_events.h - changes of the block index on their way to the routers.
 *
 * Collects the pool's callbacks into OUTPUT_KV buffers. Within one buffer the reader applies stored
 * before removed, so a block stored after one was removed starts a new buffer. Sequence numbers are
 * contiguous from 1. Thread: engine only. */
#ifndef REFRAIN_WORKER_ENGINE_KV_EVENTS_H
#define REFRAIN_WORKER_ENGINE_KV_EVENTS_H

#include "worker/engine/outbox.h"
#include "worker/kv/block_pool.h"

struct kv_events {
    struct outbox *outbox;
    const struct block_pool *pool; /* whose events they are; set once it is there */
    struct output *open;           /* being filled, NULL: nothing to tell */
    uint64_t sequence;             /* of the last buffer pushed */
    uint64_t blocks, digest;       /* the index as these events make it */
};

void kv_events_init(struct kv_events *events, struct outbox *outbox);
/* For block_pool_new. */
struct block_events kv_events_callbacks(struct kv_events *events);
/* The cache was reset and its callbacks are through: when nothing is left, that is told too. */
void kv_events_reset(struct kv_events *events);
/* Push what was collected. */
void kv_events_flush(struct kv_events *events);
/* Everything in the index, for one router; what was collected goes first. */
void kv_events_snapshot(struct kv_events *events, const struct block_pool *pool,
                        uint32_t blocks_total, uint32_t router);

#endif
