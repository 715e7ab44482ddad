/* bpe.c - byte-level BPE (Sennrich, Haddow, Birch 2016; over bytes as in GPT-2).
 *
 * A word starts as one token per byte; merge.c then joins pairs by rank. Ranks come from
 *   merges     the card's list, rank = position in it
 *   ids        a card without merges (tiktoken files): a pair may merge when the joined bytes are a
 *              token, and that token's id is the rank; a word that is a token is taken whole
 *
 * A word that is itself in the vocabulary nearly always merges into that one token, but not by law.
 * So the first time it is merged and the outcome noted per token (`whole`); after that it is one
 * look-up. With ignore_merges the model's own rule is to take it whole, always.
 *
 * Invariant: no control token comes out, because vocabulary_find knows none and merges that would
 * make one are left out.
 * Cost: about 25 ns a byte when merged, one hash and a look-up when known whole. */
#include "router/text/bpe.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/merge.h"
#include "router/text/trie.h"

#define MERGE_TEXT_MAX 4096 /* bytes of one line of the merge list */

#define FILTER_BITS 21 /* 256 KiB; 7 of 100 pairs that are none get past it with 150,000 merges */

/* One merge, or rank MERGE_RANK_NONE. */
struct pair_value {
    uint32_t rank, id;
};

enum whole { WHOLE_UNKNOWN = 0, WHOLE_YES, WHOLE_NO };

struct bpe {
    const struct vocabulary *vocabulary;
    bool ignore_merges;
    bool ranks_are_ids;
    struct pair_map merges;
    struct pair_value *byte_pairs; /* [left byte << 8 | right byte]; NULL with ranks_are_ids */
    uint64_t *filter;              /* a bit per hashed pair: most pairs of neighbours never merge */
    struct merge merge;
    uint8_t *whole; /* enum whole, per token */
};

static uint32_t find_bytes(const struct vocabulary *vocabulary, const char *text, size_t bytes)
{
    if (bytes == 0 || bytes > vocabulary->token_bytes_max)
        return TOKEN_ID_NONE;
    return vocabulary_find(vocabulary, text, bytes, vocabulary_hash(text, bytes));
}

/* One side of a merge, or what it makes. Trained vocabularies number tokens in the order of their
 * merges, so `guess`, the id after the last one made, is nearly always right for the latter. */
static uint32_t find_part(const struct vocabulary *vocabulary, const char *text, size_t bytes,
                          uint32_t guess)
{
    if (bytes == 1 && vocabulary->card->tokenizer == TOKENIZER_BPE &&
        vocabulary->byte_ids[(unsigned char)text[0]] != TOKEN_ID_NONE)
        return vocabulary->byte_ids[(unsigned char)text[0]];
    if (guess < vocabulary->count && vocabulary->card->token_types[guess] == TOKEN_NORMAL) {
        size_t known_bytes = 0;
        const char *known = vocabulary_text(vocabulary, guess, &known_bytes);
        if (known_bytes == bytes && memcmp(known, text, bytes) == 0)
            return guess;
    }
    return find_bytes(vocabulary, text, bytes);
}

/* All tokens by text, for merges whose parts are not found because no merging may make them. Made
 * when the first such merge is met. */
struct all_texts {
    struct trie trie;
    bool made;
};

static bool is_known_text(const struct vocabulary *vocabulary, struct all_texts *texts,
                          const char *text, size_t bytes)
{
    uint32_t id = 0;
    for (; !texts->made && id < vocabulary->count; id++) {
        size_t known_bytes = 0;
        const char *known = vocabulary_text(vocabulary, id, &known_bytes);
        if (known_bytes > 0)
            trie_add(&texts->trie, known, known_bytes, id);
    }
    texts->made = true;
    return trie_longest(&texts->trie, text, bytes, &id) == bytes;
}

