/* word_cache.c - a direct-mapped table of 128-byte slots: two cache lines a look-up, no eviction
 * list.
 *
 * Why: natural text repeats its words, and merging costs some 20 times a look-up. Bounded by
 * construction. The word itself is compared, so a hash collision costs time, never a wrong id. */
#include "router/text/word_cache.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

struct slot {
    uint64_t hash;
    uint8_t bytes; /* 0: empty */
    uint8_t count;
    char word[WORD_CACHE_WORD_MAX];
    uint32_t ids[WORD_CACHE_IDS_MAX];
};
_Static_assert(sizeof(struct slot) == 128, "two cache lines");

struct word_cache {
    struct slot *slots;
};

struct word_cache *word_cache_new(void)
{
    void *slots = NULL;
    struct word_cache *cache = mem_zalloc(sizeof(*cache));
    int r = mem_map(WORD_CACHE_SLOTS * sizeof(struct slot), &slots); /* pages come as words do */
    ASSERT(r == 0);
    cache->slots = slots;
    return cache;
}

void word_cache_free(struct word_cache *cache)
{
    if (cache == NULL)
        return;
    mem_unmap(cache->slots, WORD_CACHE_SLOTS * sizeof(struct slot));
    mem_free(cache);
}

const uint32_t *word_cache_get(const struct word_cache *cache, const char *word, size_t bytes,
                               uint64_t hash, size_t *ret_count)
{
    const struct slot *slot = &cache->slots[hash % WORD_CACHE_SLOTS];
    if (slot->hash != hash || slot->bytes != bytes || memcmp(slot->word, word, bytes) != 0)
        return NULL;
    *ret_count = slot->count;
    return slot->ids;
}

void word_cache_put(struct word_cache *cache, const char *word, size_t bytes, uint64_t hash,
                    const uint32_t *ids, size_t count)
{
    struct slot *slot = &cache->slots[hash % WORD_CACHE_SLOTS];
    if (bytes == 0 || bytes > WORD_CACHE_WORD_MAX || count == 0 || count > WORD_CACHE_IDS_MAX)
        return;
    slot->hash = hash;
    slot->bytes = (uint8_t)bytes;
    slot->count = (uint8_t)count;
    memcpy(slot->word, word, bytes);
    memcpy(slot->ids, ids, count * sizeof(*ids));
}
