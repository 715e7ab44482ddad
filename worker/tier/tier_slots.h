/* tier_slots.h - a rank's memory of the host tier: slots of one KV block each.
 *
 * Every rank has as many, for its own slice of the same blocks; what is in which slot is known to
 * rank 0 alone (tier_host.h) and told by the tier ops of a step. Mapped at init, touched when a
 * slot is first used. Thread: the one that computes. */
#ifndef REFRAIN_WORKER_TIER_TIER_SLOTS_H
#define REFRAIN_WORKER_TIER_TIER_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"
#include "proto/base/errmsg.h"
#include "worker/tp/step_ring.h"

struct tier_slots {
    char *bytes; /* [count * slot_bytes] */
    size_t slot_bytes;
    uint32_t count;
};

/* Slots of `block_bytes` that fit into the budget; at most TIER_SLOTS_MAX. */
#define TIER_SLOTS_MAX (1u << 28)
uint32_t tier_slots_within(uint64_t budget_bytes, size_t block_bytes);

/* count 0: no tier, nothing is mapped. 0, or -ENOMEM. */
int tier_slots_init(struct tier_slots *slots, uint32_t count, size_t slot_bytes,
                    struct errmsg *err);
void tier_slots_done(struct tier_slots *slots);
/* Do the copies of a step, in their order. kv: blocks of slot_bytes; NULL: this rank has none. */
void tier_slots_apply(struct tier_slots *slots, struct backend *backend, struct kv_pool *kv,
                      const struct step_tier_op *ops, uint32_t count);

#endif
