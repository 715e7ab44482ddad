/* tier.c - decisions in the order in which a plan makes them, and the list of copies they mean.
 *
 *   plan:  evict A from block 7   -> STORE 7 -> slot 3        (slot 3's old content is lost)
 *          admit: B is in slot 5  -> LOAD slot 5 -> block 7
 *   step:  every rank copies in this order, then computes
 *
 * Why copies are not made at once: the other ranks hear of them with the step, and rank 0 does what
 * they do. Why a loaded block stays in the tier: the pool will lose it again, and then there is
 * nothing to copy. Why found slots are pinned until they are loaded: the admission that wants them
 * evicts blocks, and those want slots. Room for the loads of one whole sequence and as many stores
 * is always there in an empty step; a candidate that finds less waits for the next one.
 * Blocks of a chat that went on without them come only into free slots. */
#include "worker/tier/tier.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define OPS_SPARE 256u /* of decodes that need a block in the same step */

/* What the last find() found. */
struct found {
    uint32_t *slots; /* [sequence_blocks + 1], each pinned */
    uint32_t count;
    uint32_t asked_blocks;
};

struct tier {
    struct tier_settings settings;
    struct tier_host host;
    struct step_tier_op *ops;
    uint32_t ops_count, ops_max;
    struct found found;
    struct tier_counts counts;
};

uint32_t tier_ops_max(const struct tier_settings *settings)
{
    if (settings->host_slots == 0)
        return 0;
    return 2 * (settings->sequence_blocks + 1) + OPS_SPARE;
}

int tier_new(const struct tier_settings *settings, struct tier **ret_tier, struct errmsg *err)
{
    struct tier *tier = mem_zalloc(sizeof(*tier));
    int r = tier_host_init(&tier->host, settings->host_slots, err);

    if (r < 0) {
        mem_free(tier);
        return r;
    }
    tier->settings = *settings;
    tier->ops_max = tier_ops_max(settings);
    tier->ops = mem_calloc(tier->ops_max + 1, sizeof(*tier->ops));
    tier->found.slots = mem_calloc(settings->sequence_blocks + 1, sizeof(*tier->found.slots));
    *ret_tier = tier;
    return 0;
}

void tier_free(struct tier *tier)
{
    if (tier == NULL)
        return;
    tier_host_done(&tier->host);
    mem_free(tier->ops);
    mem_free(tier->found.slots);
    mem_free(tier);
}

static void add_op(struct tier *tier, enum step_tier_kind kind, uint32_t block, uint32_t slot)
{
    ASSERT(tier->ops_count < tier->ops_max);
    tier->ops[tier->ops_count++] = (struct step_tier_op){(uint32_t)kind, block, slot};
}

static struct tier_block block_of(const struct block_evicted *evicted)
{
    struct tier_block block = {.parent = evicted->parent, .tokens = evicted->tokens};

    memcpy(block.ids, evicted->ids, evicted->tokens * sizeof(*block.ids));
    block.hash = evicted->tokens == BLOCK_TOKENS ? evicted->hash
                                                 : tier_tail_key(evicted->parent, block.ids[0]);
    return block;
}

void tier_on_evict(void *user, const struct block_evicted *evicted)
{
    struct tier *tier = user;
    const struct tier_block block = block_of(evicted);
    uint32_t slot;

    if (evicted->why == BLOCK_LOST_RESET)
        return;
    if (tier->ops_count + tier->found.count >= tier->ops_max) {
        tier->counts.drops_total++;
        return;
    }
    int r = tier_host_take(&tier->host, &block, evicted->why == BLOCK_LOST_ABANDONED, &slot, NULL);
    if (r == 0) {
        add_op(tier, STEP_TIER_STORE, evicted->id, slot);
        tier->counts.stores_total++;
    }
    tier->counts.drops_total += r == -ENOSPC;
}

static void let_go_of_found(struct tier *tier)
{
    while (tier->found.count > 0)
        tier_host_unpin(&tier->host, tier->found.slots[--tier->found.count]);
}

