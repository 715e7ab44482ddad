/* added_tokens.c - a trie over the added tokens, entered only at bytes that begin one.
 *
 * The rule about user text (tokenizer.h): a control token counts only where its whole match lies
 * outside every literal span. So the trie is walked to its end and the longest match that counts is
 * taken, which need not be the longest match. User-defined tokens count everywhere.
 *
 * Why not Aho-Corasick: leftmost-longest with conditions per match needs the walk anyway, added
 * tokens are short and rarely begin alike. Cost: one table look-up per byte of text, and the length
 * of the longest added token at each byte that begins one.
 *
 * lstrip and rstrip: the token swallows the white space before or behind it (Hugging Face's
 * AddedToken). single_word: it counts only where no word character touches it; a match that does
 * not count for that reason is passed over as a whole, as the tokenizers library does it.
 *
 * Two sets: tokens looked for in the raw text, and user-defined ones looked for in normalized text
 * (TOKEN_NORMALIZED). Control tokens are always of the first, whatever the file says: what
 * normalization turns into one was not written by the template.
 *
 * Seams are found once, at the start: a control token t is one when no added token can overlap an
 * occurrence of it and win. Those that could begin before it (an end of theirs is a beginning of
 * t, or t lies inside) or go on behind it (t is their beginning). With a border that is no space,
 * letter, mark, number or '_', no white space that another token swallows and no single_word can
 * see the difference between a seam and the end of the text. Cost: each added token walks the trie
 * from each of its bytes, mostly one step. */
#include "router/text/added_tokens.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/normalize.h"
#include "router/text/trie.h"

enum begins { BEGINS_ANY = 1, BEGINS_USER_DEFINED = 2, BEGINS_CONTROL = 4 };

struct added_tokens {
    const struct vocabulary *vocabulary;
    struct trie trie;    /* text -> id */
    uint8_t begins[256]; /* enum begins, by first byte */
    bool *seams;         /* by id */
};

/* SentencePiece's unigram scores its user-defined pieces like all others (unigram.c). */
static bool is_added(const struct model_card *card, uint32_t id)
{
    uint8_t type = card->token_types[id];
    bool scored = card->sentencepiece && card->tokenizer == TOKENIZER_UNIGRAM;
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN ||
           (type == TOKEN_USER_DEFINED && !scored);
}

