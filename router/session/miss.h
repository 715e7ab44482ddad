/* miss.h - why a turn reused less than the turn before it left behind: one word, and where.
 *
 *   before the dispatch: miss_compare()  prompt against the record of the turn before
 *   with the first token: miss_settle()  what the worker reused against what it could
 *
 * The order is the order of detection: the first that is true is the cause. MISS_NONE: all that
 * could be reused was, to less than a block. Thread: any. */
#ifndef REFRAIN_ROUTER_SESSION_MISS_H
#define REFRAIN_ROUTER_SESSION_MISS_H

#include "proto/base/buffer.h"
#include "router/session/chat_record.h"
#include "router/session/place.h"

enum miss_cause {
    MISS_NONE = 0,
    MISS_FIRST_TURN,        /* no turn before it is known */
    MISS_SALT_CHANGED,      /* the session came with another cache_salt */
    MISS_TOOLS_CHANGED,     /* other tools, or in another order */
    MISS_SYSTEM_CHANGED,    /* other system messages at the head */
    MISS_MESSAGE_EDITED,    /* an old message, or the answer, came back changed */
    MISS_HISTORY_CUT,       /* the history policy cut in this turn */
    MISS_TEMPLATE_UNSTABLE, /* same messages, other text: thinking dropped, a date */
    MISS_RETOKENIZED,       /* same text, other ids */
    MISS_OTHER_WORKER,      /* another group than the one that has it */
    MISS_EVICTED,           /* the group has dropped it */
    MISS_REUSE_OFF,         /* the worker was not to reuse, or never does */
    MISS_CAUSES
};

extern const char *const miss_words[MISS_CAUSES + 1]; /* "none", ...; NULL at the end */

struct miss {
    enum miss_cause cause;    /* settled: the cause. compared: the one of the prompt, or NONE */
    struct place place;       /* message: in the list that the client sent; -1: none */
    int64_t text_offset;      /* bytes into the system text; -1: not known */
    int64_t prompt_offset;    /* bytes into the prompt, at most; -1: not known */
    bool kwargs_changed;      /* chat_template_kwargs or chat_template differ */
    bool known;               /* there was a turn before */
    uint32_t possible_tokens; /* what the turn before left and this prompt has room for */
    uint32_t expected_tokens; /* of these, what this prompt begins with, at least */
    uint32_t coarse_tokens;   /* by how much expected_tokens may be too low */
    uint32_t before_group, group, reused_tokens;
};

/* before: NULL for none. */
void miss_compare(const struct chat_record *before, const struct chat_turn *turn,
                  struct miss *ret_miss);
void miss_settle(struct miss *miss, uint32_t cached_tokens, uint32_t group);
/* The object, or null for MISS_NONE. worker: the worker's own word, "" for none. */
void miss_write(const struct miss *miss, const char *worker, struct buffer *out);

#endif
