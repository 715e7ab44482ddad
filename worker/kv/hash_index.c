/* hash_index.c - open addressing over ids; see the header for what it promises.
 *
 *   slots: [ id+1 | 0 | id+1 | id+1 | 0 ... ]   a power of two, at least twice the entries
 *
 * Why ids and not keys in the slots: the pool has the keys anyway, and two indexes (by hash, by
 * parent) over one array cost 8 bytes a block each instead of 48. One probe is one cache miss in
 * the array, as a compare would be. Invariant: from a key's home slot to its slot no slot is free.
 */
#include "worker/kv/hash_index.h"

#include <stdbool.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

int hash_index_init(struct hash_index *index, uint32_t entries_max, const struct block_hash *keys,
                    size_t stride)
{
    unsigned bits = 3;
    void *slots;
    int r;

    ASSERT(entries_max <= UINT32_MAX / 4);
    ASSERT(stride >= sizeof(struct block_hash));
    while (((uint32_t)1 << bits) < 2 * entries_max)
        bits++;
    size_t bytes = ((size_t)1 << bits) * sizeof(*index->slots);
    r = mem_map(bytes, &slots);
    if (r < 0)
        return r;
    *index = (struct hash_index){
        .slots = slots,
        .keys = (const char *)keys,
        .stride = stride,
        .bytes = bytes,
        .mask = ((uint32_t)1 << bits) - 1,
        .shift = 64 - bits,
    };
    rng_system(&index->salt_low, sizeof(index->salt_low));
    rng_system(&index->salt_high, sizeof(index->salt_high));
    return 0;
}

void hash_index_done(struct hash_index *index)
{
    mem_unmap(index->slots, index->bytes);
    index->slots = NULL;
}

static struct block_hash key_of(const struct hash_index *index, uint32_t id)
{
    return *(const struct block_hash *)(const void *)(index->keys + id * index->stride);
}

/* Multiply-shift with secret odd factors: two chosen keys meet no more often than by chance. */
static uint32_t home_of(const struct hash_index *index, struct block_hash key)
{
    uint64_t mixed = key.low * (index->salt_low | 1) + key.high * (index->salt_high | 1);
    return (uint32_t)(mixed >> index->shift);
}

/* The slot of `key`, or the free slot that ends its run. */
static uint32_t slot_of(const struct hash_index *index, struct block_hash key)
{
    uint32_t at = home_of(index, key);

    while (index->slots[at] != 0 && !block_hash_equal(key_of(index, index->slots[at] - 1), key))
        at = (at + 1) & index->mask;
    return at;
}

uint32_t hash_index_find(const struct hash_index *index, struct block_hash key)
{
    return index->slots[slot_of(index, key)] - 1; /* 0 - 1 is HASH_INDEX_NONE */
}

void hash_index_insert(struct hash_index *index, uint32_t id)
{
    uint32_t at = slot_of(index, key_of(index, id));

    ASSERT(index->slots[at] == 0);
    ASSERT(index->count <= index->mask / 2);
    index->slots[at] = id + 1;
    index->count++;
}

void hash_index_remove(struct hash_index *index, uint32_t id)
{
    uint32_t gap = slot_of(index, key_of(index, id));

    ASSERT(index->slots[gap] == id + 1);
    for (uint32_t at = (gap + 1) & index->mask; index->slots[at] != 0;
         at = (at + 1) & index->mask) {
        uint32_t home = home_of(index, key_of(index, index->slots[at] - 1));
        /* Only an entry whose home is not behind the gap may move into it. */
        if (((at - home) & index->mask) < ((at - gap) & index->mask))
            continue;
        index->slots[gap] = index->slots[at];
        gap = at;
    }
    index->slots[gap] = 0;
    index->count--;
}

void hash_index_replace(struct hash_index *index, uint32_t old, uint32_t id)
{
    uint32_t at = slot_of(index, key_of(index, old));

    ASSERT(index->slots[at] == old + 1);
    ASSERT(block_hash_equal(key_of(index, old), key_of(index, id)));
    index->slots[at] = id + 1;
}
