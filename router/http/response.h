/* response.h - the bytes of a response's head and of an error object. Pure formatting.
 *
 * Appends to the caller's buffers; never fails but for the buffer's own limit. Thread: one. */
#ifndef REFRAIN_ROUTER_HTTP_RESPONSE_H
#define REFRAIN_ROUTER_HTTP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"

enum http_framing {
    HTTP_FRAMING_LENGTH = 0, /* Content-Length */
    HTTP_FRAMING_CHUNKED,
    HTTP_FRAMING_CLOSE, /* the end of the connection ends the body (HTTP/1.0 streams) */
};

struct http_response {
    int status;
    const char *content_type; /* NULL: none */
    enum http_framing framing;
    size_t bytes;      /* HTTP_FRAMING_LENGTH: of the body */
    const char *extra; /* more header lines, each with its CRLF; "" for none */
    const char *date;  /* http_date_text() */
    bool close;        /* Connection: close */
    bool keep_alive;   /* Connection: keep-alive, which only HTTP/1.0 clients need to hear */
};

struct http_date { /* the Date header's text, made once a second */
    uint64_t unix_s;
    char text[32];
};

/* Status line, headers and the blank line. 1xx, 204 and 304 have no length. */
void http_response_head(struct buffer *out, const struct http_response *response);
/* {"error":{"message","type","param","code"}}; type follows from the status, param and code may be
 * NULL. Bytes of `message` that are not UTF-8 become '?'. */
void http_response_error(struct buffer *out, int status, const char *code, const char *param,
                         const char *message);
const char *http_status_text(int status); /* "OK"; "Unknown" for a number not in the table */
const char *http_date_text(struct http_date *date);

#endif
