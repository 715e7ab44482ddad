/* reasoning.h - which part of an answer is the model's thinking, which is for the user.
 *
 *   START --begin tag--> INSIDE --end tag--> AFTER
 *     +------------ anything else ------------^     (to INSIDE, if `opened`)
 *
 * A model thinks at most once, first. The begin tag may stand in the prompt already (the template
 * opens it), or a closed pair (the template switched thinking off); reasoning_after_prompt() sees
 * that. The tags are shown to nobody; a missing end tag leaves everything reasoning. Text that may
 * become a tag is held back, so any split of the text gives the same. Embedded. Thread: one. */
#ifndef REFRAIN_PROTO_REASONING_H
#define REFRAIN_PROTO_REASONING_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"

#define REASONING_HELD_MAX 64u /* tags are shorter; white space before a begin tag, too */

struct reasoning_format {
    const char *name; /* of --reasoning-parser */
    const char *begin, *end;
    bool opened; /* the model thinks first whether or not a begin tag is seen */
};

enum reasoning_state { REASONING_START = 0, REASONING_INSIDE, REASONING_AFTER, REASONING_STATES };

struct reasoning {
    const struct reasoning_format *format;
    enum reasoning_state state;
    char held[REASONING_HELD_MAX];
    size_t held_bytes, matched; /* matched: how many of them are a tag's first bytes */
};

/* The formats in order; NULL: no more. */
const struct reasoning_format *reasoning_format_at(size_t index);
/* NULL: no such name. */
const struct reasoning_format *reasoning_find(const char *name);
/* The format whose tag a template mentions, or NULL. */
const struct reasoning_format *reasoning_of_template(const char *source, size_t bytes);
/* From the end of a prompt: a tag, then white space at most. */
enum reasoning_state reasoning_after_prompt(const struct reasoning_format *format,
                                            const char *prompt, size_t bytes);
/* From the text of a message that the answer continues. */
enum reasoning_state reasoning_after_message(const struct reasoning_format *format,
                                             const char *message, size_t bytes);

void reasoning_init(struct reasoning *reasoning, const struct reasoning_format *format,
                    enum reasoning_state start);
void reasoning_push(struct reasoning *reasoning, const char *text, size_t bytes,
                    struct buffer *thoughts, struct buffer *content);
/* End of the answer: what was held is no tag. */
void reasoning_finish(struct reasoning *reasoning, struct buffer *thoughts, struct buffer *content);

#endif
