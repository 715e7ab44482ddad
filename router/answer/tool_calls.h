/* tool_calls.h - the calls of one answer, in the order in which the model wrote them.
 *
 * A call has its name and id at once; its arguments, a JSON text, grow. Ids: "call_" and 24 random
 * letters and digits, or 9 of them where a model's template insists. At most TOOL_CALLS_MAX calls;
 * arguments are bounded all together. Embedded; owns its texts. Thread: one. */
#ifndef REFRAIN_ROUTER_ANSWER_TOOL_CALLS_H
#define REFRAIN_ROUTER_ANSWER_TOOL_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"

#define TOOL_CALLS_MAX 128u
#define TOOL_NAME_MAX 256u
#define TOOL_ID_MAX 32u

struct tool_call {
    char name[TOOL_NAME_MAX + 1];
    char id[TOOL_ID_MAX];
    size_t from, bytes; /* its arguments in tool_calls.arguments */
    size_t sent;        /* of those bytes, to the client */
    bool head_sent;     /* the first delta */
};

struct tool_calls {
    struct tool_call *list; /* NULL: none yet */
    uint32_t count, count_max, capacity;
    struct buffer arguments; /* of all calls, one behind the other */
    bool short_ids;
};

void tool_calls_init(struct tool_calls *calls, uint32_t count_max, bool short_ids,
                     size_t arguments_bytes_max);
void tool_calls_done(struct tool_calls *calls);
void tool_calls_clear(struct tool_calls *calls);
/* The name is copied; 1 to TOOL_NAME_MAX bytes. There is room: count < count_max. */
void tool_calls_add(struct tool_calls *calls, const char *name, size_t bytes);
/* To the call added last. */
void tool_calls_append(struct tool_calls *calls, const char *text, size_t bytes);
const char *tool_call_arguments(const struct tool_calls *calls, const struct tool_call *call);

#endif
