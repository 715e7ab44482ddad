/* vocabulary.h - token id <-> the bytes it stands for.
 *
 * Ownership: reads the card's tables, which must outlive it. Immutable. */
#ifndef REFRAIN_ROUTER_TEXT_VOCABULARY_H
#define REFRAIN_ROUTER_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL /* most words are short: the call would cost as much as the hash */
#include <xxhash.h>

#include "proto/model_card.h"

struct vocabulary_slot {
    uint32_t tag; /* upper half of the hash */
    uint32_t id;  /* TOKEN_ID_NONE: empty */
};

struct vocabulary {
    const struct model_card *card;
    uint32_t count;
    uint32_t *offsets;        /* count + 1, into bytes */
    char *bytes;              /* decoded: byte alphabet and U+2581 resolved */
    uint32_t token_bytes_max; /* longest token that text can become */
    uint32_t byte_ids[256];   /* the token of one byte, or TOKEN_ID_NONE */
    bool space_starts_words;  /* no token has a space after something else */
    struct vocabulary_slot *slots;
    uint32_t slots_mask;
};

struct vocabulary *vocabulary_new(const struct model_card *card);
void vocabulary_free(struct vocabulary *vocabulary);

/* Text of a token or of one side of a merge as stored -> bytes; ret_bytes has room for `count`
 * bytes, the result is never longer. Returns its length. */
size_t vocabulary_decode(const struct vocabulary *vocabulary, enum token_type type,
                         const char *stored, size_t count, char *ret_bytes);

static inline const char *vocabulary_text(const struct vocabulary *vocabulary, uint32_t id,
                                          size_t *ret_bytes)
{
    *ret_bytes = vocabulary->offsets[id + 1] - vocabulary->offsets[id];
    return vocabulary->bytes + vocabulary->offsets[id];
}

static inline uint64_t vocabulary_hash(const char *text, size_t bytes)
{
    return XXH3_64bits(text, bytes);
}

/* The token that these bytes may become by merging, or TOKEN_ID_NONE. Never a control token, so
 * that no text of a user can turn into one. `hash` is vocabulary_hash of the same bytes. */
uint32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t bytes,
                         uint64_t hash);

#endif
