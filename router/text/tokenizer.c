/* tokenizer.c - a text's way to its ids.
 *
 *   bytes --bad bytes become U+FFFD--> UTF-8 --added tokens cut out--> segments
 *     segment --normalizer--> --added tokens of normalized text cut out--> pieces
 *     piece --pre-tokenizer--> words --merges (byte-level, SentencePiece) or Viterbi--> ids
 *   A word that was seen lately comes from the word cache.
 *
 * Why segments are safe borders: nothing before an added token is seen by what comes after it, in
 * every Python tokenizer too. Why the literal spans stop mattering after that: only control tokens
 * ask.
 *
 * Invariants: a failed call leaves *out as it was; the result depends on text and options only,
 * never on what was tokenized before (the cache holds what would be computed again). Cost: English
 * about 40 ns a word when cached; memory of a vocabulary of 150,000 about 20 MB. */
#include "router/text/tokenizer.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "router/text/added_tokens.h"
#include "router/text/bpe.h"
#include "router/text/metaspace.h"
#include "router/text/normalize.h"
#include "router/text/pretokenize.h"
#include "router/text/spm.h"
#include "router/text/unicode.h"
#include "router/text/unigram.h"
#include "router/text/vocabulary.h"
#include "router/text/word_cache.h"

#define TEXT_BYTES_MAX (1u << 30)
#define SCRATCH_KEPT (1u << 20)
#define BAD_BYTE "\xef\xbf\xbd" /* U+FFFD */

struct tokenizer {
    struct model_card *card;
    struct unicode unicode;
    struct vocabulary *vocabulary;
    struct added_tokens *added;
    struct added_tokens *added_normalized; /* NULL: none */
    struct word_cache *cache;
    struct normalizer *normalizer;
    struct pretokenizer *pre;
    struct bpe *bpe; /* one of the three */
    struct spm *spm;
    struct unigram *unigram;
    struct buffer spaced; /* scratch: a word with spaces for U+2581, bytes for their alphabet */
};

/* --- lists of ids ---------------------------------------------------------------------------- */

void token_ids_init(struct token_ids *ids, size_t count_max)
{
    *ids = (struct token_ids){.count_max = count_max};
}

void token_ids_done(struct token_ids *ids)
{
    mem_free(ids->ids);
    token_ids_init(ids, ids->count_max);
}

static int token_ids_reserve(struct token_ids *ids, size_t more)
{
    if (more > ids->count_max - ids->count)
        return -E2BIG;
    if (ids->count + more > ids->capacity) {
        size_t capacity = ids->capacity < 64 ? 64 : ids->capacity * 2;
        while (capacity < ids->count + more)
            capacity *= 2;
        ids->ids = mem_realloc(ids->ids, capacity * sizeof(*ids->ids));
        ids->capacity = capacity;
    }
    return 0;
}

int token_ids_add(struct token_ids *ids, uint32_t id)
{
    if (ids->count == ids->capacity || ids->count >= ids->count_max) {
        int r = token_ids_reserve(ids, 1);
        if (r < 0)
            return r;
    }
    ids->ids[ids->count++] = id;
    return 0;
}

int token_ids_append(struct token_ids *ids, const uint32_t *more, size_t count)
{
    int r = token_ids_reserve(ids, count);
    if (r < 0 || count == 0)
        return r;
    memcpy(ids->ids + ids->count, more, count * sizeof(*more));
    ids->count += count;
    return 0;
}

/* --- making one ------------------------------------------------------------------------------ */

static int make_model(struct tokenizer *tokenizer, bool ignore_merges, struct errmsg *err)
{
    switch (tokenizer->card->tokenizer) {
    case TOKENIZER_BPE:
        return bpe_new(tokenizer->vocabulary, ignore_merges, &tokenizer->bpe, err);
    case TOKENIZER_SPM:
        return spm_new(tokenizer->vocabulary, &tokenizer->spm, err);
    case TOKENIZER_UNIGRAM:
        return unigram_new(tokenizer->vocabulary, &tokenizer->unigram, err);
    default:
        return errmsg_set(err, -ENOTSUP, "unknown tokenizer model %d; known: bpe, spm, unigram",
                          (int)tokenizer->card->tokenizer);
    }
}

