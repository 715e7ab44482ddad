/* tool_parser.h - an answer's text -> content and tool calls, as it comes.
 *
 * Every way to split the text into pieces gives the same content and calls. A call counts from the
 * moment at which its name and the first byte of its arguments are known; from then on arguments
 * grow with every piece. Text that is no call after all becomes content, with the marker before it;
 * a call that breaks off keeps the arguments it has, and the bytes that broke it are content. White
 * space between calls, and between content and a call, belongs to neither.
 *
 * Bounded: TOOL_HELD_MAX bytes are held back at most, then they are content; calls past the
 * maximum are read and dropped when the client set it, and content past TOOL_CALLS_MAX. Cost:
 * linear; nothing is scanned twice, but a marker's bytes. Thread: one. */
#ifndef REFRAIN_ROUTER_ANSWER_TOOL_PARSER_H
#define REFRAIN_ROUTER_ANSWER_TOOL_PARSER_H

#include <jansson.h>

#include "router/answer/tool_calls.h"
#include "router/answer/tool_format.h"

#define TOOL_HELD_MAX ((size_t)1 << 20)

struct tool_parser;

struct tool_parser_options {
    const struct tool_format *format;
    const json_t *tools;    /* of the request: names and schemas; must outlive the parser */
    bool hide_markers;      /* the format's markers are control tokens: never content */
    bool one_call;          /* calls after the first are dropped */
    struct buffer *content; /* both grow; they must outlive the parser */
    struct tool_calls *calls;
};

struct tool_parser *tool_parser_new(const struct tool_parser_options *options);
void tool_parser_free(struct tool_parser *parser);
void tool_parser_push(struct tool_parser *parser, const char *text, size_t bytes);
/* End of the answer: what was held becomes content, unless it only closes a call. */
void tool_parser_finish(struct tool_parser *parser);

/* The function of that name in a request's `tools`, or NULL. */
const json_t *tools_find(const json_t *tools, const char *name, size_t bytes);

#endif