/* Start of the code point that ends at `at` > 0. */
static size_t step_back(const char *text, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

/* What is looked for in the raw text. User-defined tokens of a file with flags are meant as they
 * are written there; without flags (GGUF) a U+2581 in them is a space. */
static const char *raw_text(const struct vocabulary *vocabulary, uint32_t id, size_t *ret_bytes)
{
    const struct model_card *card = vocabulary->card;
    if (card->token_flags != NULL && card->token_types[id] == TOKEN_USER_DEFINED)
        return string_table_get(&card->tokens, id, ret_bytes);
    return vocabulary_text(vocabulary, id, ret_bytes);
}

static bool in_normalized_text(const struct model_card *card, uint32_t id)
{
    return card->token_types[id] == TOKEN_USER_DEFINED && is_added(card, id) &&
           card->token_flags != NULL && (card->token_flags[id] & TOKEN_NORMALIZED) != 0;
}

static void insert(struct added_tokens *added, uint32_t id, const char *text, size_t bytes)
{
    if (bytes == 0 || utf8_valid_bytes(text, bytes) != bytes)
        return; /* would cut a character in two */
    added->begins[(unsigned char)text[0]] |=
        BEGINS_ANY |
        (added->vocabulary->card->token_types[id] == TOKEN_USER_DEFINED ? BEGINS_USER_DEFINED
                                                                        : BEGINS_CONTROL);
    trie_add(&added->trie, text, bytes, id); /* the same text twice: the first id */
}

static bool is_control(const struct added_tokens *added, uint32_t id)
{
    return added->vocabulary->card->token_types[id] != TOKEN_USER_DEFINED;
}

/* --- seams ----------------------------------------------------------------------------------- */

/* Where the tokens that `text` can overlap are: the token ends inside `text` (no seam), or `text`
 * ends inside the token (its node). */
static void mark_overlaps(struct added_tokens *added, const char *text, size_t bytes, bool *ends)
{
    for (size_t from = 0; from < bytes; from++) {
        uint32_t node = 0, id = TRIE_NO_VALUE;
        for (size_t at = from; at < bytes; at++) {
            bool last = at + 1 == bytes;
            if (!trie_step(&added->trie, &node, (unsigned char)text[at], &id) ||
                (last && from == 0))
                break; /* nothing begins so, or `text` itself */
            if (id != TRIE_NO_VALUE)
                added->seams[id] = false;
            ends[node] = ends[node] || last;
        }
    }
}

/* Does the trie end with this token, and no node on the way is marked? */
static bool is_apart(const struct added_tokens *added, uint32_t id, const bool *ends)
{
    size_t bytes = 0;
    const char *text = raw_text(added->vocabulary, id, &bytes);
    uint32_t node = 0, found = TRIE_NO_VALUE;
    for (size_t at = 0; at < bytes; at++) {
        if (!trie_step(&added->trie, &node, (unsigned char)text[at], &found) || ends[node])
            return false;
    }
    return found == id;
}

static bool is_border(struct unicode *unicode, uint32_t code_point)
{
    const uint16_t inner = CP_LETTER | CP_MARK | CP_NUMBER | CP_SPACE;
    return code_point != '_' && (unicode_bits(unicode, code_point) & inner) == 0;
}

static bool has_borders(const struct added_tokens *added, struct unicode *unicode, uint32_t id)
{
    size_t bytes = 0;
    uint32_t length = 0;
    const char *text = raw_text(added->vocabulary, id, &bytes);
    return is_border(unicode, utf8_decode(text, &length)) &&
           is_border(unicode, utf8_decode(text + step_back(text, bytes), &length));
}

static void find_seams(struct added_tokens *added, struct unicode *unicode)
{
    const struct vocabulary *vocabulary = added->vocabulary;
    const uint8_t *types = vocabulary->card->token_types, *flags = vocabulary->card->token_flags;
    const uint8_t contextual = TOKEN_LSTRIP | TOKEN_SINGLE_WORD;
    bool *ends = mem_zalloc(added->trie.nodes * sizeof(*ends));

    added->seams = mem_zalloc((vocabulary->count + 1) * sizeof(*added->seams));
    for (uint32_t id = 0; id < vocabulary->count; id++)
        added->seams[id] = types[id] == TOKEN_CONTROL;
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t bytes = 0;
        const char *text = raw_text(vocabulary, id, &bytes);
        if (is_added(vocabulary->card, id) && !in_normalized_text(vocabulary->card, id) &&
            utf8_valid_bytes(text, bytes) == bytes)
            mark_overlaps(added, text, bytes, ends);
    }
    for (uint32_t id = 0; id < vocabulary->count; id++)
        added->seams[id] = added->seams[id] && (flags == NULL || (flags[id] & contextual) == 0) &&
                           is_apart(added, id, ends) && has_borders(added, unicode, id);
    mem_free(ends);
}

bool added_tokens_is_seam(const struct added_tokens *added, uint32_t id)
{
    return id < added->vocabulary->count && added->seams[id];
}

bool added_tokens_next_seam(const struct added_tokens *added, const char *text, size_t at,
                            size_t end, struct added_match *ret_match, bool *ret_controls)
{
    for (size_t start = at; start < end; start++) {
        uint32_t node = 0, id = TRIE_NO_VALUE;
        bool other = false;
        if ((added->begins[(unsigned char)text[start]] & BEGINS_CONTROL) == 0)
            continue;
        for (size_t i = start;
             i < end && trie_step(&added->trie, &node, (unsigned char)text[i], &id); i++) {
            if (id == TRIE_NO_VALUE)
                continue;
            if (added->seams[id]) {
                *ret_match = (struct added_match){start, i + 1, id};
                return true; /* none is longer */
            }
            other = other || is_control(added, id);
        }
        if (other)
            *ret_controls = true;
    }
    return false;
}

/* --- making one ------------------------------------------------------------------------------ */

struct added_tokens *added_tokens_new(const struct vocabulary *vocabulary, struct unicode *unicode)
{
    struct added_tokens *added = mem_zalloc(sizeof(*added));
    added->vocabulary = vocabulary;
    trie_init(&added->trie, 0);
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t bytes = 0;
        const char *text = raw_text(vocabulary, id, &bytes);
        if (is_added(vocabulary->card, id) && !in_normalized_text(vocabulary->card, id))
            insert(added, id, text, bytes);
    }
    find_seams(added, unicode);
    return added;
}

/* Their texts are normalized like any other where the card has steps; SentencePiece looks for them
 * as they are stored. */
