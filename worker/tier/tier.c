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
    uint32_t *slots; /* [sequence_blocks + 1]: buffers of the disk's, or host slots, each pinned */
    uint32_t count;
    uint32_t asked_blocks;
};

/* How far a look-up got, block by block. */
struct walk {
    bool may_wait;
    bool coming;      /* a block behind the ready ones is being read */
    bool later;       /* one was not read for want of a buffer */
    uint32_t of_disk; /* blocks in buffers or on their way */
};

struct tier {
    struct tier_settings settings;
    struct tier_host host;
    struct tier_disk *disk; /* NULL: none */
    struct step_tier_op *ops;
    uint32_t ops_count, ops_max;
    struct found found;
    struct tier_counts counts;
};

uint32_t tier_ops_max(const struct tier_settings *settings)
{
    if (settings->host_slots == 0 && settings->disk.nodes_max == 0)
        return 0;
    return 2 * (settings->sequence_blocks + 1) + OPS_SPARE + TIER_DISK_STORES_PER_STEP;
}

int tier_new(const struct tier_settings *settings, struct tier **ret_tier, struct errmsg *err)
{
    struct tier *tier = mem_zalloc(sizeof(*tier));
    int r = tier_host_init(&tier->host, settings->host_slots, err);

    if (r == 0 && settings->disk.nodes_max > 0) {
        r = tier_disk_new(&settings->disk, &tier->disk, err);
        if (r < 0)
            tier_host_done(&tier->host);
    }
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
    tier_disk_free(tier->disk);
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
    struct tier_block block = {
        .parent = evicted->parent, .tokens = evicted->tokens, .first = evicted->first};

    memcpy(block.ids, evicted->ids, evicted->tokens * sizeof(*block.ids));
    block.hash = evicted->tokens == BLOCK_TOKENS ? evicted->hash
                                                 : tier_tail_key(evicted->parent, block.ids[0]);
    return block;
}

/* As tier ops name a host slot: the disk's buffers come first. */
static uint32_t op_slot_of(const struct tier *tier, uint32_t host_slot)
{
    return tier->settings.disk.buffers + host_slot;
}

static bool is_of_host(const struct tier *tier, uint32_t op_slot)
{
    return op_slot >= tier->settings.disk.buffers;
}

static uint32_t host_slot_of(const struct tier *tier, uint32_t op_slot)
{
    return op_slot - tier->settings.disk.buffers;
}

/* One more copy fits, beside those that the found blocks need. */
static bool has_op(const struct tier *tier)
{
    return tier->ops_count + tier->found.count < tier->ops_max;
}

static void store_on_host(struct tier *tier, const struct block_evicted *evicted,
                          const struct tier_block *block)
{
    uint32_t slot;

    if (tier->host.slots_total == 0)
        return;
    if (!has_op(tier)) {
        tier->counts.drops_total++;
        return;
    }
    int r = tier_host_take(&tier->host, block, evicted->why == BLOCK_LOST_ABANDONED, &slot, NULL);
    if (r == 0) {
        add_op(tier, STEP_TIER_STORE, evicted->id, op_slot_of(tier, slot));
        tier->counts.stores_total++;
    }
    tier->counts.drops_total += r == -ENOSPC;
}

static void on_evict(void *user, const struct block_evicted *evicted)
{
    struct tier *tier = user;
    const struct tier_block block = block_of(evicted);
    uint32_t slot;

    if (tier->disk != NULL && (evicted->why == BLOCK_LOST_RESET || !has_op(tier)))
        tier_disk_unpublish(tier->disk, evicted->id);
    else if (tier->disk != NULL && tier_disk_evict(tier->disk, evicted->id, &slot))
        add_op(tier, STEP_TIER_STORE, evicted->id, slot);
    if (evicted->why != BLOCK_LOST_RESET)
        store_on_host(tier, evicted, &block);
}

static void on_publish(void *user, const struct block_evicted *published)
{
    struct tier *tier = user;
    const struct tier_block block = block_of(published);

    tier_disk_publish(tier->disk, published->id, &block);
}

static void on_superseded(void *user, uint32_t id)
{
    struct tier *tier = user;

    tier_disk_unpublish(tier->disk, id);
}

void tier_watch_pool(struct tier *tier, struct block_events *events)
{
    events->tier_user = tier;
    events->on_evict = on_evict;
    events->on_publish = tier->disk != NULL ? on_publish : NULL;
    events->on_superseded = tier->disk != NULL ? on_superseded : NULL;
}

