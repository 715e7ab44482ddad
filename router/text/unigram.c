/* unigram.c - Viterbi over a trie (Kudo 2018, "Subword regularization").
 *
 *   best[i] = the best score of any way to write word[0..i); one pass, each position tries every
 *   token that begins there. Ties go to the way found first, that is with the longest last token.
 *
 * A character that is no token by itself may be written as "unknown", ten below the worst score;
 * runs of such characters become one `unk`, or byte tokens where the vocabulary has them. What is
 * not here: SentencePiece's precompiled character map (NFKC and friends) is not on the card. Cost:
 * one hash probe per byte and token that may begin there. */
#include "router/text/unigram.h"

#include <errno.h>
#include <math.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/pair_map.h"
#include "router/text/spm.h"
#include "router/text/unicode.h"

#define UNKNOWN_PENALTY 10.0f
#define CELLS_KEPT 65536

/* How the best way ends at this byte. */
struct cell {
    float score;
    uint32_t start; /* of its last token */
    uint32_t id;    /* TOKEN_ID_NONE: unknown */
};

struct unigram {
    const struct vocabulary *vocabulary;
    struct pair_map edges; /* (node << 8 | byte) -> first: node below, second: id + 1 or 0 */
    float unknown_score;
    struct cell *cells;
    size_t cells_max;
};

static void insert(struct unigram *unigram, uint32_t id, uint32_t *nodes)
{
    size_t bytes = 0;
    const unsigned char *text = (const void *)vocabulary_text(unigram->vocabulary, id, &bytes);
    uint32_t node = 0;
    if (utf8_valid_bytes((const char *)text, bytes) != bytes)
        return; /* would end inside a character */
    for (size_t i = 0; i < bytes; i++) {
        bool is_new = false;
        struct pair_entry *edge =
            pair_map_add(&unigram->edges, (uint64_t)node << 8 | text[i], &is_new);
        if (is_new)
            edge->first = (*nodes)++;
        node = edge->first;
        if (i + 1 == bytes && edge->second == 0)
            edge->second = id + 1;
    }
}

int unigram_new(const struct vocabulary *vocabulary, struct unigram **ret_unigram,
                struct errmsg *err)
{
    const struct model_card *card = vocabulary->card;
    uint32_t nodes = 1;
    float worst = 0;
    if (card->scores == NULL)
        return errmsg_set(err, -EINVAL, "unigram vocabulary without scores");
    struct unigram *unigram = mem_zalloc(sizeof(*unigram));
    unigram->vocabulary = vocabulary;
    pair_map_init(&unigram->edges, vocabulary->count);
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        uint8_t type = card->token_types[id];
        if (type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED) {
            insert(unigram, id, &nodes);
            worst = card->scores[id] < worst ? card->scores[id] : worst;
        }
    }
    unigram->unknown_score = worst - UNKNOWN_PENALTY;
    *ret_unigram = unigram;
    return 0;
}

void unigram_free(struct unigram *unigram)
{
    if (unigram == NULL)
        return;
    pair_map_done(&unigram->edges);
    mem_free(unigram->cells);
    mem_free(unigram);
}

static struct cell *make_cells(struct unigram *unigram, size_t count)
{
    if (count > unigram->cells_max || (unigram->cells_max > CELLS_KEPT && count < CELLS_KEPT)) {
        mem_free(unigram->cells);
        unigram->cells_max = count < 64 ? 64 : count;
        unigram->cells = mem_alloc(unigram->cells_max * sizeof(*unigram->cells));
    }
    for (size_t i = 0; i < count; i++)
        unigram->cells[i] = (struct cell){.score = -INFINITY, .id = TOKEN_ID_NONE};
    unigram->cells[0].score = 0;
    return unigram->cells;
}

static void offer(struct cell *cell, float score, size_t start, uint32_t id)
{
    if (score > cell->score)
        *cell = (struct cell){.score = score, .start = (uint32_t)start, .id = id};
}

static void forward(const struct unigram *unigram, struct cell *cells, const char *word,
                    size_t bytes)
{
    const float *scores = unigram->vocabulary->card->scores;
    uint32_t length = 0;
    for (size_t start = 0; start < bytes; start += length) {
        bool alone = false; /* is the character at `start` a token by itself? */
        uint32_t node = 0;
        (void)utf8_decode(word + start, &length);
        for (size_t at = start; at < bytes; at++) {
            const struct pair_entry *edge =
                pair_map_find(&unigram->edges, (uint64_t)node << 8 | (unsigned char)word[at]);
            if (edge == NULL)
                break;
            node = edge->first;
            if (edge->second == 0)
                continue;
            offer(&cells[at + 1], cells[start].score + scores[edge->second - 1], start,
                  edge->second - 1);
            alone = alone || at + 1 == start + length;
        }
        if (!alone)
            offer(&cells[start + length], cells[start].score + unigram->unknown_score, start,
                  TOKEN_ID_NONE);
    }
}

int unigram_word(struct unigram *unigram, const char *word, size_t bytes, struct token_ids *out)
{
    bool unknown = false;
    ASSERT(bytes > 0 && bytes < UINT32_MAX);
    struct cell *cells = make_cells(unigram, bytes + 1);
    forward(unigram, cells, word, bytes);
    /* Turn the way around: each cell's start becomes the link to the next token's end. */
    size_t end = bytes, next_end = 0;
    while (end > 0) {
        size_t start = cells[end].start;
        ASSERT(start < end);
        cells[end].start = (uint32_t)next_end;
        next_end = end;
        end = start;
    }
    for (size_t start = 0; start < bytes; start = next_end, next_end = cells[start].start) {
        int r = 0;
        if (cells[next_end].id == TOKEN_ID_NONE) {
            r = spm_add_unknown(unigram->vocabulary, word + start, next_end - start, &unknown, out);
        } else {
            r = token_ids_add(out, cells[next_end].id);
            unknown = false;
        }
        if (r < 0)
            return r;
    }
    return 0;
}