/* One line "left right" into the map. */
static int load_merge(const struct vocabulary *vocabulary, uint32_t rank, struct pair_map *map,
                      uint32_t *last_id, struct all_texts *texts, struct errmsg *err)
{
    char joined[MERGE_TEXT_MAX];
    size_t count = 0;
    bool is_new = false;
    const char *line = string_table_get(&vocabulary->card->merges, rank, &count);
    const char *space = count < 3 ? NULL : memchr(line + 1, ' ', count - 2);
    if (space == NULL || count > MERGE_TEXT_MAX)
        return errmsg_set(err, -EINVAL, "merge %u is not two tokens with a space between", rank);
    size_t left_count = (size_t)(space - line);
    size_t left = vocabulary_decode(vocabulary, TOKEN_NORMAL, line, left_count, joined);
    size_t right = vocabulary_decode(vocabulary, TOKEN_NORMAL, space + 1, count - left_count - 1,
                                     joined + left);
    uint32_t left_id = find_part(vocabulary, joined, left, TOKEN_ID_NONE);
    uint32_t right_id = find_part(vocabulary, joined + left, right, TOKEN_ID_NONE);
    uint32_t merged_id = find_part(vocabulary, joined, left + right, *last_id + 1);
    if (left_id == TOKEN_ID_NONE || right_id == TOKEN_ID_NONE || merged_id == TOKEN_ID_NONE) {
        if (is_known_text(vocabulary, texts, joined, left) &&
            is_known_text(vocabulary, texts, joined + left, right) &&
            is_known_text(vocabulary, texts, joined, left + right))
            return 0; /* a control token would take part */
        return errmsg_set(err, -EINVAL, "merge %u joins or makes a token that does not exist",
                          rank);
    }
    struct pair_entry *entry = pair_map_add(map, pair_key(left_id, right_id), &is_new);
    if (is_new) {
        entry->first = rank;
        entry->second = merged_id;
    }
    *last_id = merged_id;
    return 0;
}

int bpe_load_merges(const struct vocabulary *vocabulary, struct pair_map *map, struct errmsg *err)
{
    struct pair_map loaded;
    uint32_t count = vocabulary->card->merges.count, last_id = 0;
    struct all_texts texts = {.made = false};
    int r = 0;
    pair_map_init(&loaded, count);
    trie_init(&texts.trie, 0);
    for (uint32_t rank = 0; rank < count && r == 0; rank++)
        r = load_merge(vocabulary, rank, &loaded, &last_id, &texts, err);
    trie_done(&texts.trie);
    if (r < 0)
        pair_map_done(&loaded);
    else
        *map = loaded;
    return r;
}

static uint32_t filter_bit(uint64_t key)
{
    return (uint32_t)((key * UINT64_C(0xd6e8feb86659fd93)) >> (64 - FILTER_BITS));
}

/* The two first look-ups keep most questions within the second-level cache; the map itself does not
 * fit there. Byte pairs are the first n of some 2 n questions of a word of n bytes. */
static bool pair_by_merges(const void *model, const char *text, const struct merge_symbol *left,
                           const struct merge_symbol *right, uint32_t *ret_rank, uint32_t *ret_id)
{
    const struct bpe *bpe = model;
    if (left->bytes + right->bytes == 2) {
        const unsigned char *bytes = (const unsigned char *)text;
        const struct pair_value *value =
            &bpe->byte_pairs[(uint32_t)bytes[left->start] << 8 | bytes[right->start]];
        *ret_rank = value->rank;
        *ret_id = value->id;
        return value->rank != MERGE_RANK_NONE;
    }
    uint64_t key = pair_key(left->id, right->id);
    uint32_t bit = filter_bit(key);
    if ((bpe->filter[bit / 64] >> bit % 64 & 1) == 0)
        return false;
    const struct pair_entry *entry = pair_map_find(&bpe->merges, key);
    if (entry == NULL)
        return false;
    *ret_rank = entry->first;
    *ret_id = entry->second;
    return true;
}

