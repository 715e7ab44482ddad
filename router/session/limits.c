/* limits.c - a table of turns, least recently used first.
 *
 * One entry per turn, named by the chain hash of its messages; it holds what its session had at
 * that turn, so a chat that branches at turn 3 has 4 turns on both branches. A session_id has one
 * entry, which remembers its last turn to know a repeat. Invariant: every entry is in the map and
 * in the list. */
#include "router/session/limits.h"

#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"

struct entry {
    struct list link;
    uint64_t key;
    uint64_t last_chain; /* the turn that was counted last */
    uint64_t began_ms;
    uint32_t turns;
};

struct limits {
    struct limits_settings settings;
    struct map *map;
    struct list used; /* oldest first */
};

struct limits *limits_new(const struct limits_settings *settings)
{
    struct limits *limits = mem_zalloc(sizeof(*limits));

    limits->settings = *settings;
    limits->map = map_new(LIMITS_ENTRIES_MAX);
    list_init(&limits->used);
    return limits;
}

void limits_free(struct limits *limits)
{
    struct list *item;

    if (!limits)
        return;
    while ((item = list_pop_front(&limits->used)))
        mem_free(LIST_ENTRY(item, struct entry, link));
    map_free(limits->map);
    mem_free(limits);
}

size_t limits_entries(const struct limits *limits)
{
    return map_count(limits->map);
}

static struct entry *entry_make(struct limits *limits, uint64_t key)
{
    struct entry *entry = NULL;

    if (map_count(limits->map) >= LIMITS_ENTRIES_MAX) {
        entry = LIST_ENTRY(list_pop_front(&limits->used), struct entry, link);
        (void)map_remove_u64(limits->map, entry->key);
    } else {
        entry = mem_alloc(sizeof(*entry));
    }
    *entry = (struct entry){.key = key};
    list_push_back(&limits->used, &entry->link);
    int r = map_set_u64(limits->map, key, entry);
    ASSERT(r == 0);
    return entry;
}

static bool is_first_turn(const struct conversation *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->messages[i].role == MESSAGE_ASSISTANT)
            return false;
    }
    return true;
}

/* The turn that this request repeats or follows; NULL: it begins a session. */
static const struct entry *find_before(const struct limits *limits, uint64_t session,
                                       const struct conversation *c)
{
    if (session)
        return map_get_u64(limits->map, session);
    if (is_first_turn(c))
        return NULL;
    for (uint32_t end = c->count; end > 0; end--) {
        const struct entry *entry =
            conversation_is_turn(c, end) ? map_get_u64(limits->map, c->chain[end]) : NULL;
        if (entry)
            return entry;
    }
    return NULL;
}

int limits_take(struct limits *limits, uint64_t session, const struct conversation *c,
                uint64_t now_ms, struct session_use *ret_use)
{
    uint64_t chain = c->chain[c->count];
    uint64_t key = session ? session : chain;
    struct entry now = {.key = key, .last_chain = chain, .began_ms = now_ms, .turns = 1};

    *ret_use = (struct session_use){0};
    if (limits->settings.turns_max == 0 && limits->settings.age_ms_max == 0)
        return 0;
    const struct entry *before = find_before(limits, session, c);
    if (before) {
        now.began_ms = before->began_ms;
        now.turns = before->turns + (before->last_chain != chain);
    }
    *ret_use = (struct session_use){.turns = now.turns, .age_ms = now_ms - now.began_ms};
    if (limits->settings.turns_max > 0 && now.turns > limits->settings.turns_max)
        return -EDQUOT;
    if (limits->settings.age_ms_max > 0 && ret_use->age_ms > limits->settings.age_ms_max)
        return -ETIME;
    struct entry *entry = map_get_u64(limits->map, key);
    if (!entry)
        entry = entry_make(limits, key);
    entry->last_chain = now.last_chain;
    entry->began_ms = now.began_ms;
    entry->turns = now.turns;
    list_remove(&entry->link);
    list_push_back(&limits->used, &entry->link);
    return 0;
}
