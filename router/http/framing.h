/* framing.h - what the words of a request mean for its framing. For parser.c only.
 *
 * Each answers HTTP_EVENT_MORE, or HTTP_EVENT_FAULT with parser->fault set. Thread: the parser's.
 */
#ifndef REFRAIN_ROUTER_HTTP_FRAMING_H
#define REFRAIN_ROUTER_HTTP_FRAMING_H

#include "router/http/parser.h"

/* Set the fault; returns HTTP_EVENT_FAULT. */
enum http_event http_framing_fault(struct http_parser *parser, int status, const char *code,
                                   const char *message);
/* The method is whole. */
enum http_event http_framing_method(struct http_parser *parser);
/* The version is whole, so the target is too: split it. */
enum http_event http_framing_version(struct http_parser *parser, int major, char minor);
/* A header is whole: act on those that frame the message or that must be unique. */
enum http_event http_framing_header(struct http_parser *parser, const struct http_header *header);
/* The blank line: sets body, left, body_total, keep_alive, expect_continue. */
enum http_event http_framing_head(struct http_parser *parser);

#endif