static void let_go_of_found(struct tier *tier)
{
    while (tier->found.count > 0) {
        uint32_t slot = tier->found.slots[--tier->found.count];
        if (is_of_host(tier, slot))
            tier_host_unpin(&tier->host, host_slot_of(tier, slot));
    }
}

static void add_found(struct tier *tier, uint32_t slot)
{
    ASSERT(tier->found.count <= tier->settings.sequence_blocks);
    if (is_of_host(tier, slot))
        tier_host_pin(&tier->host, host_slot_of(tier, slot));
    tier->found.slots[tier->found.count++] = slot;
}

/* Is there room for `blocks` loads, and for as many stores as they may cost? */
static bool has_room(const struct tier *tier, uint32_t blocks)
{
    return tier->ops_count == 0 || tier->ops_count + 2 * blocks <= tier->ops_max;
}

/* What the disk says of a block or tail. true: it is in the buffer, and all before it are ready. */
static bool note(struct walk *walk, enum tier_disk_found found)
{
    walk->coming |= found == TIER_DISK_COMING;
    walk->later |= found == TIER_DISK_LATER;
    walk->of_disk += found == TIER_DISK_COMING || found == TIER_DISK_READY;
    return found == TIER_DISK_READY && !walk->coming;
}

/* The block's slot or buffer to `found`, if it and all before it are there. false: the chain is not
 * to be followed further. */
static bool find_block(struct tier *tier, const struct tier_block *wanted, struct walk *walk)
{
    uint32_t slot = tier_host_find(&tier->host, wanted->hash, wanted->parent, wanted->ids);

    if (slot != TIER_SLOT_NONE) {
        if (!walk->coming)
            add_found(tier, op_slot_of(tier, slot));
        return true;
    }
    if (tier->disk == NULL)
        return false;
    enum tier_disk_found found = tier_disk_find(tier->disk, wanted, walk->may_wait, &slot);
    if (note(walk, found))
        add_found(tier, slot);
    return found == TIER_DISK_READY || found == TIER_DISK_COMING;
}

static uint32_t find_blocks(struct tier *tier, const struct tier_query *query, struct walk *walk)
{
    uint32_t block = query->first, end = query->tokens / BLOCK_TOKENS;
    struct tier_block wanted = {.parent = block == 0 ? query->root : query->hashes[block - 1],
                                .tokens = BLOCK_TOKENS};

    for (; block < end; block++) {
        wanted.hash = query->hashes[block];
        wanted.first = block == 0;
        memcpy(wanted.ids, query->ids + (size_t)block * BLOCK_TOKENS, sizeof(wanted.ids));
        if (!find_block(tier, &wanted, walk))
            break;
        wanted.parent = query->hashes[block];
    }
    return block;
}

/* A tail behind the blocks that were followed. */
static void find_tail(struct tier *tier, const struct tier_query *query, uint32_t block,
                      struct walk *walk, uint32_t *ret_tokens)
{
    uint32_t done = block * BLOCK_TOKENS, rest = query->tokens - done, tokens = 0;
    uint32_t count = rest < BLOCK_TOKENS ? rest : BLOCK_TOKENS - 1;
    struct block_hash parent = block == 0 ? query->root : query->hashes[block - 1];
    uint32_t slot = tier_host_find_tail(&tier->host, parent, query->ids + done, count, &tokens);
    bool ready = slot != TIER_SLOT_NONE && !walk->coming;

    if (slot != TIER_SLOT_NONE)
        slot = op_slot_of(tier, slot);
    else if (tier->disk != NULL)
        ready = note(walk, tier_disk_find_tail(tier->disk, parent, query->ids + done, count,
                                               walk->may_wait, &slot, &tokens));
    if (!ready)
        return;
    add_found(tier, slot);
    *ret_tokens = tokens;
}

/* More is coming, or would if others did not hold the buffers. */
static bool is_loading(const struct tier *tier, const struct walk *walk)
{
    uint32_t used = 0;

    if (tier->disk == NULL || !walk->may_wait)
        return false;
    (void)tier_disk_readers(tier->disk, &used);
    return walk->coming || (walk->later && used > walk->of_disk);
}

