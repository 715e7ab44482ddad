/* place.h - a byte of a prompt -> whose text stands there.
 *
 * Thread: any. */
#ifndef REFRAIN_ROUTER_SESSION_PLACE_H
#define REFRAIN_ROUTER_SESSION_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "router/text/chat_template.h"

struct place {
    int32_t message; /* index in the messages that were rendered; -1: none of them */
    const char
        *field; /* "content", "role", "tools", "documents", "chat_template_kwargs"; or
                   "template": the template's own text in front of `message`, or at the end */
};

struct place place_find(const struct text_span *spans, size_t count, uint64_t offset);

#endif
