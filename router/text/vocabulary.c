/* vocabulary.c - decodes every token once and hashes those that ordinary text can become.
 *
 * How tokens are stored depends on the model: proto/token_text.h. Everything behind this file works
 * on plain bytes; a literal U+2581 in text equals a space.
 *
 * Why an own hash: the tokens' bytes lie back to back anyway, so a slot needs 8 bytes and no key.
 * Cost: one pass at start, about 60 ns a token. */
#include "router/text/vocabulary.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/token_text.h"

size_t vocabulary_decode(const struct vocabulary *vocabulary, enum token_type type,
                         const char *stored, size_t count, char *ret_bytes)
{
    return token_text_decode(vocabulary->card->tokenizer, type, stored, count, ret_bytes);
}

static void decode_all(struct vocabulary *vocabulary)
{
    const struct string_table *tokens = &vocabulary->card->tokens;
    uint32_t used = 0;
    vocabulary->offsets = mem_alloc(((size_t)vocabulary->count + 1) * sizeof(uint32_t));
    vocabulary->bytes = mem_alloc((size_t)tokens->offsets[tokens->count] + 1);
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t count = 0;
        const char *stored = string_table_get(tokens, id, &count);
        vocabulary->offsets[id] = used;
        if (count > 0)
            used += (uint32_t)vocabulary_decode(vocabulary,
                                                (enum token_type)vocabulary->card->token_types[id],
                                                stored, count, vocabulary->bytes + used);
    }
    vocabulary->offsets[vocabulary->count] = used;
}

/* Can text become this token by merging (or by Viterbi)? */
static bool is_reachable(const struct vocabulary *vocabulary, uint32_t id)
{
    const uint8_t *flags = vocabulary->card->token_flags;
    if (flags != NULL && (flags[id] & TOKEN_NO_PIECE) != 0)
        return false;
    switch (vocabulary->card->token_types[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        return false;
    case TOKEN_BYTE: /* the text "<0x0A>" is not the token <0x0A> */
        return vocabulary->card->tokenizer == TOKENIZER_BPE;
    default:
        return true;
    }
}

static bool has_space_after_other(const char *text, size_t bytes)
{
    for (size_t i = 1; i < bytes; i++) {
        if (text[i] == ' ' && text[i - 1] != ' ')
            return true;
    }
    return false;
}

static void hash_all(struct vocabulary *vocabulary)
{
    uint32_t slots = 64;
    while (slots < vocabulary->count * 2)
        slots *= 2;
    vocabulary->slots_mask = slots - 1;
    vocabulary->slots = mem_alloc(slots * sizeof(*vocabulary->slots));
    memset(vocabulary->slots, 0xff, slots * sizeof(*vocabulary->slots));
    vocabulary->space_starts_words = true;
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t bytes = 0;
        const char *text = vocabulary_text(vocabulary, id, &bytes);
        if (bytes == 0 || !is_reachable(vocabulary, id))
            continue;
        uint64_t hash = vocabulary_hash(text, bytes);
        if (vocabulary_find(vocabulary, text, bytes, hash) != TOKEN_ID_NONE)
            continue; /* the same bytes twice: the first id is the one */
        uint32_t at = (uint32_t)hash & vocabulary->slots_mask;
        while (vocabulary->slots[at].id != TOKEN_ID_NONE)
            at = (at + 1) & vocabulary->slots_mask;
        vocabulary->slots[at] = (struct vocabulary_slot){.tag = (uint32_t)(hash >> 32), .id = id};
        if (bytes > vocabulary->token_bytes_max)
            vocabulary->token_bytes_max = (uint32_t)bytes;
        if (has_space_after_other(text, bytes))
            vocabulary->space_starts_words = false;
    }
}

static void find_bytes(struct vocabulary *vocabulary)
{
    memset(vocabulary->byte_ids, 0xff, sizeof(vocabulary->byte_ids));
    for (uint32_t id = vocabulary->count; id-- > 0;) { /* backwards: the first id stays */
        size_t bytes = 0;
        const unsigned char *text = (const void *)vocabulary_text(vocabulary, id, &bytes);
        bool is_byte = vocabulary->card->token_types[id] == TOKEN_BYTE;
        if (vocabulary->card->tokenizer == TOKENIZER_BPE)
            is_byte = is_reachable(vocabulary, id) &&
                      vocabulary->card->token_types[id] != TOKEN_USER_DEFINED;
        if (bytes == 1 && is_byte)
            vocabulary->byte_ids[text[0]] = id;
    }
}

struct vocabulary *vocabulary_new(const struct model_card *card)
{
    struct vocabulary *vocabulary = mem_zalloc(sizeof(*vocabulary));
    vocabulary->card = card;
    vocabulary->count = card->tokens.count;
    decode_all(vocabulary);
    hash_all(vocabulary);
    find_bytes(vocabulary);
    return vocabulary;
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    if (vocabulary == NULL)
        return;
    mem_free(vocabulary->offsets);
    mem_free(vocabulary->bytes);
    mem_free(vocabulary->slots);
    mem_free(vocabulary);
}

uint32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t bytes,
                         uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    uint32_t at = (uint32_t)hash & vocabulary->slots_mask;
    for (;; at = (at + 1) & vocabulary->slots_mask) {
        const struct vocabulary_slot *slot = &vocabulary->slots[at];
        if (slot->id == TOKEN_ID_NONE)
            return TOKEN_ID_NONE;
        if (slot->tag != tag)
            continue;
        size_t known_bytes = 0;
        const char *known = vocabulary_text(vocabulary, slot->id, &known_bytes);
        if (known_bytes == bytes && memcmp(known, text, bytes) == 0)
            return slot->id;
    }
}
