/* map.c - hash map, open addressing with linear probing.
 *
 *   slots: [hash, value, key] ...  count of slots is a power of two, at most 70 % are used
 *
 * Why this way: one allocation, neighbours in one cache line. Removing moves later entries of the
 * run back instead of leaving a tombstone, so that a map that churns for weeks stays as fast as a
 * fresh one. Keys up to 16 bytes (ids, hashes, uuids) live in the slot. The hash is XXH3 with a
 * random seed per map: keys come from clients, who must not be able to make them collide.
 * Invariant: hash 0 marks a free slot; from an entry's home slot to the entry no slot is free. */
#include "proto/base/map.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

#define MAP_SLOTS_MIN 8u
#define MAP_KEY_INLINE_MAX 16u

struct slot {
    uint64_t hash; /* 0: free */
    void *value;
    size_t key_bytes;
    union {
        char bytes[MAP_KEY_INLINE_MAX];
        char *heap;
    } key;
};

struct map {
    enum mem_purpose purpose;
    struct slot *slots;
    size_t slots_count; /* 0 before the first entry, then a power of two */
    size_t count;
    size_t entries_max;
    uint64_t seed;
};

struct map *map_new_as(enum mem_purpose purpose, size_t entries_max)
{
    struct map *map = mem_calloc_as(purpose, 1, sizeof(*map));
    map->purpose = purpose;

    map->entries_max = entries_max > 0 ? entries_max : UINT32_MAX / 2;
    rng_system(&map->seed, sizeof(map->seed));
    return map;
}

static const char *slot_key(const struct slot *slot)
{
    return slot->key_bytes > MAP_KEY_INLINE_MAX ? slot->key.heap : slot->key.bytes;
}

static void slot_free_key(struct slot *slot)
{
    if (slot->key_bytes > MAP_KEY_INLINE_MAX)
        mem_free(slot->key.heap);
}

void map_free(struct map *map)
{
    if (map == NULL)
        return;
    for (size_t i = 0; i < map->slots_count; i++) {
        if (map->slots[i].hash != 0)
            slot_free_key(&map->slots[i]);
    }
    mem_free(map->slots);
    mem_free(map);
}

size_t map_count(const struct map *map)
{
    return map->count;
}

static uint64_t hash_key(const struct map *map, const void *key, size_t key_bytes)
{
    uint64_t hash = XXH3_64bits_withSeed(key, key_bytes, map->seed);

    return hash != 0 ? hash : 1;
}

/* The slot of the key, or the free slot where it would go. The table must have a free slot. */
static size_t find(const struct map *map, uint64_t hash, const void *key, size_t key_bytes)
{
    size_t mask = map->slots_count - 1;
    size_t at = hash & mask;

    for (;; at = (at + 1) & mask) {
        const struct slot *slot = &map->slots[at];

        if (slot->hash == 0)
            return at;
        if (slot->hash == hash && slot->key_bytes == key_bytes &&
            (key_bytes == 0 || memcmp(slot_key(slot), key, key_bytes) == 0))
            return at;
    }
}

static void grow(struct map *map)
{
    struct slot *old = map->slots;
    size_t old_count = map->slots_count;

    map->slots_count = old_count > 0 ? 2 * old_count : MAP_SLOTS_MIN;
    map->slots = mem_calloc_as(map->purpose, map->slots_count, sizeof(*map->slots));
    for (size_t i = 0; i < old_count; i++) {
        size_t at = old[i].hash & (map->slots_count - 1);

        if (old[i].hash == 0)
            continue;
        while (map->slots[at].hash != 0) /* all keys differ: the first free slot is right */
            at = (at + 1) & (map->slots_count - 1);
        map->slots[at] = old[i];
    }
    mem_free(old);
}

int map_set(struct map *map, const void *key, size_t key_bytes, void *value, void **ret_old)
{
    uint64_t hash = hash_key(map, key, key_bytes);
    struct slot *slot = NULL;

    if (map->slots_count > 0)
        slot = &map->slots[find(map, hash, key, key_bytes)];
    if (slot != NULL && slot->hash != 0) {
        if (ret_old != NULL)
            *ret_old = slot->value;
        slot->value = value;
        return 0;
    }
    if (map->count >= map->entries_max)
        return -ENOSPC;
    if (10 * (map->count + 1) > 7 * map->slots_count) {
        grow(map);
        slot = &map->slots[find(map, hash, key, key_bytes)];
    }
    ASSERT(slot != NULL && slot->hash == 0);
    *slot = (struct slot){.hash = hash, .value = value, .key_bytes = key_bytes};
    if (key_bytes > MAP_KEY_INLINE_MAX)
        slot->key.heap = mem_strndup_as(map->purpose, key, key_bytes);
    else if (key_bytes > 0)
        memcpy(slot->key.bytes, key, key_bytes);
    map->count++;
    if (ret_old != NULL)
        *ret_old = NULL;
    return 0;
}

void *map_get(const struct map *map, const void *key, size_t key_bytes)
{
    const struct slot *slot;

    if (map->count == 0)
        return NULL;
    slot = &map->slots[find(map, hash_key(map, key, key_bytes), key, key_bytes)];
    return slot->hash != 0 ? slot->value : NULL;
}

/* Free slot `hole` and pull back what can no longer be found across it (Knuth 6.4, algorithm R). */
static void close_hole(struct map *map, size_t hole)
{
    size_t mask = map->slots_count - 1;
    size_t at = hole;

    for (;;) {
        size_t home;

        at = (at + 1) & mask;
        if (map->slots[at].hash == 0)
            break;
        home = map->slots[at].hash & mask;
        if (((at - home) & mask) < ((at - hole) & mask))
            continue; /* its home lies behind the hole */
        map->slots[hole] = map->slots[at];
        hole = at;
    }
    map->slots[hole].hash = 0;
}

void *map_remove(struct map *map, const void *key, size_t key_bytes)
{
    size_t at;
    void *value;

    if (map->count == 0)
        return NULL;
    at = find(map, hash_key(map, key, key_bytes), key, key_bytes);
    if (map->slots[at].hash == 0)
        return NULL;
    value = map->slots[at].value;
    slot_free_key(&map->slots[at]);
    close_hole(map, at);
    map->count--;
    return value;
}

int map_set_text(struct map *map, const char *key, void *value)
{
    return map_set(map, key, strlen(key), value, NULL);
}

void *map_get_text(const struct map *map, const char *key)
{
    return map_get(map, key, strlen(key));
}

void *map_remove_text(struct map *map, const char *key)
{
    return map_remove(map, key, strlen(key));
}

int map_set_u64(struct map *map, uint64_t key, void *value)
{
    return map_set(map, &key, sizeof(key), value, NULL);
}

void *map_get_u64(const struct map *map, uint64_t key)
{
    return map_get(map, &key, sizeof(key));
}

void *map_remove_u64(struct map *map, uint64_t key)
{
    return map_remove(map, &key, sizeof(key));
}

bool map_next(const struct map *map, size_t *at, const void **ret_key, size_t *ret_key_bytes,
              void **ret_value)
{
    for (; *at < map->slots_count; (*at)++) {
        const struct slot *slot = &map->slots[*at];

        if (slot->hash == 0)
            continue;
        (*at)++;
        if (ret_key != NULL)
            *ret_key = slot_key(slot);
        if (ret_key_bytes != NULL)
            *ret_key_bytes = slot->key_bytes;
        if (ret_value != NULL)
            *ret_value = slot->value;
        return true;
    }
    return false;
}
