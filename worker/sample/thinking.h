/* thinking.h - a client's budget of reasoning tokens, and the end of the thinking when it is spent.
 *
 *   BEFORE --begin tag--> INSIDE --end tag--> AFTER        (proto/reasoning.h)
 *                           |
 *             budget spent: the end tag's tokens are forced, one after the other
 *
 * A token is of the reasoning when the model was thinking before and behind it, as `usage` counts
 * them: tags are none. Why here and no grammar: a grammar says which texts may come, not after how
 * many tokens, and it costs a mask per token; this costs a look at each token's bytes. State
 * depends on the sequence's own tokens only, so batch, preemption and reuse cannot change it.
 *
 * Ownership: moves with the request into its sequence. Thread: engine's, after it was made. */
#ifndef REFRAIN_WORKER_SAMPLE_THINKING_H
#define REFRAIN_WORKER_SAMPLE_THINKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/model_card.h"

/* A token whose stored text is longer has no tag in it. */
#define THINKING_TOKEN_BYTES_MAX 1024u

struct thinking_input {
    uint32_t tokens_max;
    const char *begin, *end; /* tags, not terminated */
    size_t begin_bytes, end_bytes;
    bool inside;            /* the prompt opened the thinking */
    bool opened;            /* the model thinks first, with or without `begin` */
    const uint8_t *end_ids; /* `end` as tokens, packed little-endian u32 */
    size_t end_ids_bytes;
};

struct thinking;

/* The card outlives it. -EINVAL: a sentence. */
int thinking_new(const struct thinking_input *input, const struct model_card *card,
                 struct thinking **ret_thinking, struct errmsg *err);
void thinking_free(struct thinking *thinking); /* NULL is fine */
/* Must the next token be one of the end tag's? */
bool thinking_forces(const struct thinking *thinking, uint32_t *ret_id);
/* The token that was sampled, or forced. */
void thinking_take(struct thinking *thinking, uint32_t id);

#endif
