/* tier_host.c - an index and a list over a fixed array of slots.
 *
 *   oldest -> ... -> newest      every READY slot, by use        free -> ... -> NONE
 *
 * Why whole-tier LRU and not one per chat: the pool gives its blocks away children first, so within
 * one age a chat's tail is older than its head, and what is left of a chat is a usable prefix.
 * Why tails by parent and first token: the next turn of a chat goes on with a token that it knows,
 * and needs no list of siblings for that. One tail per key: the newest content wins, unless the old
 * one has all of it. Invariant: by_hash holds exactly the READY slots. */
#include "worker/tier/tier_host.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define NO_ID UINT32_MAX /* in no vocabulary */

struct block_hash tier_tail_key(struct block_hash parent, uint32_t first_id)
{
    uint32_t ids[BLOCK_TOKENS];

    memset(ids, 0xff, sizeof(ids)); /* NO_ID: no full block has this hash but by collision */
    ids[0] = first_id;
    return block_hash_next(parent, ids);
}

int tier_host_init(struct tier_host *host, uint32_t slots_total, struct errmsg *err)
{
    void *slots = NULL;
    int r = 0;

    *host = (struct tier_host){
        .oldest = TIER_SLOT_NONE, .newest = TIER_SLOT_NONE, .free = TIER_SLOT_NONE};
    if (slots_total == 0)
        return 0;
    r = mem_map(slots_total * sizeof(*host->slots), &slots);
    if (r == 0) {
        host->slots = slots;
        host->slots_total = slots_total;
        r = hash_index_init(&host->by_hash, slots_total, &host->slots->block.hash,
                            sizeof(*host->slots));
    }
    if (r < 0) {
        tier_host_done(host);
        return errmsg_set(err, r, "no memory for the books of a host tier of %u blocks",
                          slots_total);
    }
    for (uint32_t slot = slots_total; slot-- > 0;) {
        host->slots[slot].next = host->free;
        host->free = slot;
    }
    return 0;
}

void tier_host_done(struct tier_host *host)
{
    if (host->by_hash.slots != NULL)
        hash_index_done(&host->by_hash);
    if (host->slots != NULL)
        mem_unmap(host->slots, host->slots_total * sizeof(*host->slots));
    memset(host, 0, sizeof(*host));
}

static void list_remove_slot(struct tier_host *host, uint32_t at)
{
    struct tier_slot *slot = &host->slots[at];

    if (slot->prev != TIER_SLOT_NONE)
        host->slots[slot->prev].next = slot->next;
    else
        host->oldest = slot->next;
    if (slot->next != TIER_SLOT_NONE)
        host->slots[slot->next].prev = slot->prev;
    else
        host->newest = slot->prev;
}

static void list_add_newest(struct tier_host *host, uint32_t at)
{
    struct tier_slot *slot = &host->slots[at];

    slot->prev = host->newest;
    slot->next = TIER_SLOT_NONE;
    if (host->newest != TIER_SLOT_NONE)
        host->slots[host->newest].next = at;
    else
        host->oldest = at;
    host->newest = at;
}

void tier_host_touch(struct tier_host *host, uint32_t slot)
{
    ASSERT(slot < host->slots_total && host->slots[slot].state == TIER_SLOT_READY);
    list_remove_slot(host, slot);
    list_add_newest(host, slot);
}

static uint32_t find(const struct tier_host *host, struct block_hash hash)
{
    if (host->slots_total == 0)
        return TIER_SLOT_NONE;
    uint32_t slot = hash_index_find(&host->by_hash, hash);
    return slot == HASH_INDEX_NONE ? TIER_SLOT_NONE : slot;
}

static uint32_t common_tokens(const struct tier_block *block, const uint32_t *ids, uint32_t count)
{
    uint32_t limit = block->tokens < count ? block->tokens : count;
    uint32_t n = 0;

    while (n < limit && block->ids[n] == ids[n])
        n++;
    return n;
}

uint32_t tier_host_find(const struct tier_host *host, struct block_hash hash,
                        struct block_hash parent, const uint32_t *ids)
{
    uint32_t slot = find(host, hash);

    if (slot == TIER_SLOT_NONE)
        return slot;
    const struct tier_block *block = &host->slots[slot].block;
    bool same = block->tokens == BLOCK_TOKENS && block_hash_equal(block->parent, parent) &&
                common_tokens(block, ids, BLOCK_TOKENS) == BLOCK_TOKENS;
    return same ? slot : TIER_SLOT_NONE;
}

uint32_t tier_host_find_tail(const struct tier_host *host, struct block_hash parent,
                             const uint32_t *ids, uint32_t count, uint32_t *ret_tokens)
{
    uint32_t slot = count > 0 ? find(host, tier_tail_key(parent, ids[0])) : TIER_SLOT_NONE;

    if (slot == TIER_SLOT_NONE)
        return slot;
    const struct tier_block *block = &host->slots[slot].block;
    uint32_t tokens = common_tokens(block, ids, count);
    if (block->tokens == BLOCK_TOKENS || !block_hash_equal(block->parent, parent) || tokens == 0)
        return TIER_SLOT_NONE;
    *ret_tokens = tokens;
    return slot;
}

