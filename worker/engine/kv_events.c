/* kv_events.c - see the header. Cost: two stores and an xor per event. */
#include "worker/engine/kv_events.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

void kv_events_init(struct kv_events *events, struct outbox *outbox)
{
    *events = (struct kv_events){.outbox = outbox};
}

void kv_events_flush(struct kv_events *events)
{
    struct output *output = events->open;
    if (output == NULL)
        return;
    ASSERT(output->stored_count > 0 || output->removed_count > 0 || output->all_cleared);
    output->kv_sequence = ++events->sequence;
    output->kv_blocks = events->blocks;
    output->kv_digest = events->digest;
    events->open = NULL;
    outbox_push(events->outbox, output);
}

static struct output *open_output(struct kv_events *events)
{
    if (events->open == NULL)
        events->open = outbox_take(events->outbox, OUTPUT_KV);
    return events->open;
}

static void on_stored(void *user, struct block_hash parent, struct block_hash hash,
                      const uint32_t *ids)
{
    struct kv_events *events = user;
    struct output *output = events->open;
    if (output != NULL && (output->removed_count > 0 || output->all_cleared ||
                           output->stored_count == OUTPUT_STORED_MAX))
        kv_events_flush(events);
    output = open_output(events);
    struct output_stored *stored = &output->stored[output->stored_count++];
    /* Published blocks have published parents: one that is not there is the root. */
    *stored = (struct output_stored){.parent = parent,
                                     .hash = hash,
                                     .adapter = block_pool_owner(events->pool),
                                     .first = block_pool_find(events->pool, parent) == BLOCK_NONE};
    memcpy(stored->ids, ids, sizeof(stored->ids));
    events->blocks++;
    events->digest ^= hash.low;
}

static void on_removed(void *user, struct block_hash hash)
{
    struct kv_events *events = user;
    if (events->open != NULL && events->open->removed_count == OUTPUT_REMOVED_MAX)
        kv_events_flush(events);
    struct output *output = open_output(events);
    output->removed[output->removed_count++] = hash;
    ASSERT(events->blocks > 0);
    events->blocks--;
    events->digest ^= hash.low;
}

void kv_events_reset(struct kv_events *events)
{
    if (events->blocks == 0)
        open_output(events)->all_cleared = true;
}

struct block_events kv_events_callbacks(struct kv_events *events)
{
    return (struct block_events){.on_stored = on_stored, .on_removed = on_removed, .user = events};
}

void kv_events_snapshot(struct kv_events *events, const struct block_pool *pool,
                        uint32_t blocks_total, uint32_t router)
{
    kv_events_flush(events);
    struct output *output = outbox_take(events->outbox, OUTPUT_SNAPSHOT);
    output->router = router;
    output->hashes = mem_calloc(events->blocks + 1, sizeof(*output->hashes));
    for (uint32_t id = 0; id < blocks_total; id++) {
        struct block_hash hash;
        if (!block_pool_hash(pool, id, &hash))
            continue;
        ASSERT(output->hashes_count < events->blocks);
        output->hashes[output->hashes_count++] = hash;
    }
    ASSERT(output->hashes_count == events->blocks);
    ASSERT(block_pool_digest(pool) == events->digest);
    output->kv_sequence = events->sequence;
    output->kv_blocks = events->blocks;
    output->kv_digest = events->digest;
    outbox_push(events->outbox, output);
}
