/* tokenizer.h - text -> token ids, exactly as the model's own Python stack does it.
 *
 * Built from a ModelCard. Immutable after tokenizer_new except for a bounded internal word cache,
 * which makes a tokenizer single-threaded: one per thread (or loop).
 *
 * The rule about control tokens: text of a control or user-defined token becomes that token only
 * where the *template* (or a raw /v1/completions prompt, when parse_special is set) wrote it.
 * Inside a `literal` span, i.e. text that a user supplied, control tokens (TOKEN_CONTROL) are never
 * recognised: the characters are tokenized as ordinary text. User-defined tokens
 * (TOKEN_USER_DEFINED) are ordinary vocabulary and are recognised everywhere. A match that only
 * partly lies outside literal spans does not count. Pre-tokenization and merging run across span
 * borders as if they were not there. */
#ifndef REFRAIN_ROUTER_TEXT_TOKENIZER_H
#define REFRAIN_ROUTER_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/model_card.h"

struct tokenizer;

/* Growing list of ids with a maximum. */
struct token_ids {
    uint32_t *ids;
    size_t count, capacity, count_max;
};
void token_ids_init(struct token_ids *ids, size_t count_max);
void token_ids_done(struct token_ids *ids);
int token_ids_add(struct token_ids *ids, uint32_t id);                           /* 0, or -E2BIG */
int token_ids_append(struct token_ids *ids, const uint32_t *more, size_t count); /* all or none */

/* Byte range [start, end) of the text. */
struct text_range {
    size_t start, end;
};

struct tokenize_options {
    bool add_special;                 /* BOS/EOS as the card says */
    bool parse_special;               /* recognise control tokens outside literal spans */
    const struct text_range *literal; /* rising, not overlapping; may be NULL */
    size_t literal_count;
};

/* Keeps a reference on the card. 0; -EINVAL: inconsistent card; -ENOTSUP: a tokenizer or
 * pre-tokenizer that we do not have, *err names it and lists what is supported. */
int tokenizer_new(struct model_card *card, struct tokenizer **ret_tokenizer, struct errmsg *err);
void tokenizer_free(struct tokenizer *tokenizer);

/* Append the ids of text[0..bytes) to *out. Text that is not UTF-8: each bad byte is tokenized as
 * U+FFFD. 0; -E2BIG: out->count_max reached (out is as before). O(n log n) in any input. */
int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t bytes,
                     const struct tokenize_options *options, struct token_ids *out);

/* The ids that tokenizer_encode puts before and behind the text: BOS and EOS as the card says. */
int tokenizer_add_bos(const struct tokenizer *tokenizer, const struct tokenize_options *options,
                      struct token_ids *out);
int tokenizer_add_eos(const struct tokenizer *tokenizer, const struct tokenize_options *options,
                      struct token_ids *out);

/* --- seams: where a text may be cut and tokenized piece by piece -------------------------------
 *
 * A seam is a control token outside literal spans that is recognised whatever stands around it: it
 * has no lstrip and no single_word, it does not begin or end with a space, letter, mark, number or
 * '_', and no other added token can overlap it (none that contains it, none whose end is its
 * beginning, none that it is the beginning of). So tokenizer_encode() of a text is BOS, the ids of
 * its segments with the seams between them, EOS. */

/* What stands before a seam. */
struct text_segment {
    size_t start, end;
    size_t behind; /* the end of the seam; == end: there is none, the text ends here */
    uint32_t seam; /* its id, or TOKEN_ID_NONE */
    bool trim;     /* the seam before swallows (rstrip) the white space at the start */
    bool first;    /* no seam before it: some tokenizers put a space in front */
    bool controls; /* other control tokens may be recognised: ids depend on the literal spans */
    size_t literal_at;
};

/* Going through a text; fill the first line with valid UTF-8 and its options. */
struct segment_walk {
    const char *text;
    size_t bytes;
    const struct tokenize_options *options;

    size_t at, literal_at;
    bool trim, over;
};

/* The next segment; the last one, which may be empty, has no seam. False: that was the last. Looks
 * only at text outside literal spans. */
bool tokenizer_next_segment(const struct tokenizer *tokenizer, struct segment_walk *walk,
                            struct text_segment *ret_segment);
/* Append the ids of the segment without its seam. 0, or -E2BIG (out is as before). Without
 * `controls` they depend on its text, `trim` and `first` alone, and hold no control token. */
int tokenizer_encode_segment(struct tokenizer *tokenizer, const struct segment_walk *walk,
                             const struct text_segment *segment, struct token_ids *out);
/* May text that the template wrote become a seam of this id? *ret_trim: see text_segment. */
bool tokenizer_is_seam(const struct tokenizer *tokenizer, uint32_t id, bool *ret_trim);

/* Bytes that token `id` stands for (byte alphabet decoded, U+2581 -> space, <0xXX> -> that byte).
 * Control tokens: *ret_control set and their literal text returned. -ERANGE: no such id. */
int tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, const char **ret_bytes,
                          size_t *ret_count, bool *ret_control);
/* Id of exactly this token text as stored ("<|im_end|>"), or TOKEN_ID_NONE. */
uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);
const struct model_card *tokenizer_card(const struct tokenizer *tokenizer);
/* Steps that its model has taken so far: what grows faster than the text would show here. */
uint64_t tokenizer_work(const struct tokenizer *tokenizer);

#endif
