/* normalize.h - what happens to the text between added tokens before it is cut into words.
 *
 * Either the card's normalizer steps (a tokenizer.json) or SentencePiece's own rules, by the card's
 * switches. Thread: one (scratch memory). */
#ifndef REFRAIN_ROUTER_TEXT_NORMALIZE_H
#define REFRAIN_ROUTER_TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/errmsg.h"
#include "proto/model_card.h"
#include "router/text/unicode.h"

struct normalizer;

/* nfc: the pre-tokenizer's name asks for it although the card does not. Card and `unicode` must
 * outlive it. 0; -ENOTSUP: unknown step, *err lists the known ones; -EINVAL: a step's argument. */
int normalizer_new(const struct model_card *card, bool nfc, struct unicode *unicode,
                   struct normalizer **ret_normalizer, struct errmsg *err);
void normalizer_free(struct normalizer *normalizer); /* NULL is fine */

/* text: valid UTF-8. *ret_text is valid UTF-8 and lives until the next call: `text` itself or
 * scratch memory. *at_start (the text begins at the very start) turns false when its first
 * characters were taken off. 0, or -E2BIG. */
int normalizer_run(struct normalizer *normalizer, const char *text, size_t bytes, bool *at_start,
                   const char **ret_text, size_t *ret_bytes);
/* Does the card have steps, so that added tokens to be found in normalized text are normalized as
 * well? (SentencePiece looks for them as they are stored.) */
bool normalizer_has_steps(const struct normalizer *normalizer);

#endif
