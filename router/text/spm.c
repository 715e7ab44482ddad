/* spm.c - SentencePiece BPE (Kudo and Richardson 2018): characters, joined by score or by rank.
 *
 * A word starts as one symbol per character; merge.c joins pairs, of equal rank the leftmost first:
 *   scores   a pair may merge when its text is a token; the higher that token's score the earlier.
 *            Files without scores of their own have -id, which amounts to the order of training.
 *   merges   a card with a merge list (from a tokenizer.json) and no scores: rank = position
 * A character that is no token is written as its bytes' tokens <0xXX>.
 *
 * Invariant: control, unknown and byte tokens are not found by text (vocabulary.c), so "</s>" or
 * "<0x0A>" written by a user stays text.
 * Cost: about 60 ns a byte for what the word cache does not know. */
#include "router/text/spm.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/bpe.h"
#include "router/text/merge.h"
#include "router/text/pair_map.h"
#include "router/text/unicode.h"

struct spm {
    const struct vocabulary *vocabulary;
    struct pair_map merges; /* entries NULL: by score */
    bool ignore_merges;     /* a whole word found in the vocabulary is taken directly */
    struct merge merge;
};

static uint32_t find(const struct vocabulary *vocabulary, const char *text, size_t bytes)
{
    if (bytes > vocabulary->token_bytes_max)
        return TOKEN_ID_NONE;
    return vocabulary_find(vocabulary, text, bytes, vocabulary_hash(text, bytes));
}

/* Order-preserving: the higher the score, the lower the rank. */
static uint32_t score_rank(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are one score */
    memcpy(&bits, &score, sizeof(bits));
    uint32_t rising = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    ASSERT(rising != 0); /* would be a NaN, which the card's check refused */
    return ~rising;
}

static bool pair_by_score(const void *model, const char *text, const struct merge_symbol *left,
                          const struct merge_symbol *right, uint32_t *ret_rank, uint32_t *ret_id)
{
    const struct spm *spm = model;
    uint32_t id = find(spm->vocabulary, text + left->start, left->bytes + right->bytes);
    if (id == TOKEN_ID_NONE)
        return false;
    *ret_rank = score_rank(spm->vocabulary->card->scores[id]);
    *ret_id = id;
    return true;
}

static bool pair_by_merges(const void *model, const char *text, const struct merge_symbol *left,
                           const struct merge_symbol *right, uint32_t *ret_rank, uint32_t *ret_id)
{
    const struct spm *spm = model;
    if (left->id == TOKEN_ID_NONE || right->id == TOKEN_ID_NONE)
        return false;
    const struct pair_entry *entry = pair_map_find(&spm->merges, pair_key(left->id, right->id));
    if (entry == NULL)
        return false;
    *ret_rank = entry->first;
    *ret_id = entry->second;
    return true;
}

int spm_new(const struct vocabulary *vocabulary, struct spm **ret_spm, struct errmsg *err)
{
    const struct model_card *card = vocabulary->card;
    if (card->scores == NULL && card->merges.count == 0)
        return errmsg_set(err, -EINVAL, "SentencePiece vocabulary without scores or merges");
    struct spm *spm = mem_zalloc(sizeof(*spm));
    spm->vocabulary = vocabulary;
    spm->ignore_merges = card->ignore_merges;
    if (card->merges.count > 0) {
        int r = bpe_load_merges(vocabulary, &spm->merges, err);
        if (r < 0) {
            mem_free(spm);
            return r;
        }
    }
    merge_init(&spm->merge, spm, card->merges.count > 0 ? pair_by_merges : pair_by_score);
    *ret_spm = spm;
    return 0;
}

void spm_free(struct spm *spm)
{
    if (spm == NULL)
        return;
    merge_done(&spm->merge);
    pair_map_done(&spm->merges);
    mem_free(spm);
}

int spm_add_unknown(const struct vocabulary *vocabulary, const char *text, size_t bytes,
                    bool *unknown, struct token_ids *out)
{
    int r = 0;
    bool all = true;
    for (size_t i = 0; i < bytes; i++)
        all = all && vocabulary->byte_ids[(unsigned char)text[i]] != TOKEN_ID_NONE;
    for (size_t i = 0; all && r == 0 && i < bytes; i++)
        r = token_ids_add(out, vocabulary->byte_ids[(unsigned char)text[i]]);
    if (!all && !(*unknown && vocabulary->card->fuse_unk) && vocabulary->card->unk != TOKEN_ID_NONE)
        r = token_ids_add(out, vocabulary->card->unk);
    *unknown = !all;
    return r;
}

static size_t split_characters(struct spm *spm, const char *word, size_t bytes)
{
    struct merge_symbol *symbols = merge_symbols(&spm->merge, bytes);
    size_t count = 0;
    for (size_t at = 0; at < bytes; count++) {
        uint32_t length = 0;
        (void)utf8_decode(word + at, &length);
        symbols[count] = (struct merge_symbol){
            .start = (uint32_t)at, .bytes = length, .id = find(spm->vocabulary, word + at, length)};
        at += length;
    }
    return count;
}

int spm_word(struct spm *spm, const char *word, size_t bytes, struct token_ids *out)
{
    bool unknown = false;
    ASSERT(bytes > 0 && bytes < MERGE_END);
    if (spm->ignore_merges) {
        uint32_t whole = find(spm->vocabulary, word, bytes);
        if (whole != TOKEN_ID_NONE)
            return token_ids_add(out, whole);
    }
    merge_run(&spm->merge, word, split_characters(spm, word, bytes));
    const struct merge_symbol *symbols = spm->merge.symbols;
    for (uint32_t at = 0; at != MERGE_END; at = symbols[at].next) {
        int r = 0;
        if (symbols[at].id == TOKEN_ID_NONE) {
            r = spm_add_unknown(spm->vocabulary, word + symbols[at].start, symbols[at].bytes,
                                &unknown, out);
        } else {
            r = token_ids_add(out, symbols[at].id);
            unknown = false;
        }
        if (r < 0)
            return r;
    }
    return 0;
}

uint64_t spm_work(const struct spm *spm)
{
    return spm->merge.work;
}
