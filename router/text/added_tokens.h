/* added_tokens.h - tokens that are cut out of the raw text before anything else looks at it.
 *
 * Control, unknown and user-defined tokens. Leftmost first, of those the longest. Immutable. */
#ifndef REFRAIN_ROUTER_TEXT_ADDED_TOKENS_H
#define REFRAIN_ROUTER_TEXT_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/text/normalize.h"
#include "router/text/tokenizer.h"
#include "router/text/unicode.h"
#include "router/text/vocabulary.h"

struct added_tokens;

/* Text that is being searched; made once per text, moved on by added_tokens_next. */
struct added_search {
    const char *text;
    size_t bytes;
    bool control; /* recognise control tokens where no literal span is */
    const struct text_range *literal;
    size_t literal_count;
    size_t literal_at; /* first span that may still matter */
};

struct added_match {
    size_t start, end; /* with the white space that the token swallows (lstrip, rstrip) */
    uint32_t id;
};

/* The vocabulary must outlive it. */
struct added_tokens *added_tokens_new(const struct vocabulary *vocabulary, struct unicode *unicode);
/* The user-defined tokens that are looked for in normalized text; NULL: there are none. Only
 * added_tokens_next is for these. */
struct added_tokens *added_tokens_new_normalized(const struct vocabulary *vocabulary,
                                                 struct normalizer *normalizer);
void added_tokens_free(struct added_tokens *added);
/* The first match at or after `at`; false: none until the end. `at` never goes back. */
bool added_tokens_next(const struct added_tokens *added, struct unicode *unicode,
                       struct added_search *search, size_t at, struct added_match *ret_match);

/* The first seam (tokenizer.h) that lies whole in [at, end), which touches no literal span; false:
 * none. *ret_controls is set when other control tokens may be recognised before it, and is not
 * touched otherwise. */
bool added_tokens_next_seam(const struct added_tokens *added, const char *text, size_t at,
                            size_t end, struct added_match *ret_match, bool *ret_controls);
bool added_tokens_is_seam(const struct added_tokens *added, uint32_t id);
/* Drop what TOKEN_RSTRIP of a token that ends at `at` swallows: the first byte behind it. */
size_t added_tokens_trim(struct unicode *unicode, const char *text, size_t at, size_t end);

#endif