static int make_parts(struct tokenizer *tokenizer, struct errmsg *err)
{
    const struct model_card *card = tokenizer->card;
    struct pretokenize_traits traits = {0};
    int r = pretokenizer_new(card, &tokenizer->unicode, &tokenizer->pre, &traits, err);
    if (r == 0)
        r = normalizer_new(card, traits.normalize_nfc, &tokenizer->unicode, &tokenizer->normalizer,
                           err);
    if (r == 0)
        r = make_model(tokenizer, card->ignore_merges || traits.ignore_merges, err);
    if (r == 0)
        tokenizer->added_normalized =
            added_tokens_new_normalized(tokenizer->vocabulary, tokenizer->normalizer);
    return r;
}

int tokenizer_new(struct model_card *card, struct tokenizer **ret_tokenizer, struct errmsg *err)
{
    int r = model_card_check(card, err);
    if (r < 0)
        return r;
    struct tokenizer *tokenizer = mem_zalloc(sizeof(*tokenizer));
    tokenizer->card = model_card_ref(card);
    unicode_init(&tokenizer->unicode);
    tokenizer->vocabulary = vocabulary_new(card);
    tokenizer->added = added_tokens_new(tokenizer->vocabulary, &tokenizer->unicode);
    tokenizer->cache = word_cache_new();
    buffer_init(&tokenizer->spaced, (size_t)TEXT_BYTES_MAX * 4);
    r = make_parts(tokenizer, err);
    if (r < 0) {
        tokenizer_free(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    bpe_free(tokenizer->bpe);
    spm_free(tokenizer->spm);
    unigram_free(tokenizer->unigram);
    pretokenizer_free(tokenizer->pre);
    normalizer_free(tokenizer->normalizer);
    added_tokens_free(tokenizer->added_normalized);
    word_cache_free(tokenizer->cache);
    added_tokens_free(tokenizer->added);
    vocabulary_free(tokenizer->vocabulary);
    unicode_done(&tokenizer->unicode);
    buffer_done(&tokenizer->spaced);
    model_card_unref(tokenizer->card);
    mem_free(tokenizer);
}

/* --- encoding -------------------------------------------------------------------------------- */

struct encoding {
    struct tokenizer *tokenizer;
    struct token_ids *out;
};

static int encode_word(void *owner, const char *word, size_t bytes)
{
    struct encoding *encoding = owner;
    struct tokenizer *tokenizer = encoding->tokenizer;
    struct token_ids *out = encoding->out;
    uint64_t hash = vocabulary_hash(word, bytes);
    size_t before = out->count, count = 0;
    if (bytes <= WORD_CACHE_WORD_MAX) {
        const uint32_t *ids = word_cache_get(tokenizer->cache, word, bytes, hash, &count);
        if (ids != NULL)
            return token_ids_append(out, ids, count);
    }
    int r = tokenizer->bpe != NULL   ? bpe_word(tokenizer->bpe, word, bytes, hash, out)
            : tokenizer->spm != NULL ? spm_word(tokenizer->spm, word, bytes, out)
                                     : unigram_word(tokenizer->unigram, word, bytes, out);
    if (r == 0 && out->count > before)
        word_cache_put(tokenizer->cache, word, bytes, hash, out->ids + before, out->count - before);
    return r;
}

/* What the pre-tokenizer calls a word, to SentencePiece: with plain spaces, and cut before them
 * where no token goes across. */
static int encode_spaced(void *owner, const char *word, size_t bytes)
{
    struct encoding *encoding = owner;
    struct tokenizer *tokenizer = encoding->tokenizer;
    const struct vocabulary *vocabulary = tokenizer->vocabulary;
    if (!pretokenizer_is_whole(tokenizer->pre)) { /* else the normalizer did it */
        buffer_trim(&tokenizer->spaced, SCRATCH_KEPT);
        if (metaspace_plain(word, bytes, &tokenizer->spaced)) {
            if (buffer_finish(&tokenizer->spaced) < 0)
                return -E2BIG;
            word = tokenizer->spaced.data;
            bytes = tokenizer->spaced.bytes;
        }
    }
    if (!vocabulary->space_starts_words || vocabulary->card->ignore_merges ||
        tokenizer->unigram != NULL) /* its sums, and so its near ties, begin with the text */
        return encode_word(encoding, word, bytes);
    for (size_t at = 0, length; at < bytes; at += length) {
        length = metaspace_word(word + at, bytes - at);
        int r = encode_word(encoding, word + at, length);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The same to byte-level BPE, where the word is written in the byte alphabet. */
static int encode_alphabet(void *owner, const char *word, size_t bytes)
{
    struct encoding *encoding = owner;
    struct tokenizer *tokenizer = encoding->tokenizer;
    buffer_trim(&tokenizer->spaced, SCRATCH_KEPT);
    buffer_append(&tokenizer->spaced, word, bytes);
    if (buffer_finish(&tokenizer->spaced) < 0)
        return -E2BIG;
    size_t count =
        vocabulary_decode(tokenizer->vocabulary, TOKEN_NORMAL, word, bytes, tokenizer->spaced.data);
    return encode_word(encoding, tokenizer->spaced.data, count);
}

static int encode_piece(struct encoding *encoding, const char *text, size_t bytes, bool at_start)
{
    struct tokenizer *tokenizer = encoding->tokenizer;
    pretokenize_word_fn on_word = tokenizer->bpe == NULL                        ? encode_spaced
                                  : pretokenizer_gives_alphabet(tokenizer->pre) ? encode_alphabet
                                                                                : encode_word;
    return pretokenizer_split(tokenizer->pre, text, bytes, at_start, on_word, encoding);
}

/* Text between two added tokens; at_start: none comes before it. */
static int encode_segment(struct encoding *encoding, const char *text, size_t bytes, bool at_start)
{
    struct tokenizer *tokenizer = encoding->tokenizer;
    struct added_match match = {0};
    size_t at = 0;
    if (bytes == 0)
        return 0;
    int r = normalizer_run(tokenizer->normalizer, text, bytes, &at_start, &text, &bytes);
    if (r < 0 || tokenizer->added_normalized == NULL)
        return r < 0 ? r : encode_piece(encoding, text, bytes, at_start);
    struct added_search search = {.text = text, .bytes = bytes};
    while (r == 0 && added_tokens_next(tokenizer->added_normalized, &tokenizer->unicode, &search,
                                       at, &match)) {
        r = encode_piece(encoding, text + at, match.start - at, at_start && at == 0);
        if (r == 0)
            r = token_ids_add(encoding->out, match.id);
        at = match.end;
    }
    return r == 0 ? encode_piece(encoding, text + at, bytes - at, at_start && at == 0) : r;
}

/* The text of `search` from `at` on. */
static int encode_rest(struct encoding *encoding, struct added_search *search, size_t at)
{
    struct tokenizer *tokenizer = encoding->tokenizer;
    struct added_match match = {0};
    int r = 0;
    while (r == 0 && added_tokens_next(tokenizer->added, &tokenizer->unicode, search, at, &match)) {
        r = encode_segment(encoding, search->text + at, match.start - at, at == 0);
        if (r == 0)
            r = token_ids_add(encoding->out, match.id);
        at = match.end;
    }
    return r == 0 ? encode_segment(encoding, search->text + at, search->bytes - at, at == 0) : r;
}

static int encode_valid(struct encoding *encoding, const char *text, size_t bytes,
                        const struct tokenize_options *options)
{
    struct added_search search = {.text = text,
                                  .bytes = bytes,
                                  .control = options->parse_special,
                                  .literal = options->literal,
                                  .literal_count = options->literal_count};
    return encode_rest(encoding, &search, 0);
}

/* Replace each bad byte by U+FFFD and move the literal spans along: a start goes with the beginning
 * of the character it lies in, an end with the end of it. */
static void clean_text(const char *text, size_t bytes, const struct tokenize_options *options,
                       struct buffer *clean, struct text_range *literal)
{
    size_t starts = 0, ends = 0, count = options->literal_count;
    for (size_t at = 0, behind; at < bytes; at = behind) {
        uint32_t length = utf8_sequence(text + at, bytes - at);
        size_t before = clean->bytes;
        behind = at + (length == 0 ? 1 : length);
        if (length == 0)
            buffer_append(clean, BAD_BYTE, sizeof(BAD_BYTE) - 1);
        else
            buffer_append(clean, text + at, length);
        for (; starts < count && options->literal[starts].start < behind; starts++)
            literal[starts].start = before;
        for (; ends < count && options->literal[ends].end <= behind; ends++)
            literal[ends].end = options->literal[ends].end > at ? clean->bytes : before;
    }
    for (; starts < count; starts++)
        literal[starts].start = clean->bytes;
    for (; ends < count; ends++)
        literal[ends].end = clean->bytes;
}

static int encode_invalid(struct encoding *encoding, const char *text, size_t bytes,
                          const struct tokenize_options *options)
{
    struct tokenize_options moved = *options;
    struct text_range *literal = mem_calloc(options->literal_count + 1, sizeof(*literal));
    struct buffer clean;
    buffer_init(&clean, bytes * (sizeof(BAD_BYTE) - 1));
    clean_text(text, bytes, options, &clean, literal);
    moved.literal = literal;
    int r = buffer_finish(&clean);
    ASSERT(r == 0);
    r = encode_valid(encoding, clean.data, clean.bytes, &moved);
    buffer_done(&clean);
    mem_free(literal);
    return r;
}

int tokenizer_add_bos(const struct tokenizer *tokenizer, const struct tokenize_options *options,
                      struct token_ids *out)
{
    const struct model_card *card = tokenizer->card;
    if (!options->add_special)
        return 0;
    if (card->lead_count > 0)
        return token_ids_append(out, card->lead_ids, card->lead_count);
    return card->add_bos && card->bos != TOKEN_ID_NONE ? token_ids_add(out, card->bos) : 0;
}

int tokenizer_add_eos(const struct tokenizer *tokenizer, const struct tokenize_options *options,
                      struct token_ids *out)
{
    const struct model_card *card = tokenizer->card;
    if (!options->add_special)
        return 0;
    if (card->tail_count > 0)
        return token_ids_append(out, card->tail_ids, card->tail_count);
    return card->add_eos && card->eos != TOKEN_ID_NONE ? token_ids_add(out, card->eos) : 0;
}

int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t bytes,
                     const struct tokenize_options *options, struct token_ids *out)
{
    static const struct tokenize_options plain = {0};
    struct encoding encoding = {.tokenizer = tokenizer, .out = out};
    size_t before = out->count;
    if (bytes > TEXT_BYTES_MAX)
        return -E2BIG;
    if (options == NULL)
        options = &plain;
    int r = tokenizer_add_bos(tokenizer, options, out);
    if (r == 0)
        r = utf8_valid_bytes(text, bytes) == bytes
                ? encode_valid(&encoding, text, bytes, options)
                : encode_invalid(&encoding, text, bytes, options);
    if (r == 0)
        r = tokenizer_add_eos(tokenizer, options, out);
    if (r < 0)
        out->count = before;
    return r;
}

/* --- seams ----------------------------------------------------------------------------------- */

/* The next stretch of text from walk->at on without a literal span: where it ends; walk->at moves
 * to where it begins. Empty spans do not count, as in matching. */
static size_t next_glue(struct segment_walk *walk)
{
    const struct text_range *literal = walk->options->literal;
    for (; walk->literal_at < walk->options->literal_count; walk->literal_at++) {
        const struct text_range *span = &literal[walk->literal_at];
        if (span->end <= walk->at || span->start == span->end)
            continue;
        if (span->start > walk->at)
            return span->start < walk->bytes ? span->start : walk->bytes;
        walk->at = span->end < walk->bytes ? span->end : walk->bytes;
    }
    return walk->bytes;
}

bool tokenizer_is_seam(const struct tokenizer *tokenizer, uint32_t id, bool *ret_trim)
{
    const uint8_t *flags = tokenizer->card->token_flags;
    if (!added_tokens_is_seam(tokenizer->added, id))
        return false;
    *ret_trim = flags != NULL && (flags[id] & TOKEN_RSTRIP) != 0;
    return true;
}

bool tokenizer_next_segment(const struct tokenizer *tokenizer, struct segment_walk *walk,
                            struct text_segment *ret_segment)
{
    struct text_segment segment = {.start = walk->at,
                                   .end = walk->bytes,
                                   .behind = walk->bytes,
                                   .seam = TOKEN_ID_NONE,
                                   .trim = walk->trim,
                                   .first = walk->at == 0,
                                   .literal_at = walk->literal_at};
    struct added_match match = {0};
    if (walk->over)
        return false;
    walk->over = true;
    while (walk->options->parse_special && walk->at < walk->bytes) {
        size_t glue_end = next_glue(walk);
        if (added_tokens_next_seam(tokenizer->added, walk->text, walk->at, glue_end, &match,
                                   &segment.controls)) {
            segment.end = match.start;
            segment.behind = walk->at = match.end;
            segment.seam = match.id;
            walk->over = !tokenizer_is_seam(tokenizer, match.id, &walk->trim);
            ASSERT(!walk->over);
            break;
        }
        walk->at = glue_end;
    }
    *ret_segment = segment;
    return true;
}

int tokenizer_encode_segment(struct tokenizer *tokenizer, const struct segment_walk *walk,
                             const struct text_segment *segment, struct token_ids *out)
{
    struct encoding encoding = {.tokenizer = tokenizer, .out = out};
    struct added_search search = {.text = walk->text,
                                  .bytes = segment->end,
                                  .control = segment->controls,
                                  .literal = walk->options->literal,
                                  .literal_count = walk->options->literal_count,
                                  .literal_at = segment->literal_at};
    size_t before = out->count, at = segment->start;
    if (segment->trim)
        at = added_tokens_trim(&tokenizer->unicode, walk->text, at, segment->end);
    int r = encode_rest(&encoding, &search, at);
    if (r < 0)
        out->count = before;
    return r;
}

/* --- looking things up ----------------------------------------------------------------------- */

int tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, const char **ret_bytes,
                          size_t *ret_count, bool *ret_control)
{
    if (id >= tokenizer->vocabulary->count)
        return -ERANGE;
    uint8_t type = tokenizer->card->token_types[id];
    *ret_bytes = vocabulary_text(tokenizer->vocabulary, id, ret_count);
    *ret_control = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
    return 0;
}

uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
    size_t bytes = strlen(text);
    for (uint32_t id = 0; id < tokenizer->card->tokens.count; id++) {
        size_t known_bytes = 0;
        const char *known = string_table_get(&tokenizer->card->tokens, id, &known_bytes);
        if (known_bytes == bytes && memcmp(known, text, bytes) == 0)
            return id;
    }
    return TOKEN_ID_NONE;
}

const struct model_card *tokenizer_card(const struct tokenizer *tokenizer)
{
    return tokenizer->card;
}

uint64_t tokenizer_work(const struct tokenizer *tokenizer)
{
    return tokenizer->bpe != NULL   ? bpe_work(tokenizer->bpe)
           : tokenizer->spm != NULL ? spm_work(tokenizer->spm)
                                    : unigram_work(tokenizer->unigram);
}