static void find(void *user, const struct tier_query *query, struct tier_found *ret_found)
{
    struct tier *tier = user;
    struct tier_found found = {0};
    struct walk walk = {.may_wait = query->may_wait};

    let_go_of_found(tier);
    tier->found.asked_blocks = query->tokens / BLOCK_TOKENS - query->first;
    uint32_t block = find_blocks(tier, query, &walk);
    found.blocks = tier->found.count;
    if (!walk.later)
        find_tail(tier, query, block, &walk, &found.tail_tokens);
    for (uint32_t i = 0; i < tier->found.count; i++) {
        uint32_t tokens = i < found.blocks ? BLOCK_TOKENS : found.tail_tokens;
        if (is_of_host(tier, tier->found.slots[i]))
            found.host_tokens += tokens;
        else
            found.disk_tokens += tokens;
    }
    found.loading = is_loading(tier, &walk);
    found.wait = tier->found.count > 0 && !has_room(tier, tier->found.count);
    *ret_found = found;
}

static void count_load(struct tier *tier, const struct tier_found *wanted)
{
    uint32_t host = 0;

    for (uint32_t i = 0; i < wanted->blocks; i++)
        host += is_of_host(tier, tier->found.slots[i]);
    tier->counts.hits_total += host;
    tier->counts.misses_total += tier->found.asked_blocks - host;
    tier->counts.disk_hits_total += wanted->blocks - host;
    tier->counts.disk_misses_total += tier->found.asked_blocks - wanted->blocks;
}

static void load(void *user, const struct tier_found *wanted, const uint32_t *blocks)
{
    struct tier *tier = user;
    uint32_t count = wanted->blocks + (wanted->tail_tokens > 0);
    uint32_t *slots = tier->found.slots;

    ASSERT(count <= tier->found.count && wanted->blocks <= tier->found.asked_blocks);
    count_load(tier, wanted);
    for (uint32_t i = 0; i < count; i++)
        add_op(tier, STEP_TIER_LOAD, blocks[i], slots[i]);
    for (uint32_t i = count; i-- > 0;) { /* children older than parents */
        if (is_of_host(tier, slots[i]))
            tier_host_touch(&tier->host, host_slot_of(tier, slots[i]));
        else
            tier_disk_loaded(tier->disk, slots[i]);
    }
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

const struct step_disk_op *tier_file_ops(const struct tier *tier, uint32_t *ret_count)
{
    if (tier->disk != NULL)
        return tier_disk_ops(tier->disk, ret_count);
    *ret_count = 0;
    return NULL;
}

struct tier_tree *tier_files(struct tier *tier)
{
    return tier->disk != NULL ? tier_disk_tree(tier->disk) : NULL;
}

void tier_begin(struct tier *tier, uint64_t now_ns)
{
    if (tier->disk != NULL)
        tier_disk_poll(tier->disk, now_ns);
}

void tier_add_stores(struct tier *tier)
{
    uint32_t block, slot, count = 0;

    let_go_of_found(tier);
    while (tier->disk != NULL && count++ < TIER_DISK_STORES_PER_STEP && has_op(tier) &&
           tier_disk_next_store(tier->disk, &block, &slot))
        add_op(tier, STEP_TIER_STORE, block, slot);
}

void tier_step_done(struct tier *tier)
{
    let_go_of_found(tier);
    tier->ops_count = 0;
    if (tier->disk != NULL)
        tier_disk_step_done(tier->disk);
}

bool tier_busy(const struct tier *tier)
{
    return tier->disk != NULL && tier_disk_busy(tier->disk);
}

uint32_t tier_reset(struct tier *tier)
{
    ASSERT(tier->ops_count == 0);
    let_go_of_found(tier);
    uint32_t files = tier->disk != NULL ? tier_disk_clear(tier->disk) : 0;
    return tier_host_forget_all(&tier->host) + files;
}

void tier_get_counts(const struct tier *tier, struct tier_counts *ret_counts)
{
    *ret_counts = tier->counts;
    ret_counts->host_slots = tier->host.slots_total;
    ret_counts->host_used = tier->host.used;
    ret_counts->lost_total = tier->host.lost_total;
    if (tier->disk != NULL)
        tier_disk_get_counts(tier->disk, &ret_counts->disk);
}

void tier_check(const struct tier *tier)
{
    uint32_t pins = 0, of_host = 0;

    tier_host_check(&tier->host);
    if (tier->disk != NULL)
        tier_disk_check(tier->disk);
    for (uint32_t i = 0; i < tier->found.count; i++)
        of_host += is_of_host(tier, tier->found.slots[i]);
    for (uint32_t slot = 0; slot < tier->host.slots_total; slot++)
        pins += tier->host.slots[slot].pins;
    ASSERT(pins == of_host && tier->ops_count <= tier->ops_max);
}
