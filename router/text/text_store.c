/* text_store.c - a hash table whose size is fixed at the start, chains, and one list by last use.
 *
 *   buckets[hash] -> entry -> entry -> NULL        every entry also hangs in `used`, newest last
 *   entry = node, ids, text in one allocation
 *
 * Why a table of its own: base/map.h copies keys and grows; here every byte is part of one budget
 * and nothing may grow past it. Chains because the number of entries is known only by their size:
 * one bucket per 1024 bytes of budget keeps them short for texts of that size, and a budget full of
 * the smallest entries has about 8 in each.
 *
 * Invariants: bytes == table + sum of entries <= bytes_max, or nothing is held at all. Cost: a get
 * hashes nothing, walks one chain and compares one text. */
#undef MEM_PURPOSE
#define MEM_PURPOSE MEM_TEXT_CACHE
#include "router/text/text_store.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/list.h"
#include "proto/base/mem.h"

#define BUDGET_PER_BUCKET 1024u
#define BUCKETS_MIN 64u
#define ENTRY_SHARE_MAX 4u /* an entry has at most 1/4 of the budget */

struct text_entry {
    struct list used;
    struct text_entry *next; /* of the bucket */
    struct text_key key;
    size_t bytes;
    uint32_t count;
    uint32_t ids[]; /* then the text */
};

struct text_store {
    size_t bytes, bytes_max, entries;
    uint64_t evictions;
    struct list used;
    size_t buckets_count; /* a power of two; 0: nothing is held */
    struct text_entry **buckets;
};

struct text_store *text_store_new(size_t bytes_max)
{
    struct text_store *store = mem_zalloc(sizeof(*store));
    size_t buckets = BUCKETS_MIN;

    list_init(&store->used);
    while (buckets * 2 <= bytes_max / BUDGET_PER_BUCKET)
        buckets *= 2;
    size_t table = sizeof(*store) + buckets * sizeof(*store->buckets);
    if (bytes_max < 2 * table)
        return store;
    store->bytes_max = bytes_max;
    store->bytes = table;
    store->buckets_count = buckets;
    store->buckets = mem_calloc(buckets, sizeof(*store->buckets));
    return store;
}

void text_store_free(struct text_store *store)
{
    struct list *item;

    if (!store)
        return;
    while ((item = list_pop_front(&store->used)))
        mem_free(LIST_ENTRY(item, struct text_entry, used));
    mem_free(store->buckets);
    mem_free(store);
}

static size_t entry_bytes(size_t text_bytes, size_t ids_count)
{
    return sizeof(struct text_entry) + ids_count * sizeof(uint32_t) + text_bytes;
}

static const char *entry_text(const struct text_entry *entry)
{
    return (const char *)(entry->ids + entry->count);
}

static struct text_entry **bucket_of(const struct text_store *store, const struct text_key *key)
{
    uint64_t hash = (key->hash ^ key->context) * UINT64_C(0x9e3779b97f4a7c15);
    return &store->buckets[(hash >> 32) & (store->buckets_count - 1)];
}

static bool keys_equal(const struct text_key *a, const struct text_key *b)
{
    return a->hash == b->hash && a->context == b->context && a->owner == b->owner &&
           a->kind == b->kind;
}

static struct text_entry *find(const struct text_store *store, const struct text_key *key,
                               const char *text, size_t bytes)
{
    struct text_entry *entry = store->buckets_count ? *bucket_of(store, key) : NULL;

    while (entry && !(keys_equal(&entry->key, key) && entry->bytes == bytes &&
                      memcmp(entry_text(entry), text, bytes) == 0))
        entry = entry->next;
    return entry;
}

static void use(struct text_store *store, struct text_entry *entry)
{
    list_remove(&entry->used);
    list_push_back(&store->used, &entry->used);
}

const uint32_t *text_store_get(struct text_store *store, const struct text_key *key,
                               const char *text, size_t bytes, size_t *ret_count)
{
    struct text_entry *entry = find(store, key, text, bytes);

    if (!entry)
        return NULL;
    use(store, entry);
    *ret_count = entry->count;
    return entry->ids;
}

static void evict(struct text_store *store)
{
    struct text_entry *oldest = LIST_ENTRY(list_pop_front(&store->used), struct text_entry, used);
    struct text_entry **link = bucket_of(store, &oldest->key);

    while (*link != oldest)
        link = &(*link)->next;
    *link = oldest->next;
    store->bytes -= entry_bytes(oldest->bytes, oldest->count);
    store->entries--;
    store->evictions++;
    mem_free(oldest);
}

void text_store_put(struct text_store *store, const struct text_key *key, const char *text,
                    size_t bytes, const uint32_t *ids, size_t count)
{
    size_t needed = entry_bytes(bytes, count);
    struct text_entry *entry = find(store, key, text, bytes);

    if (entry) {
        use(store, entry);
        return;
    }
    if (needed > store->bytes_max / ENTRY_SHARE_MAX)
        return;
    while (store->bytes + needed > store->bytes_max)
        evict(store);
    entry = mem_alloc(needed);
    entry->key = *key;
    entry->bytes = bytes;
    entry->count = (uint32_t)count;
    if (count > 0)
        memcpy(entry->ids, ids, count * sizeof(*ids));
    if (bytes > 0)
        memcpy((char *)(entry->ids + count), text, bytes);
    struct text_entry **bucket = bucket_of(store, key);
    entry->next = *bucket;
    *bucket = entry;
    list_push_back(&store->used, &entry->used);
    store->bytes += needed;
    store->entries++;
    ASSERT(store->bytes <= store->bytes_max);
}

size_t text_store_bytes(const struct text_store *store)
{
    return store->bytes;
}

size_t text_store_entries(const struct text_store *store)
{
    return store->entries;
}

uint64_t text_store_evictions(const struct text_store *store)
{
    return store->evictions;
}

void text_store_check(const struct text_store *store)
{
    size_t bytes =
        store->buckets_count ? sizeof(*store) + store->buckets_count * sizeof(*store->buckets) : 0;
    size_t listed = 0, chained = 0;

    LIST_FOR(item, &store->used)
    {
        const struct text_entry *entry = LIST_ENTRY(item, struct text_entry, used);
        bytes += entry_bytes(entry->bytes, entry->count);
        listed++;
        ASSERT(find(store, &entry->key, entry_text(entry), entry->bytes) == entry);
    }
    for (size_t i = 0; i < store->buckets_count; i++) {
        for (const struct text_entry *entry = store->buckets[i]; entry; entry = entry->next)
            chained++;
    }
    ASSERT(bytes == store->bytes && store->bytes <= store->bytes_max);
    ASSERT(listed == store->entries && chained == store->entries);
}