/* Does the block in the slot serve whoever would look for the other one? */
static bool covers(const struct tier_block *have, const struct tier_block *wanted)
{
    return block_hash_equal(have->parent, wanted->parent) && have->tokens >= wanted->tokens &&
           common_tokens(have, wanted->ids, wanted->tokens) == wanted->tokens &&
           (have->tokens == BLOCK_TOKENS) == (wanted->tokens == BLOCK_TOKENS);
}

static uint32_t oldest_unpinned(const struct tier_host *host)
{
    uint32_t slot = host->oldest;

    while (slot != TIER_SLOT_NONE && host->slots[slot].pins > 0)
        slot = host->slots[slot].next;
    return slot;
}

/* The slot to fill, out of the index and the list. */
static int make_room(struct tier_host *host, struct block_hash hash, bool only_free,
                     uint32_t *ret_slot, struct tier_block *ret_lost)
{
    uint32_t slot = find(host, hash); /* other content under this key goes */

    if (slot != TIER_SLOT_NONE && host->slots[slot].pins > 0)
        return -ENOSPC;
    if (slot == TIER_SLOT_NONE && host->free != TIER_SLOT_NONE) {
        slot = host->free;
        host->free = host->slots[slot].next;
        host->used++;
        *ret_slot = slot;
        return 0;
    }
    if (slot == TIER_SLOT_NONE)
        slot = only_free ? TIER_SLOT_NONE : oldest_unpinned(host);
    if (slot == TIER_SLOT_NONE)
        return -ENOSPC;
    *ret_lost = host->slots[slot].block;
    hash_index_remove(&host->by_hash, slot);
    list_remove_slot(host, slot);
    host->lost_total++;
    *ret_slot = slot;
    return 0;
}

int tier_host_take(struct tier_host *host, const struct tier_block *block, bool only_free,
                   uint32_t *ret_slot, struct tier_block *ret_lost)
{
    uint32_t slot = find(host, block->hash);
    struct tier_block lost = {.tokens = 0};

    ASSERT(block->tokens > 0 && block->tokens <= BLOCK_TOKENS);
    if (slot != TIER_SLOT_NONE && covers(&host->slots[slot].block, block)) {
        tier_host_touch(host, slot);
        *ret_slot = slot;
        return -EEXIST;
    }
    int r = make_room(host, block->hash, only_free, &slot, &lost);
    if (r < 0)
        return r;
    host->slots[slot].block = *block;
    host->slots[slot].state = TIER_SLOT_READY;
    ASSERT(host->slots[slot].pins == 0);
    hash_index_insert(&host->by_hash, slot);
    list_add_newest(host, slot);
    *ret_slot = slot;
    if (ret_lost != NULL)
        *ret_lost = lost;
    return 0;
}

void tier_host_pin(struct tier_host *host, uint32_t slot)
{
    ASSERT(slot < host->slots_total && host->slots[slot].state == TIER_SLOT_READY);
    host->slots[slot].pins++;
}

void tier_host_unpin(struct tier_host *host, uint32_t slot)
{
    ASSERT(slot < host->slots_total && host->slots[slot].pins > 0);
    host->slots[slot].pins--;
}

static void forget(struct tier_host *host, uint32_t slot)
{
    hash_index_remove(&host->by_hash, slot);
    list_remove_slot(host, slot);
    host->slots[slot].state = TIER_SLOT_FREE;
    host->slots[slot].next = host->free;
    host->free = slot;
    host->used--;
}

uint32_t tier_host_forget_all(struct tier_host *host)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < host->slots_total; slot++) {
        if (host->slots[slot].state != TIER_SLOT_READY || host->slots[slot].pins > 0)
            continue;
        forget(host, slot);
        count++;
    }
    return count;
}

void tier_host_check(const struct tier_host *host)
{
    uint32_t used = 0, free = 0, before = TIER_SLOT_NONE;

    for (uint32_t at = host->oldest; at != TIER_SLOT_NONE; at = host->slots[at].next) {
        const struct tier_slot *slot = &host->slots[at];
        ASSERT(slot->state == TIER_SLOT_READY && slot->prev == before);
        ASSERT(slot->block.tokens > 0 && slot->block.tokens <= BLOCK_TOKENS);
        ASSERT(hash_index_find(&host->by_hash, slot->block.hash) == at);
        used++;
        ASSERT(used <= host->slots_total);
        before = at;
    }
    ASSERT(before == host->newest && used == host->used);
    for (uint32_t at = host->free; at != TIER_SLOT_NONE; at = host->slots[at].next) {
        ASSERT(host->slots[at].state == TIER_SLOT_FREE && host->slots[at].pins == 0);
        free++;
        ASSERT(free <= host->slots_total);
    }
    ASSERT(used + free == host->slots_total);
    ASSERT(host->slots_total == 0 || host->by_hash.count == used);
}
