/* pair_map.c - the one operation of a pair_map that is not worth inlining: adding.
 *
 * Cost: amortised O(1); a map made for the right number of entries never doubles. */
#include "router/text/pair_map.h"

static void pair_map_double(struct pair_map *map)
{
    struct pair_map bigger;
    pair_map_init(&bigger, map->slots);
    for (size_t i = 0; i < map->slots; i++) {
        if (map->entries[i].key != PAIR_MAP_EMPTY)
            *pair_map_slot(&bigger, map->entries[i].key) = map->entries[i];
    }
    bigger.count = map->count;
    mem_free(map->entries);
    *map = bigger;
}

struct pair_entry *pair_map_add(struct pair_map *map, uint64_t key, bool *ret_new)
{
    ASSERT(key != PAIR_MAP_EMPTY);
    struct pair_entry *entry = pair_map_slot(map, key);
    *ret_new = entry->key == PAIR_MAP_EMPTY;
    if (!*ret_new)
        return entry;
    if ((map->count + 1) * 2 > map->slots) {
        pair_map_double(map);
        entry = pair_map_slot(map, key);
    }
    map->count++;
    *entry = (struct pair_entry){.key = key};
    return entry;
}
