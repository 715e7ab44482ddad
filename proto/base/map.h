/* map.h - hash map from bytes or u64 to a pointer. Open addressing, linear probing, load <= 0.7.
 *
 * Ownership: keys are copied, values are the caller's. Bounded by `entries_max` (0 = UINT32_MAX/2).
 * Iteration order is unspecified. Thread: one. */
#ifndef REFRAIN_PROTO_BASE_MAP_H
#define REFRAIN_PROTO_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/mem.h"

struct map;

struct map *map_new_as(enum mem_purpose purpose, size_t entries_max);
static inline struct map *map_new(size_t entries_max)
{
    return map_new_as(MEM_PURPOSE, entries_max);
}
void map_free(struct map *map);
size_t map_count(const struct map *map);

/* 0 and the old value (or NULL) in *ret_old when given; -ENOSPC: entries_max reached. */
int map_set(struct map *map, const void *key, size_t key_bytes, void *value, void **ret_old);
void *map_get(const struct map *map, const void *key, size_t key_bytes); /* NULL: absent */
void *map_remove(struct map *map, const void *key, size_t key_bytes);    /* the value, or NULL */

int map_set_text(struct map *map, const char *key, void *value);
void *map_get_text(const struct map *map, const char *key);
void *map_remove_text(struct map *map, const char *key);
int map_set_u64(struct map *map, uint64_t key, void *value);
void *map_get_u64(const struct map *map, uint64_t key);
void *map_remove_u64(struct map *map, uint64_t key);

/* for (size_t at = 0; map_next(map, &at, &key, &key_bytes, &value);) - no change in the loop. */
bool map_next(const struct map *map, size_t *at, const void **ret_key, size_t *ret_key_bytes,
              void **ret_value);

#endif