struct added_tokens *added_tokens_new_normalized(const struct vocabulary *vocabulary,
                                                 struct normalizer *normalizer)
{
    struct added_tokens *added = mem_zalloc(sizeof(*added));
    added->vocabulary = vocabulary;
    trie_init(&added->trie, 0);
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        bool at_start = false;
        size_t bytes = 0;
        const char *text = NULL;
        if (!in_normalized_text(vocabulary->card, id))
            continue;
        if (normalizer_has_steps(normalizer)) {
            text = string_table_get(&vocabulary->card->tokens, id, &bytes);
            if (utf8_valid_bytes(text, bytes) != bytes ||
                normalizer_run(normalizer, text, bytes, &at_start, &text, &bytes) < 0)
                continue;
        } else {
            text = vocabulary_text(vocabulary, id, &bytes);
        }
        insert(added, id, text, bytes);
    }
    if (added->trie.nodes > 1)
        return added;
    added_tokens_free(added);
    return NULL;
}

void added_tokens_free(struct added_tokens *added)
{
    if (added == NULL)
        return;
    trie_done(&added->trie);
    mem_free(added->seams);
    mem_free(added);
}

/* --- matching -------------------------------------------------------------------------------- */

/* Does [start, end) touch a literal span? `start` never goes back. */
static bool touches_literal(struct added_search *search, size_t start, size_t end)
{
    while (search->literal_at < search->literal_count &&
           search->literal[search->literal_at].end <= start)
        search->literal_at++;
    for (size_t i = search->literal_at; i < search->literal_count; i++) {
        if (search->literal[i].start >= end)
            return false;
        if (search->literal[i].end > search->literal[i].start)
            return true;
    }
    return false;
}

static bool stands_alone(const struct added_search *search, size_t start, size_t end)
{
    uint32_t length = 0;
    if (start > 0 &&
        unicode_is_word(utf8_decode(search->text + step_back(search->text, start), &length)))
        return false;
    return end == search->bytes || !unicode_is_word(utf8_decode(search->text + end, &length));
}

static bool is_recognised(const struct added_tokens *added, struct added_search *search,
                          uint32_t id, size_t start, size_t end)
{
    return !is_control(added, id) || (search->control && !touches_literal(search, start, end));
}

/* The longest match that begins at `start` and is recognised. */
static bool match_at(const struct added_tokens *added, struct added_search *search, size_t start,
                     struct added_match *ret_match)
{
    bool found = false;
    uint32_t node = 0, id = TRIE_NO_VALUE;
    for (size_t at = start;
         at < search->bytes && trie_step(&added->trie, &node, (unsigned char)search->text[at], &id);
         at++) {
        if (id == TRIE_NO_VALUE || !is_recognised(added, search, id, start, at + 1))
            continue;
        *ret_match = (struct added_match){start, at + 1, id};
        found = true;
    }
    return found;
}

size_t added_tokens_trim(struct unicode *unicode, const char *text, size_t at, size_t end)
{
    uint32_t length = 0;
    while (at < end && (unicode_bits(unicode, utf8_decode(text + at, &length)) & CP_SPACE) != 0)
        at += length;
    return at;
}

/* Take in the white space that the token swallows, but nothing before `from`. */
static void strip(const struct added_tokens *added, struct unicode *unicode,
                  const struct added_search *search, size_t from, struct added_match *match)
{
    const uint8_t *flags = added->vocabulary->card->token_flags;
    uint32_t length = 0;
    if (flags == NULL)
        return;
    while ((flags[match->id] & TOKEN_LSTRIP) != 0 && match->start > from) {
        size_t before = step_back(search->text, match->start);
        if ((unicode_bits(unicode, utf8_decode(search->text + before, &length)) & CP_SPACE) == 0)
            break;
        match->start = before;
    }
    if ((flags[match->id] & TOKEN_RSTRIP) != 0)
        match->end = added_tokens_trim(unicode, search->text, match->end, search->bytes);
}

bool added_tokens_next(const struct added_tokens *added, struct unicode *unicode,
                       struct added_search *search, size_t at, struct added_match *ret_match)
{
    const uint8_t wanted = search->control ? BEGINS_ANY : BEGINS_USER_DEFINED;
    const uint8_t *flags = added->vocabulary->card->token_flags;
    struct added_match match = {0};
    for (size_t start = at; start < search->bytes; start++) {
        if ((added->begins[(unsigned char)search->text[start]] & wanted) == 0 ||
            !match_at(added, search, start, &match))
            continue;
        if (flags != NULL && (flags[match.id] & TOKEN_SINGLE_WORD) != 0 &&
            !stands_alone(search, match.start, match.end)) {
            start = match.end - 1;
            continue;
        }
        strip(added, unicode, search, at, &match);
        *ret_match = match;
        return true;
    }
    return false;
}
