/* prefix_index.c - the table behind prefix_index.h.
 *
 * Linear probing with backward-shift deletion: no tombstones, so a lookup never degrades with age.
 * Key 0 means free; the one hash that is 0 is stored as 1. A worker's count and digest are kept
 * beside the table, since a heartbeat compares them twice a second. */
#include "router/route/prefix_index.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define SLOTS_MIN 1024u

struct entry {
    uint64_t key;
    uint64_t workers;
};

struct prefix_index {
    struct entry *slots;
    size_t slots_count; /* a power of two */
    size_t used;
    size_t entries_max;
    uint64_t count[PREFIX_INDEX_WORKERS_MAX];
    uint64_t digest[PREFIX_INDEX_WORKERS_MAX];
};

struct prefix_index *prefix_index_new(size_t entries_max)
{
    struct prefix_index *index = mem_zalloc(sizeof(*index));
    index->slots_count = SLOTS_MIN;
    index->slots = mem_calloc(index->slots_count, sizeof(*index->slots));
    index->entries_max = entries_max;
    return index;
}

void prefix_index_free(struct prefix_index *index)
{
    if (!index)
        return;
    mem_free(index->slots);
    mem_free(index);
}

static uint64_t key_of(struct block_hash hash)
{
    return hash.low ? hash.low : 1;
}

/* The slot of `key`, or the free slot where it would go. */
static size_t find(const struct prefix_index *index, uint64_t key)
{
    size_t at = key & (index->slots_count - 1);
    while (index->slots[at].key && index->slots[at].key != key)
        at = (at + 1) & (index->slots_count - 1);
    return at;
}

/* Move the entries that some worker still holds into a table of `slots_count` slots. */
static void rebuild(struct prefix_index *index, size_t slots_count)
{
    struct entry *old = index->slots;
    size_t old_count = index->slots_count;

    index->slots_count = slots_count;
    index->slots = mem_calloc(slots_count, sizeof(*index->slots));
    index->used = 0;
    for (size_t i = 0; i < old_count; i++) {
        if (!old[i].workers)
            continue;
        index->slots[find(index, old[i].key)] = old[i];
        index->used++;
    }
    mem_free(old);
}

int prefix_index_add(struct prefix_index *index, struct block_hash hash, uint32_t worker)
{
    uint64_t key = key_of(hash);
    uint64_t bit = (uint64_t)1 << worker;
    ASSERT(worker < PREFIX_INDEX_WORKERS_MAX);

    size_t at = find(index, key);
    if (!index->slots[at].key) {
        if (index->used >= index->entries_max)
            return -ENOSPC;
        if ((index->used + 1) * 10 > index->slots_count * 7) {
            rebuild(index, index->slots_count * 2);
            at = find(index, key);
        }
        index->slots[at].key = key;
        index->slots[at].workers = 0;
        index->used++;
    }
    if (index->slots[at].workers & bit)
        return 0;
    index->slots[at].workers |= bit;
    index->count[worker]++;
    index->digest[worker] ^= hash.low;
    return 0;
}

/* Free slot `hole` and pull later entries of its run forward, so that no probe meets a gap. */
static void remove_slot(struct prefix_index *index, size_t hole)
{
    size_t mask = index->slots_count - 1;
    size_t at = hole;

    for (;;) {
        at = (at + 1) & mask;
        if (!index->slots[at].key)
            break;
        size_t home = index->slots[at].key & mask;
        /* Movable unless its home lies behind the hole: home in (hole, at] cyclically stays. */
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            index->slots[hole] = index->slots[at];
            hole = at;
        }
    }
    index->slots[hole] = (struct entry){0};
    index->used--;
}

void prefix_index_remove(struct prefix_index *index, struct block_hash hash, uint32_t worker)
{
    uint64_t bit = (uint64_t)1 << worker;
    ASSERT(worker < PREFIX_INDEX_WORKERS_MAX);

    size_t at = find(index, key_of(hash));
    if (!(index->slots[at].workers & bit))
        return;
    index->slots[at].workers &= ~bit;
    index->count[worker]--;
    index->digest[worker] ^= hash.low;
    if (!index->slots[at].workers)
        remove_slot(index, at);
}

void prefix_index_purge(struct prefix_index *index, uint32_t worker)
{
    uint64_t bit = (uint64_t)1 << worker;
    ASSERT(worker < PREFIX_INDEX_WORKERS_MAX);

    if (!index->count[worker])
        return;
    for (size_t at = 0; at < index->slots_count; at++)
        index->slots[at].workers &= ~bit;
    rebuild(index, index->slots_count);
    index->count[worker] = 0;
    index->digest[worker] = 0;
}

void prefix_index_depths(const struct prefix_index *index, const struct block_hash *hashes,
                         size_t count, uint64_t workers, uint32_t *ret_depths)
{
    uint64_t alive = workers;

    for (uint64_t rest = workers; rest; rest &= rest - 1)
        ret_depths[__builtin_ctzll(rest)] = 0;
    for (size_t i = 0; i < count && alive; i++) {
        const struct entry *entry = &index->slots[find(index, key_of(hashes[i]))];
        alive &= entry->workers; /* 0 in a free slot */
        for (uint64_t rest = alive; rest; rest &= rest - 1)
            ret_depths[__builtin_ctzll(rest)] = (uint32_t)i + 1;
    }
}

uint64_t prefix_index_count(const struct prefix_index *index, uint32_t worker)
{
    return index->count[worker];
}

uint64_t prefix_index_digest(const struct prefix_index *index, uint32_t worker)
{
    return index->digest[worker];
}

size_t prefix_index_entries(const struct prefix_index *index)
{
    return index->used;
}

size_t prefix_index_bytes(const struct prefix_index *index)
{
    return index->slots_count * sizeof(*index->slots);
}
