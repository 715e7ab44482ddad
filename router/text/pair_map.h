/* pair_map.h - u64 key -> two u32: merges by (left, right), edges of a trie by (node, byte).
 *
 * Built once, then only read. Open addressing, at most half full, 16 bytes an entry: one cache line
 * a look-up. proto/base/map.h stores pointers and copies keys; a vocabulary has 300,000 entries. */
#ifndef REFRAIN_ROUTER_TEXT_PAIR_MAP_H
#define REFRAIN_ROUTER_TEXT_PAIR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define PAIR_MAP_EMPTY UINT64_MAX

struct pair_entry {
    uint64_t key;
    uint32_t first, second;
};

struct pair_map {
    struct pair_entry *entries;
    uint32_t shift; /* 64 - log2 of the number of slots */
    size_t count, slots;
};

static inline void pair_map_init(struct pair_map *map, size_t expected)
{
    size_t slots = 64;
    uint32_t shift = 64 - 6;
    for (; slots < expected * 2; slots *= 2)
        shift--;
    map->entries = mem_alloc(slots * sizeof(*map->entries));
    for (size_t i = 0; i < slots; i++)
        map->entries[i].key = PAIR_MAP_EMPTY;
    map->shift = shift;
    map->slots = slots;
    map->count = 0;
}

static inline void pair_map_done(struct pair_map *map)
{
    mem_free(map->entries);
    map->entries = NULL;
}

/* The entry of `key`, or the empty one where it belongs. */
static inline struct pair_entry *pair_map_slot(const struct pair_map *map, uint64_t key)
{
    size_t at = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> map->shift);
    while (map->entries[at].key != key && map->entries[at].key != PAIR_MAP_EMPTY)
        at = (at + 1) & (map->slots - 1);
    return &map->entries[at];
}

static inline const struct pair_entry *pair_map_find(const struct pair_map *map, uint64_t key)
{
    const struct pair_entry *entry = pair_map_slot(map, key);
    return entry->key == key ? entry : NULL;
}

/* The entry of `key`, made (first and second 0) when it is new; *ret_new says so. Doubles in time:
 * pointers into the map are good until the next call. */
struct pair_entry *pair_map_add(struct pair_map *map, uint64_t key, bool *ret_new);

static inline uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

#endif
