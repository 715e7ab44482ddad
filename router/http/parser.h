/* parser.h - HTTP/1.1 requests from bytes, strict (RFC 9112), one message at a time.
 *
 * A push parser: it is given bytes as they come, in pieces of any size, and never looks at a byte
 * twice; whole or byte by byte, the outcome is the same. It says what happened one event at a time:
 *
 *     do { event = http_parser_push(parser, data, bytes, &used); ... } while (event != MORE);
 *
 * Ownership: the parser owns one buffer of head_bytes_max and one table of headers_max, both
 * allocated by init; request line and headers are copied there and are read as NUL-terminated texts
 * until the next http_parser_start(). Body bytes are not kept: HTTP_EVENT_BODY points into `data`.
 * Limits: every size below; chunk extensions and trailers are checked, counted and dropped.
 * Thread: one. Never reads past `bytes`, never allocates after init, does not log. */
#ifndef REFRAIN_ROUTER_HTTP_PARSER_H
#define REFRAIN_ROUTER_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_METHOD_BYTES_MAX 32      /* past it: 400 */
#define HTTP_TARGET_BYTES_MAX 8192    /* past it: 414 */
#define HTTP_CHUNK_EXT_BYTES_MAX 4096 /* of all chunks of a message; past it: 400 */

struct http_parser_limits {
    uint32_t head_bytes_max; /* request line, headers, blank line; and again the trailers */
    uint32_t headers_max;
    uint64_t body_bytes_max;
};

enum http_event {
    HTTP_EVENT_MORE = 0, /* all bytes used, the message goes on */
    HTTP_EVENT_HEAD,     /* request line and headers are there; push the rest */
    HTTP_EVENT_BODY,     /* body_data and body_bytes are the next piece of the body */
    HTTP_EVENT_DONE,     /* the message is whole; the next byte is not its own */
    HTTP_EVENT_FAULT,    /* fault says what to answer; nothing behind it can be trusted */
};

struct http_fault {
    int status;          /* 400, 413, 414, 417, 431, 501 or 505 */
    const char *code;    /* for the error object */
    const char *message; /* constant texts: never a client's bytes */
};

struct http_header {
    uint32_t name; /* offsets of terminated texts in the head buffer */
    uint32_t value;
};

enum http_body { HTTP_BODY_NONE = 0, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED };

struct http_parser {
    struct http_parser_limits limits;
    char *head;
    struct http_header *headers;
    uint32_t head_used;  /* bytes of texts kept */
    uint32_t head_bytes; /* bytes of the head (or trailers) seen */
    uint32_t headers_count;
    int state; /* enum state of parser.c */
    int body;  /* enum http_body */

    uint32_t target, path, query, segment; /* offsets in the head buffer */
    uint32_t matched;                      /* bytes of "HTTP/" seen */
    int version_major;
    uint32_t digits;    /* of the chunk size being read */
    uint32_t ext_bytes; /* chunk extensions seen */
    uint64_t content_length;
    uint64_t left;       /* of the body, or of the chunk */
    uint64_t body_total; /* body bytes handed out or promised */
    unsigned codings;    /* of Transfer-Encoding: bits of framing.c */
    bool trailers, has_length, has_transfer_encoding, has_query;

    /* Results, valid from HTTP_EVENT_HEAD on. */
    int version_minor; /* 0 or 1 */
    bool keep_alive;   /* what the client wants and the framing allows */
    bool has_host;
    bool expect_continue;  /* and a body follows */
    const char *body_data; /* HTTP_EVENT_BODY: points into the caller's data */
    size_t body_bytes;
    struct http_fault fault;
};

void http_parser_init(struct http_parser *parser, const struct http_parser_limits *limits);
void http_parser_done(struct http_parser *parser);
/* Forget the message; the next byte begins a new one. */
void http_parser_start(struct http_parser *parser);
/* Use up to `bytes` bytes; *ret_used says how many. After DONE or FAULT only start() may follow. */
enum http_event http_parser_push(struct http_parser *parser, const char *data, size_t bytes,
                                 size_t *ret_used);
/* No byte of a message was seen yet (empty lines before it do not count). */
bool http_parser_at_start(const struct http_parser *parser);
/* The head is there, the body is not whole. */
bool http_parser_in_body(const struct http_parser *parser);

/* HEAD; false as long as the method is not whole. */
bool http_parser_is_head(const struct http_parser *parser);

const char *http_parser_method(const struct http_parser *parser);
const char *http_parser_path(const struct http_parser *parser);  /* decoded, or "*" */
const char *http_parser_query(const struct http_parser *parser); /* raw; NULL: no '?' */
/* The path behind its last '/' that was not percent-encoded. */
const char *http_parser_segment(const struct http_parser *parser);
/* First value of that name, any case; NULL: absent. */
const char *http_parser_header(const struct http_parser *parser, const char *name);

#endif
