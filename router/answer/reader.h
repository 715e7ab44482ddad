/* reader.h - all that is read out of one answer: reasoning, content, tool calls.
 *
 *   text --reasoning--> thoughts
 *            |
 *            +--tool parser--> content, calls
 *
 * Each half may be off. Embedded; its parser holds pointers into it, so it must not be moved.
 * Thread: one. */
#ifndef REFRAIN_ROUTER_ANSWER_READER_H
#define REFRAIN_ROUTER_ANSWER_READER_H

#include "proto/reasoning.h"
#include "router/answer/tool_parser.h"

struct answer_reader_plan {
    const struct reasoning_format *reasoning; /* NULL: nothing is reasoning */
    enum reasoning_state reasoning_start;
    bool drop_reasoning;
    const struct tool_format *tool_format; /* NULL: no calls are looked for */
    const json_t *tools;
    bool hide_markers, one_call;
    size_t bytes_max; /* of thoughts, of arguments */
};

struct answer_reader {
    const struct answer_reader_plan *plan;
    struct reasoning reasoning;
    struct tool_parser *parser; /* NULL: off */
    struct buffer *content;     /* the caller's */
    struct buffer thoughts;     /* the caller may clear it when it was sent */
    struct buffer visible;      /* between the two parsers */
    struct tool_calls calls;
};

void answer_reader_init(struct answer_reader *reader, const struct answer_reader_plan *plan,
                        struct buffer *content);
void answer_reader_done(struct answer_reader *reader);
/* As after init; the caller clears `content`. */
void answer_reader_restart(struct answer_reader *reader);
void answer_reader_push(struct answer_reader *reader, const char *text, size_t bytes);
/* The answer is over. */
void answer_reader_finish(struct answer_reader *reader);
int answer_reader_check(const struct answer_reader *reader);    /* 0, or -ENOBUFS: over bytes_max */
size_t answer_reader_bytes(const struct answer_reader *reader); /* memory of what was read */

#endif