/* What pair_by_merges asks before the map. */
static void make_short_cuts(struct bpe *bpe)
{
    bpe->byte_pairs = mem_alloc(65536 * sizeof(*bpe->byte_pairs));
    memset(bpe->byte_pairs, 0xff, 65536 * sizeof(*bpe->byte_pairs));
    bpe->filter = mem_zalloc((1u << FILTER_BITS) / 8);
    for (size_t i = 0; i < bpe->merges.slots; i++) {
        const struct pair_entry *entry = &bpe->merges.entries[i];
        size_t left_bytes = 0, right_bytes = 0;
        if (entry->key == PAIR_MAP_EMPTY)
            continue;
        uint32_t bit = filter_bit(entry->key), left_id = (uint32_t)(entry->key >> 32);
        bpe->filter[bit / 64] |= UINT64_C(1) << bit % 64;
        const char *left = vocabulary_text(bpe->vocabulary, left_id, &left_bytes);
        const char *right = vocabulary_text(bpe->vocabulary, (uint32_t)entry->key, &right_bytes);
        if (left_bytes == 1 && right_bytes == 1)
            bpe->byte_pairs[(uint32_t)(unsigned char)left[0] << 8 | (unsigned char)right[0]] =
                (struct pair_value){entry->first, entry->second};
    }
}

static bool pair_by_ids(const void *model, const char *text, const struct merge_symbol *left,
                        const struct merge_symbol *right, uint32_t *ret_rank, uint32_t *ret_id)
{
    const struct bpe *bpe = model;
    uint32_t id = find_bytes(bpe->vocabulary, text + left->start, left->bytes + right->bytes);
    *ret_rank = id;
    *ret_id = id;
    return id != TOKEN_ID_NONE;
}

int bpe_new(const struct vocabulary *vocabulary, bool ignore_merges, struct bpe **ret_bpe,
            struct errmsg *err)
{
    struct bpe *bpe = mem_zalloc(sizeof(*bpe));
    bpe->vocabulary = vocabulary;
    bpe->ranks_are_ids = vocabulary->card->merges.count == 0;
    bpe->ignore_merges = ignore_merges || bpe->ranks_are_ids;
    if (!bpe->ranks_are_ids) {
        int r = bpe_load_merges(vocabulary, &bpe->merges, err);
        if (r < 0) {
            mem_free(bpe);
            return r;
        }
        make_short_cuts(bpe);
    }
    merge_init(&bpe->merge, bpe, bpe->ranks_are_ids ? pair_by_ids : pair_by_merges);
    bpe->whole = mem_zalloc(vocabulary->count);
    *ret_bpe = bpe;
    return 0;
}

void bpe_free(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    merge_done(&bpe->merge);
    pair_map_done(&bpe->merges);
    mem_free(bpe->byte_pairs);
    mem_free(bpe->filter);
    mem_free(bpe->whole);
    mem_free(bpe);
}

/* A byte that has no token is left out, as the Python stack does it. Not `unk`: in many files that
 * is the id of the end-of-text token, and a user's control character must not turn into one. */
static size_t split_bytes(struct bpe *bpe, const char *word, size_t bytes)
{
    struct merge_symbol *symbols = merge_symbols(&bpe->merge, bytes);
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t id = bpe->vocabulary->byte_ids[(unsigned char)word[i]];
        if (id == TOKEN_ID_NONE)
            continue;
        symbols[count++] = (struct merge_symbol){.start = (uint32_t)i, .bytes = 1, .id = id};
    }
    return count;
}

int bpe_word(struct bpe *bpe, const char *word, size_t bytes, uint64_t hash, struct token_ids *out)
{
    uint32_t known = TOKEN_ID_NONE;
    ASSERT(bytes > 0 && bytes < MERGE_END);
    if (bytes <= bpe->vocabulary->token_bytes_max)
        known = vocabulary_find(bpe->vocabulary, word, bytes, hash);
    if (known != TOKEN_ID_NONE && (bpe->ignore_merges || bpe->whole[known] == WHOLE_YES))
        return token_ids_add(out, known);
    size_t count = split_bytes(bpe, word, bytes);
    if (count == 0)
        return 0;
    merge_run(&bpe->merge, word, count);
    const struct merge_symbol *symbols = bpe->merge.symbols;
    if (known != TOKEN_ID_NONE)
        bpe->whole[known] =
            symbols[0].next == MERGE_END && symbols[0].id == known ? WHOLE_YES : WHOLE_NO;
    for (uint32_t at = 0; at != MERGE_END; at = symbols[at].next) {
        int r = token_ids_add(out, symbols[at].id);
        if (r < 0)
            return r;
    }
    return 0;
}

uint64_t bpe_work(const struct bpe *bpe)
{
    return bpe->merge.work;
}
