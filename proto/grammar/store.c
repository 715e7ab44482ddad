/* store.c - a map from kind and text to an entry, and a list in order of use.
 *
 * The whole text is the key: a hash alone could be made to collide by a client. */
#include "proto/grammar/store.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"
#include "proto/grammar/automaton.h"

#define ENTRIES_MAX 4096u

struct entry {
    struct list link; /* least recently used first */
    struct grammar *grammar;
    char *key; /* kind, then the text */
    size_t key_bytes, bytes;
};

struct grammar_store {
    struct map *by_text;
    struct list used;
    size_t bytes, bytes_max;
};

struct grammar_store *grammar_store_new(size_t bytes_max)
{
    struct grammar_store *store = mem_zalloc(sizeof(*store));

    store->by_text = map_new(ENTRIES_MAX);
    store->bytes_max = bytes_max;
    list_init(&store->used);
    return store;
}

static void remove_entry(struct grammar_store *store, struct entry *entry)
{
    void *removed = map_remove(store->by_text, entry->key, entry->key_bytes);

    ASSERT(removed == entry);
    ASSERT(store->bytes >= entry->bytes);
    store->bytes -= entry->bytes;
    list_remove(&entry->link);
    grammar_unref(entry->grammar);
    mem_free(entry->key);
    mem_free(entry);
}

void grammar_store_free(struct grammar_store *store)
{
    if (store == NULL)
        return;
    while (!list_empty(&store->used))
        remove_entry(store, LIST_ENTRY(store->used.next, struct entry, link));
    ASSERT(store->bytes == 0);
    map_free(store->by_text);
    mem_free(store);
}

size_t grammar_store_bytes(const struct grammar_store *store)
{
    return store->bytes;
}

/* Nobody else holds it. */
static bool is_idle(const struct entry *entry)
{
    return atomic_load(&entry->grammar->refs) == 1;
}

static bool make_room(struct grammar_store *store, size_t bytes)
{
    LIST_FOR_SAFE(link, after, &store->used)
    {
        struct entry *entry = LIST_ENTRY(link, struct entry, link);
        bool fits = store->bytes + bytes <= store->bytes_max;
        if (fits && map_count(store->by_text) < ENTRIES_MAX)
            return true;
        if (is_idle(entry))
            remove_entry(store, entry);
    }
    return store->bytes + bytes <= store->bytes_max && map_count(store->by_text) < ENTRIES_MAX;
}

/* NULL: no grammar has such a kind, or so long a text. */
static char *make_key(const struct grammar_spec *spec)
{
    if (spec->bytes > GRAMMAR_TEXT_MAX)
        return NULL;
    if (spec->kind >= GRAMMAR_KINDS) /* the key has room for one byte of it */
        return NULL;
    char *key = mem_alloc(spec->bytes + 1);
    key[0] = (char)spec->kind;
    if (spec->bytes > 0)
        memcpy(key + 1, spec->text, spec->bytes);
    return key;
}

static struct entry *find(struct grammar_store *store, const char *key, size_t key_bytes)
{
    struct entry *entry = map_get(store->by_text, key, key_bytes);

    if (entry != NULL) {
        list_remove(&entry->link);
        list_push_back(&store->used, &entry->link);
    }
    return entry;
}

/* Takes the key over, unless there is no room: -ENOSPC. */
static int add_entry(struct grammar_store *store, char *key, size_t key_bytes,
                     struct grammar *grammar)
{
    size_t bytes = grammar_bytes(grammar) + sizeof(struct entry) + key_bytes;

    if (!make_room(store, bytes))
        return -ENOSPC;
    struct entry *entry = mem_zalloc(sizeof(*entry));
    *entry = (struct entry){
        .grammar = grammar_ref(grammar), .key = key, .key_bytes = key_bytes, .bytes = bytes};
    int r = map_set(store->by_text, key, entry->key_bytes, entry, NULL);
    ASSERT(r == 0);
    list_init(&entry->link);
    list_push_back(&store->used, &entry->link);
    store->bytes += bytes;
    return 0;
}

struct grammar *grammar_store_find(struct grammar_store *store, const struct grammar_spec *spec)
{
    char *key = make_key(spec);
    const struct entry *entry = key == NULL ? NULL : find(store, key, spec->bytes + 1);

    mem_free(key);
    return entry == NULL ? NULL : grammar_ref(entry->grammar);
}

void grammar_store_put(struct grammar_store *store, const struct grammar_spec *spec,
                       struct grammar *grammar)
{
    char *key = make_key(spec);

    ASSERT(key != NULL); /* it has been compiled */
    if (find(store, key, spec->bytes + 1) != NULL ||
        add_entry(store, key, spec->bytes + 1, grammar) < 0)
        mem_free(key);
}

int grammar_store_get(struct grammar_store *store, const struct grammar_spec *spec,
                      struct grammar **ret_grammar, struct errmsg *err)
{
    struct grammar *grammar = grammar_store_find(store, spec);

    if (grammar != NULL) {
        *ret_grammar = grammar;
        return 0;
    }
    int r = grammar_compile(spec, &grammar, err);
    if (r < 0)
        return r;
    char *key = make_key(spec);
    ASSERT(key != NULL);
    r = add_entry(store, key, spec->bytes + 1, grammar);
    if (r == 0) {
        *ret_grammar = grammar;
        return 0;
    }
    mem_free(key);
    grammar_unref(grammar);
    return errmsg_set(err, r, "grammars in use fill the %zu MiB they may have",
                      store->bytes_max >> 20);
}
