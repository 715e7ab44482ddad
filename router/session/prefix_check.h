/* prefix_check.h - does the prompt of turn N + 1 begin with the prompt of turn N, and where does it
 * part?
 *
 * Works on what two renderings gave; who renders, and with which template, is the caller's. The
 * built-in conversations show what a template does with plain turns, system messages, white space,
 * thinking, tools and the date. Thread: any. */
#ifndef REFRAIN_ROUTER_SESSION_PREFIX_CHECK_H
#define REFRAIN_ROUTER_SESSION_PREFIX_CHECK_H

#include <jansson.h>

#include "proto/base/buffer.h"
#include "router/session/miss.h"

/* One turn, rendered for its answer. ids NULL: no tokenizer, texts decide alone. */
struct prefix_turn {
    const json_t *messages;
    const char *text;
    size_t text_bytes;
    const struct text_span *spans;
    size_t spans_count;
    const uint32_t *ids;
    size_t ids_count;
};

struct prefix_verdict {
    bool stable;        /* the next prompt begins with all text and ids of this one */
    bool text_stable;   /* with all its text */
    bool has_answer;    /* the next turn has a message of the assistant where this one ends */
    bool answer_stable; /* the text goes on with that message's content, as it stands */
    size_t bytes[2], tokens[2];
    size_t common_bytes, common_tokens;
    enum miss_cause cause; /* NONE when stable */
    struct place place;    /* in the next turn's messages; in this one's when that has ended */
    size_t text_offset;    /* bytes into the run of text that `place` names; else 0 */
};

void prefix_compare(const struct prefix_turn *turn, const struct prefix_turn *next,
                    struct prefix_verdict *ret_verdict);
/* Members of an object, without the braces; where it breaks only when not `stable`. */
void prefix_write(const struct prefix_verdict *verdict, struct buffer *out);

struct prefix_probe {
    const char *name;
    const char *messages; /* JSON; turn k is the first turns[k] of them */
    const char *tools;    /* JSON, NULL: none */
    uint32_t turns[6];    /* ends with 0 */
    uint32_t later_s;     /* each turn is this much later than the one before: a day, or 0 */
};

extern const struct prefix_probe prefix_probes[]; /* ends with a NULL name */

#endif
