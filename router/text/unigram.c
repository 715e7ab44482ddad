/* unigram.c - Viterbi over a trie (Kudo 2018, "Subword regularization").
 *
 *   best[i] = the best score of any way to write word[0..i); one pass, each position tries every
 *   token that begins there. Ties go to the way found first, that is with the longest last token.
 *
 * A character that is no token by itself may be written as "unknown", ten below the worst score;
 * runs of such characters become one `unk`, or byte tokens where the vocabulary has them.
 *
 * Sums as the model's own library makes them, because near ties are decided by rounding: the
 * tokenizers library adds in double, SentencePiece in float, with a reset so that long texts keep
 * their precision. In a SentencePiece model user-defined pieces score above all others.
 * Cost: one hash probe per byte and token that may begin there. */
#include "router/text/unigram.h"

#include <errno.h>
#include <math.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/spm.h"
#include "router/text/trie.h"
#include "router/text/unicode.h"

#define UNKNOWN_PENALTY 10.0
#define USER_DEFINED_BONUS 0.1 /* SentencePiece: for each byte of a user-defined piece but one */
#define RESET_SCORE 100000.0   /* SentencePiece: sums past this begin at 0 again */
#define CELLS_KEPT 65536

/* How the best way ends at this byte. */
struct cell {
    double score;
    uint32_t start; /* of its last token */
    uint32_t id;    /* TOKEN_ID_NONE: unknown */
};

struct unigram {
    const struct vocabulary *vocabulary;
    struct trie trie;
    bool narrow; /* sums are kept in float */
    double unknown_score;
    struct cell *cells;
    size_t cells_max;
    uint64_t work;
};

static double score_of(const struct model_card *card, uint32_t id)
{
    return card->wide_scores != NULL ? card->wide_scores[id] : (double)card->scores[id];
}

/* Is it one of the pieces that text is made of? */
static bool is_piece(const struct model_card *card, uint32_t id)
{
    uint8_t type = card->token_types[id];
    if (card->token_flags != NULL && (card->token_flags[id] & TOKEN_NO_PIECE) != 0)
        return false;
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED;
}

/* The tokenizers library looks at every entry for the worst score, SentencePiece at normal pieces.
 */
static bool counts_for_worst(const struct model_card *card, uint32_t id)
{
    return card->double_sums
               ? card->token_flags == NULL || (card->token_flags[id] & TOKEN_NO_PIECE) == 0
               : card->token_types[id] == TOKEN_NORMAL;
}

static double narrowed(const struct unigram *unigram, double score)
{
    return unigram->narrow ? (double)(float)score : score;
}

int unigram_new(const struct vocabulary *vocabulary, struct unigram **ret_unigram,
                struct errmsg *err)
{
    const struct model_card *card = vocabulary->card;
    double worst = INFINITY;
    if (card->scores == NULL)
        return errmsg_set(err, -EINVAL, "unigram vocabulary without scores");
    struct unigram *unigram = mem_zalloc(sizeof(*unigram));
    unigram->vocabulary = vocabulary;
    unigram->narrow = !card->double_sums;
    trie_init(&unigram->trie, vocabulary->count);
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t bytes = 0;
        const char *text = vocabulary_text(vocabulary, id, &bytes);
        if (is_piece(card, id) && bytes > 0 && utf8_valid_bytes(text, bytes) == bytes)
            trie_add(&unigram->trie, text, bytes, id);
        if (counts_for_worst(card, id))
            worst = fmin(worst, score_of(card, id));
    }
    if (isinf(worst))
        worst = 0;
    unigram->unknown_score = narrowed(unigram, worst - UNKNOWN_PENALTY);
    *ret_unigram = unigram;
    return 0;
}

void unigram_free(struct unigram *unigram)
{
    if (unigram == NULL)
        return;
    trie_done(&unigram->trie);
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

static void offer(const struct unigram *unigram, struct cell *cell, double score, size_t start,
                  uint32_t id)
{
    score = narrowed(unigram, score);
    if (score > cell->score)
        *cell = (struct cell){.score = score, .start = (uint32_t)start, .id = id};
}

static double piece_score(const struct unigram *unigram, uint32_t id, size_t bytes)
{
    const struct model_card *card = unigram->vocabulary->card;
    if (card->sentencepiece && card->token_types[id] == TOKEN_USER_DEFINED)
        return (double)(float)(USER_DEFINED_BONUS * (double)(bytes - 1));
    return score_of(card, id);
}

/* All ways that are still open start from cells[start] or go past it. */
static void reset_scores(struct cell *cells, size_t start, size_t frontier)
{
    float offset = (float)cells[start].score;
    for (size_t i = start; i <= frontier; i++) {
        if (!isinf(cells[i].score))
            cells[i].score = (double)((float)cells[i].score - offset);
    }
}

static void forward(struct unigram *unigram, struct cell *cells, const char *word, size_t bytes)
{
    const bool resets = unigram->vocabulary->card->sentencepiece;
    size_t frontier = 0; /* the last cell that a way has reached */
    uint32_t length = 0;
    for (size_t start = 0; start < bytes; start += length) {
        if (resets && fabs(cells[start].score) > RESET_SCORE)
            reset_scores(cells, start, frontier);
        bool alone = false; /* is the character at `start` a token by itself? */
        uint32_t node = 0, id = TRIE_NO_VALUE;
        (void)utf8_decode(word + start, &length);
        for (size_t at = start;
             at < bytes && trie_step(&unigram->trie, &node, (unsigned char)word[at], &id); at++) {
            unigram->work++;
            if (id == TRIE_NO_VALUE)
                continue;
            offer(unigram, &cells[at + 1],
                  cells[start].score + piece_score(unigram, id, at + 1 - start), start, id);
            alone = alone || at + 1 == start + length;
            frontier = at + 1 > frontier ? at + 1 : frontier;
        }
        if (!alone)
            offer(unigram, &cells[start + length], cells[start].score + unigram->unknown_score,
                  start, TOKEN_ID_NONE);
        unigram->work++;
        if (start + length > frontier)
            frontier = start + length;
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

uint64_t unigram_work(const struct unigram *unigram)
{
    return unigram->work;
}