static void add_found(struct tier *tier, uint32_t slot)
{
    ASSERT(tier->found.count <= tier->settings.sequence_blocks);
    tier_host_pin(&tier->host, slot);
    tier->found.slots[tier->found.count++] = slot;
}

/* Is there room for `blocks` loads, and for as many stores as they may cost? */
static bool has_room(const struct tier *tier, uint32_t blocks)
{
    return tier->ops_count == 0 || tier->ops_count + 2 * blocks <= tier->ops_max;
}

static void find(void *user, const struct tier_query *query, struct tier_found *ret_found)
{
    struct tier *tier = user;
    struct tier_found found = {0};
    uint32_t block = query->first, end = query->tokens / BLOCK_TOKENS;
    struct block_hash parent = block == 0 ? query->root : query->hashes[block - 1];

    let_go_of_found(tier);
    tier->found.asked_blocks = end - block;
    for (; block < end; block++) {
        const uint32_t *ids = query->ids + (size_t)block * BLOCK_TOKENS;
        uint32_t slot = tier_host_find(&tier->host, query->hashes[block], parent, ids);
        if (slot == TIER_SLOT_NONE)
            break;
        add_found(tier, slot);
        parent = query->hashes[block];
    }
    found.blocks = tier->found.count;
    uint32_t done = block * BLOCK_TOKENS, rest = query->tokens - done;
    uint32_t slot =
        tier_host_find_tail(&tier->host, parent, query->ids + done,
                            rest < BLOCK_TOKENS ? rest : BLOCK_TOKENS - 1, &found.tail_tokens);
    if (slot != TIER_SLOT_NONE)
        add_found(tier, slot);
    found.host_tokens = found.blocks * BLOCK_TOKENS + found.tail_tokens;
    found.wait = tier->found.count > 0 && !has_room(tier, tier->found.count);
    *ret_found = found;
}

static void load(void *user, const struct tier_found *wanted, const uint32_t *blocks)
{
    struct tier *tier = user;
    uint32_t count = wanted->blocks + (wanted->tail_tokens > 0);
    uint32_t *slots = tier->found.slots;

    ASSERT(count <= tier->found.count && wanted->blocks <= tier->found.asked_blocks);
    tier->counts.hits_total += wanted->blocks;
    tier->counts.misses_total += tier->found.asked_blocks - wanted->blocks;
    for (uint32_t i = 0; i < count; i++)
        add_op(tier, STEP_TIER_LOAD, blocks[i], slots[i]);
    for (uint32_t i = count; i-- > 0;) /* children older than parents */
        tier_host_touch(&tier->host, slots[i]);
    let_go_of_found(tier);
}

struct tier_lookup tier_lookup_of(struct tier *tier)
{
    return (struct tier_lookup){.find = find, .load = load, .user = tier};
}

const struct step_tier_op *tier_ops(const struct tier *tier, uint32_t *ret_count)
{
    *ret_count = tier->ops_count;
    return tier->ops;
}

void tier_step_done(struct tier *tier)
{
    let_go_of_found(tier);
    tier->ops_count = 0;
}

uint32_t tier_reset(struct tier *tier)
{
    ASSERT(tier->ops_count == 0);
    let_go_of_found(tier);
    return tier_host_forget_all(&tier->host);
}

void tier_get_counts(const struct tier *tier, struct tier_counts *ret_counts)
{
    *ret_counts = tier->counts;
    ret_counts->host_slots = tier->host.slots_total;
    ret_counts->host_used = tier->host.used;
    ret_counts->lost_total = tier->host.lost_total;
}

void tier_check(const struct tier *tier)
{
    uint32_t pins = 0;

    tier_host_check(&tier->host);
    for (uint32_t slot = 0; slot < tier->host.slots_total; slot++)
        pins += tier->host.slots[slot].pins;
    ASSERT(pins == tier->found.count && tier->ops_count <= tier->ops_max);
}
