/* template_cache.c - a list, the latest used first: with 16 entries no map is faster. */
#include "router/template_cache.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/list.h"
#include "proto/base/mem.h"

struct entry {
    struct list link;
    struct chat_template *compiled;
    size_t source_bytes, bytes; /* bytes: with what is compiled */
    char source[];
};

struct template_cache {
    struct list used; /* latest first */
    size_t count, bytes, compiled;
};

struct template_cache *template_cache_new(void)
{
    struct template_cache *cache = mem_zalloc(sizeof(*cache));

    list_init(&cache->used);
    return cache;
}

static void drop(struct template_cache *cache, struct entry *entry)
{
    ASSERT(cache->count > 0 && cache->bytes >= entry->bytes);
    list_remove(&entry->link);
    cache->count--;
    cache->bytes -= entry->bytes;
    chat_template_free(entry->compiled);
    mem_free(entry);
}

void template_cache_free(struct template_cache *cache)
{
    if (!cache)
        return;
    while (!list_empty(&cache->used))
        drop(cache, LIST_ENTRY(cache->used.next, struct entry, link));
    mem_free(cache);
}

static struct entry *find(struct template_cache *cache, const char *source, size_t bytes)
{
    LIST_FOR(item, &cache->used)
    {
        struct entry *entry = LIST_ENTRY(item, struct entry, link);
        if (entry->source_bytes == bytes && memcmp(entry->source, source, bytes) == 0)
            return entry;
    }
    return NULL;
}

static void make_room(struct template_cache *cache, size_t bytes)
{
    while (cache->count >= TEMPLATE_CACHE_ENTRIES ||
           (cache->count > 0 && cache->bytes + bytes > TEMPLATE_CACHE_BYTES))
        drop(cache, LIST_ENTRY(cache->used.prev, struct entry, link));
}

int template_cache_get(struct template_cache *cache, const char *source, size_t bytes,
                       const struct chat_template **ret_template, struct errmsg *err)
{
    struct entry *entry = find(cache, source, bytes);
    struct chat_template *compiled = NULL;

    if (entry) {
        list_remove(&entry->link);
    } else {
        int r = chat_template_new(source, bytes, &compiled, err);
        if (r < 0)
            return r;
        chat_template_distrust(compiled);
        size_t all = sizeof(*entry) + bytes + chat_template_bytes(compiled);
        make_room(cache, all);
        entry = mem_zalloc(sizeof(*entry) + bytes);
        entry->compiled = compiled;
        entry->source_bytes = bytes;
        entry->bytes = all;
        memcpy(entry->source, source, bytes);
        cache->count++;
        cache->compiled++;
        cache->bytes += all;
    }
    list_push_front(&cache->used, &entry->link);
    *ret_template = entry->compiled;
    return 0;
}

size_t template_cache_count(const struct template_cache *cache)
{
    return cache->count;
}

size_t template_cache_bytes(const struct template_cache *cache)
{
    return cache->bytes;
}

size_t template_cache_compiled(const struct template_cache *cache)
{
    return cache->compiled;
}
