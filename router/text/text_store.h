/* text_store.h - texts and their ids in bounded memory; the one used least recently goes first.
 *
 * What a key means is its user's business (text_cache.c). A hit compares the whole text, so that
 * equal hashes cost time, never a wrong id. Ownership: copies everything. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_TEXT_STORE_H
#define REFRAIN_ROUTER_TEXT_TEXT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_store;

/* All of it must be equal, and the text. */
struct text_key {
    uint64_t owner, context;
    uint64_t hash; /* of the text; finds the entry */
    uint32_t kind;
};

/* The table takes at most 1 % of bytes_max, 512 bytes at least; a budget of less than two of those
 * holds nothing. */
struct text_store *text_store_new(size_t bytes_max);
void text_store_free(struct text_store *store);
/* The ids, good until the next put, and their count; NULL: not there. */
const uint32_t *text_store_get(struct text_store *store, const struct text_key *key,
                               const char *text, size_t bytes, size_t *ret_count);
/* Puts a copy, and lets go of as much as it needs. Does nothing when it is there already, or when
 * it alone would take more than a quarter of the budget. */
void text_store_put(struct text_store *store, const struct text_key *key, const char *text,
                    size_t bytes, const uint32_t *ids, size_t count);
/* All memory, the table and the nodes included. */
size_t text_store_bytes(const struct text_store *store);
size_t text_store_entries(const struct text_store *store);
uint64_t text_store_evictions(const struct text_store *store);
/* For tests: recounts everything and asserts. */
void text_store_check(const struct text_store *store);

#endif
