/* tier_lookup.h - slower memory behind the block pool, as admission asks for it (worker/tier).
 *
 * A look-up per candidate and plan; `load` only for the one that is admitted, right after its
 * find(): what find() has found stays where it is until then, whatever the pool evicts meanwhile.
 * Loaded blocks count as computed at once, because the copies are made before the rows of the step.
 * Thread: engine. */
#ifndef REFRAIN_WORKER_SCHED_TIER_LOOKUP_H
#define REFRAIN_WORKER_SCHED_TIER_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/block_hash.h"

struct tier_query {
    struct block_hash root;
    const struct block_hash *hashes; /* of the sequence's full blocks */
    const uint32_t *ids;
    uint32_t first;  /* blocks [0, first) are in the pool */
    uint32_t tokens; /* ids that may be reused, from the beginning */
    bool may_wait;   /* what takes a while may be fetched: the answer is `loading` then */
};

struct tier_found {
    uint32_t blocks;                   /* full blocks from query.first on */
    uint32_t tail_tokens;              /* then so many tokens, 0..15, of one more */
    uint32_t host_tokens, disk_tokens; /* by where they came from */
    bool wait;                         /* for room in the step: ask again in the next plan */
    bool loading; /* more than that is on its way: ask again, and let others pass */
};

struct tier_lookup {
    void (*find)(void *user, const struct tier_query *query, struct tier_found *ret_found);
    /* Of what the last find() found, `wanted` blocks and tail are written into blocks[0..]. */
    void (*load)(void *user, const struct tier_found *wanted, const uint32_t *blocks);
    void *user;
    uint64_t wait_max_ns; /* a request waits so long for what is loading, then computes it */
};

#endif
