/* lora.h - one rank's memory of adapters: slots of a fixed shape, and the terms in them.
 *
 *   slot   ranks [layers][7] | layer 0: q a, q b, k a, ... down b | layer 1 ...
 *
 * A slot has room for max-lora-rank in every matrix that can be adapted, so where a matrix lies
 * never depends on an adapter. Ranks of a group share the memory: rank 0 fills all ranks' slots,
 * the others only read (tp/group.h), so that loading is no step of theirs.
 *
 * Slices are those of the base matrix: b by outputs for q, k, v, gate and up; a by inputs for o and
 * down, whose partial sums go through the same all-reduce as the base's.
 * Thread: a slot is written while no sequence uses it, and read by the thread that computes. */
#ifndef REFRAIN_WORKER_LORA_LORA_H
#define REFRAIN_WORKER_LORA_LORA_H

#include "kernels/ops.h"
#include "worker/lora/adapter.h"
#include "worker/tp/shard.h"

#define LORA_SLOTS_MAX 64u

/* Where in a layer terms are added: they share their rows of x. */
enum lora_site { LORA_QKV = 0, LORA_OUTPUT, LORA_GATE_UP, LORA_DOWN, LORA_SITES };

struct lora; /* opaque */

struct lora_limits {
    uint32_t slots; /* --max-loras, 0: no adapters */
    uint32_t rank;  /* --max-lora-rank */
};

/* Bytes of all slots of the rank of this shard. */
size_t lora_bytes(const struct model_config *config, const struct shard *shard,
                  const struct lora_limits *limits);
/* memory: lora_bytes() of it, zeroed, or NULL: allocated here. config and memory outlive it. 0,
 * -ENOMEM. */
int lora_new(const struct model_config *config, const struct shard *shard,
             const struct lora_limits *limits, void *memory, struct lora **ret_lora,
             struct errmsg *err);
void lora_free(struct lora *lora); /* NULL is fine */
/* This rank's slices of the adapter into a slot that nobody reads. 0; -EINVAL: its rank is over the
 * limit, or a value is not finite; the slot then holds no adapter. */
int lora_fill(struct lora *lora, uint32_t slot, const struct adapter *adapter, struct errmsg *err);
/* Terms of a slot's adapter at a site, at most LORA_TERMS_MAX; 0: none. */
uint32_t lora_terms(const struct lora *lora, uint32_t slot, uint32_t layer, enum lora_site site,
                    struct lora_term *ret_terms);
uint32_t lora_slots(const struct lora *lora);
/* Floats of scratch per row: op_lora_add's `low`. */
uint32_t lora_low_columns(const struct lora *lora);

#endif
