/* vocabulary.c - decodes every token once and hashes those that ordinary text can become.
 *
 * How tokens are stored depends on the model:
 *   byte-level BPE   a byte is written as one printable character (GPT-2's byte alphabet: the 188
 *                    printable Latin-1 characters stand for themselves, the other 68 bytes for
 *                    U+0100 and up, in order)
 *   SentencePiece    a space is U+2581, an unknown byte is <0xXX>
 *   control, user-defined, unknown tokens: their literal text
 * Everything behind this file works on plain bytes; a literal U+2581 in text equals a space.
 *
 * Why an own hash: the tokens' bytes lie back to back anyway, so a slot needs 8 bytes and no key.
 * Cost: one pass at start, about 60 ns a token. */
#include "router/text/vocabulary.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define ALPHABET_END 0x144u /* one past the last code point of the byte alphabet */

static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The byte of a code point of the byte alphabet, or -1. */
static int alphabet_byte(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    if (cp >= ALPHABET_END)
        return -1;
    uint32_t n = cp - 0x100; /* the n-th byte that does not stand for itself: 0-20, 7f-a0, ad */
    return n <= 0x20 ? (int)n : n <= 0x42 ? (int)(n - 0x21 + 0x7f) : 0xad;
}

/* False: not in the byte alphabet, nothing is promised about ret_bytes. The alphabet ends below
 * U+0144, so its characters have one or two bytes. */
static bool decode_alphabet(const char *stored, size_t count, char *ret_bytes, size_t *ret_count)
{
    size_t out = 0;
    for (size_t at = 0; at < count; at++) {
        uint32_t cp = (unsigned char)stored[at];
        if (cp >= 0x80) {
            if (cp < 0xc2 || cp > 0xc5 || at + 1 == count ||
                ((unsigned char)stored[at + 1] >> 6) != 2)
                return false;
            cp = (cp & 0x1f) << 6 | ((unsigned char)stored[++at] & 0x3f);
        }
        int byte = alphabet_byte(cp);
        if (byte < 0)
            return false;
        ret_bytes[out++] = (char)byte;
    }
    *ret_count = out;
    return true;
}

static size_t decode_spaces(const char *stored, size_t count, char *ret_bytes)
{
    size_t out = 0;
    for (size_t at = 0; at < count;) {
        if (count - at >= 3 && memcmp(stored + at, "\xe2\x96\x81", 3) == 0) {
            ret_bytes[out++] = ' ';
            at += 3;
        } else {
            ret_bytes[out++] = stored[at++];
        }
    }
    return out;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "<0xE2>" -> 0xe2, or -1. */
static int decode_byte_token(const char *stored, size_t count)
{
    if (count != 6 || memcmp(stored, "<0x", 3) != 0 || stored[5] != '>')
        return -1;
    int high = hex_digit(stored[3]), low = hex_digit(stored[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

size_t vocabulary_decode(const struct vocabulary *vocabulary, enum token_type type,
                         const char *stored, size_t count, char *ret_bytes)
{
    bool byte_level = vocabulary->card->tokenizer == TOKENIZER_BPE;
    size_t out = 0;
    if (type == TOKEN_BYTE && decode_byte_token(stored, count) >= 0) {
        ret_bytes[0] = (char)decode_byte_token(stored, count);
        return 1;
    }
    if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN ||
        (type == TOKEN_USER_DEFINED && byte_level)) {
        memcpy(ret_bytes, stored, count);
        return count;
    }
    if (!byte_level)
        return decode_spaces(stored, count, ret_bytes);
    if (!decode_alphabet(stored, count, ret_bytes, &out)) {
        memcpy(ret_bytes, stored, count);
        return count;
    }
    return out;
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
