/* tier_slots.c - whole blocks to and fro: a copy of some 10 us per 100 KiB, in the order in which
 * rank 0 decided, because a slot or a block may change hands twice in one step. */
#include "worker/tier/tier_slots.h"

#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

uint32_t tier_slots_within(uint64_t budget_bytes, size_t block_bytes)
{
    uint64_t count = block_bytes > 0 ? budget_bytes / block_bytes : 0;

    return count < TIER_SLOTS_MAX ? (uint32_t)count : TIER_SLOTS_MAX;
}

int tier_slots_init(struct tier_slots *slots, uint32_t count, size_t slot_bytes, struct errmsg *err)
{
    void *bytes = NULL;

    ASSERT(count <= TIER_SLOTS_MAX);
    if (count > 0 && slot_bytes > 0 && mem_map(count * slot_bytes, &bytes) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for a host tier of %u blocks of %zu bytes",
                          count, slot_bytes);
    *slots = (struct tier_slots){bytes, slot_bytes, count};
    return 0;
}

void tier_slots_done(struct tier_slots *slots)
{
    if (slots->bytes != NULL)
        mem_unmap(slots->bytes, slots->count * slots->slot_bytes);
    *slots = (struct tier_slots){NULL, 0, 0};
}

void tier_slots_apply(struct tier_slots *slots, struct backend *backend, struct kv_pool *kv,
                      const struct step_tier_op *ops, uint32_t count)
{
    if (kv == NULL)
        return; /* no KV heads on this rank */
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(ops[i].slot < slots->count);
        char *bytes = slots->bytes + ops[i].slot * slots->slot_bytes;
        if (ops[i].kind == STEP_TIER_STORE)
            op_kv_block_read(backend, kv, ops[i].block, bytes);
        else
            op_kv_block_write(backend, kv, ops[i].block, bytes);
    }
}
