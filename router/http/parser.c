/* parser.c - the states of one HTTP/1.1 request.
 *
 *   START -> METHOD -> TARGET -> VERSION -> MINOR -> LINE_CR? -> LINE_LF
 *                                                                   |
 *      +------------------------------------------------------------+
 *      v
 *   FIELD -> NAME -> OWS -> VALUE -> VALUE_LF --> FIELD     (one round per header or trailer)
 *      +---> FIELDS_LF --+--> DONE                          no body, or these were the trailers
 *                        +--> LENGTH ---------------> DONE  Content-Length bytes
 *                        +--> SIZE -> EXT* -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE ...
 *                                                   +--> FIELD (trailers) after the last chunk
 *
 * Why a byte machine and not lines: a fault is seen at its own byte, so a client that sends half a
 *   line and waits gets its 400 now, and how the bytes were cut into packets cannot matter.
 * Why strict: two parsers in a row that disagree on where a message ends let a client hide one
 *   request in another. Whatever RFC 9112 calls invalid is refused, not repaired: bare CR or LF,
 *   folded lines, space before a colon, two lengths, length with chunks, anything but "chunked".
 *   Two looser points, both harmless because no byte is left over: '#fragment' in a target is
 *   dropped, and any method name is taken (the routes answer 404 or 405).
 * Cost: one pass, one table look-up per byte of the head; the body is only measured.
 * Invariants: head_used <= head_bytes <= head_bytes_max; body_total <= body_bytes_max. */
#include "router/http/parser.h"

#include <string.h>
#include <strings.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/http/framing.h"
#include "router/http/token.h"

enum state {
    S_START = 0,
    S_START_LF,
    S_METHOD,
    S_TARGET,
    S_TARGET_LF, /* HTTP/0.9: a line of two words */
    S_VERSION,
    S_MAJOR,
    S_DOT,
    S_MINOR,
    S_LINE_CR,
    S_LINE_LF,
    S_FIELD,
    S_NAME,
    S_OWS,
    S_VALUE,
    S_VALUE_LF,
    S_FIELDS_LF,
    S_LENGTH,
    S_SIZE,
    S_SIZE_OWS,
    S_EXT,
    S_EXT_QUOTED,
    S_EXT_ESCAPE,
    S_EXT_QUOTED_END,
    S_SIZE_LF,
    S_DATA,
    S_DATA_CR,
    S_DATA_LF,
    S_DONE,
    S_FAULT,
};

static enum http_event bad(struct http_parser *p, const char *message)
{
    return http_framing_fault(p, 400, "bad_request", message);
}

void http_parser_init(struct http_parser *p, const struct http_parser_limits *limits)
{
    ASSERT(limits->head_bytes_max > 0 && limits->headers_max > 0);
    memset(p, 0, sizeof(*p));
    p->limits = *limits;
    p->head = mem_alloc(limits->head_bytes_max);
    p->headers = mem_calloc(limits->headers_max, sizeof(*p->headers));
    http_parser_start(p);
}

void http_parser_done(struct http_parser *p)
{
    mem_free(p->head);
    mem_free(p->headers);
    memset(p, 0, sizeof(*p));
}

void http_parser_start(struct http_parser *p)
{
    struct http_parser fresh = {.limits = p->limits, .head = p->head, .headers = p->headers};

    *p = fresh;
}

bool http_parser_at_start(const struct http_parser *p)
{
    return p->state == S_START || p->state == S_START_LF;
}

bool http_parser_in_body(const struct http_parser *p)
{
    return p->state != S_FAULT && p->state != S_DONE && (p->state >= S_LENGTH || p->trailers);
}

bool http_parser_is_head(const struct http_parser *p)
{
    return p->target > 0 && strcmp(p->head, "HEAD") == 0;
}

const char *http_parser_method(const struct http_parser *p)
{
    return p->head; /* the first text kept */
}

const char *http_parser_path(const struct http_parser *p)
{
    return p->head + p->path;
}

const char *http_parser_query(const struct http_parser *p)
{
    return p->has_query ? p->head + p->query : NULL;
}

const char *http_parser_segment(const struct http_parser *p)
{
    return p->head + p->segment;
}

const char *http_parser_header(const struct http_parser *p, const char *name)
{
    for (uint32_t i = 0; i < p->headers_count; i++) {
        if (strcasecmp(p->head + p->headers[i].name, name) == 0)
            return p->head + p->headers[i].value;
    }
    return NULL;
}

static void keep(struct http_parser *p, char c)
{
    if (p->trailers)
        return;
    ASSERT(p->head_used < p->head_bytes);
    p->head[p->head_used++] = c;
}

/* The end of a text in the head buffer: there is always room, a delimiter was seen and not kept. */
static void terminate(struct http_parser *p)
{
    ASSERT(p->head_used < p->head_bytes);
    p->head[p->head_used++] = '\0';
}

static enum http_event end_field(struct http_parser *p)
{
    struct http_header *header;

    p->state = S_VALUE_LF;
    if (p->trailers)
        return HTTP_EVENT_MORE; /* checked, counted, dropped */
    header = &p->headers[p->headers_count];
    while (p->head_used > header->value &&
           (p->head[p->head_used - 1] == ' ' || p->head[p->head_used - 1] == '\t'))
        p->head_used--;
    terminate(p);
    p->headers_count++;
    return http_framing_header(p, header);
}

static enum http_event begin_field(struct http_parser *p, char c)
{
    if (!p->trailers) {
        if (p->headers_count == p->limits.headers_max)
            return http_framing_fault(p, 431, "headers_too_large", "There are too many headers.");
        p->headers[p->headers_count].name = p->head_used;
    }
    keep(p, c);
    p->state = S_NAME;
    return HTTP_EVENT_MORE;
}

static enum http_event end_head(struct http_parser *p)
{
    static const enum state next[] = {
        [HTTP_BODY_NONE] = S_DONE, [HTTP_BODY_LENGTH] = S_LENGTH, [HTTP_BODY_CHUNKED] = S_SIZE};
    enum http_event event = http_framing_head(p);

    p->state = next[p->body];
    return event == HTTP_EVENT_MORE ? HTTP_EVENT_HEAD : event;
}

static enum http_event end_message(struct http_parser *p)
{
    p->state = S_DONE;
    return HTTP_EVENT_DONE;
}

/* States of the request line. */
static enum http_event line_byte(struct http_parser *p, char c)
{
    switch (p->state) {
    case S_START:
        if (c == '\r') {
            p->state = S_START_LF; /* RFC 9112 2.2: empty lines before a request are skipped */
            return HTTP_EVENT_MORE;
        }
        if (!token_is(c, TOKEN_TCHAR))
            return bad(p, "The request does not begin with a method.");
        keep(p, c);
        p->state = S_METHOD;
        return HTTP_EVENT_MORE;
    case S_START_LF:
        p->state = S_START;
        return c == '\n' ? HTTP_EVENT_MORE : bad(p, "There is a bare CR before the request.");
    case S_METHOD:
        if (c != ' ')
            return bad(p, "The method is malformed.");
        terminate(p);
        p->target = p->head_used;
        p->state = S_TARGET;
        return http_framing_method(p);
    case S_TARGET:
        if (p->head_used == p->target)
            return bad(p, "The target is missing.");
        if (c != ' ' && c != '\r')
            return bad(p, "The target has a character that must be percent-encoded.");
        terminate(p);
        p->state = c == ' ' ? S_VERSION : S_TARGET_LF;
        return HTTP_EVENT_MORE;
    case S_TARGET_LF:
        return c == '\n' ? http_framing_fault(p, 505, "unsupported_version",
                                              "HTTP/0.9 is not spoken here.")
                         : bad(p, "There is a bare CR in the request line.");
    case S_VERSION:
        if (c != "HTTP/"[p->matched])
            return bad(p, "The request line does not end in an HTTP version.");
        p->state = ++p->matched == 5 ? S_MAJOR : S_VERSION;
        return HTTP_EVENT_MORE;
    case S_MAJOR:
        if (c < '0' || c > '9')
            return bad(p, "The HTTP version is malformed.");
        p->version_major = c - '0';
        p->state = S_DOT;
        return HTTP_EVENT_MORE;
    case S_DOT:
        p->state = S_MINOR;
        return c == '.' ? HTTP_EVENT_MORE : bad(p, "The HTTP version is malformed.");
    case S_MINOR:
        p->state = S_LINE_CR;
        return http_framing_version(p, p->version_major, c);
    case S_LINE_CR:
        p->state = S_LINE_LF;
        return c == '\r' ? HTTP_EVENT_MORE : bad(p, "The request line does not end in CRLF.");
    default:
        ASSERT(p->state == S_LINE_LF);
        p->state = S_FIELD;
        return c == '\n' ? HTTP_EVENT_MORE : bad(p, "The request line does not end in CRLF.");
    }
}

/* States of header and trailer lines. */
static enum http_event field_byte(struct http_parser *p, char c)
{
    switch (p->state) {
    case S_FIELD:
        if (c == '\r') {
            p->state = S_FIELDS_LF;
            return HTTP_EVENT_MORE;
        }
        if (c == ' ' || c == '\t')
            return bad(p, "A header line begins with a space (folded lines are obsolete).");
        if (!token_is(c, TOKEN_TCHAR))
            return bad(p, "A header name has a character that is not allowed.");
        return begin_field(p, c);
    case S_NAME:
        if (c != ':')
            return bad(p, "A header name has a character that is not allowed.");
        if (!p->trailers) {
            terminate(p);
            p->headers[p->headers_count].value = p->head_used;
        }
        p->state = S_OWS;
        return HTTP_EVENT_MORE;
    case S_OWS:
        if (c == ' ' || c == '\t')
            return HTTP_EVENT_MORE;
        /* fall through */
    case S_VALUE:
        if (c == '\r')
            return end_field(p);
        if (!token_is(c, TOKEN_VALUE))
            return bad(p, "A header value has a control character.");
        keep(p, c);
        p->state = S_VALUE;
        return HTTP_EVENT_MORE;
    case S_VALUE_LF:
        p->state = S_FIELD;
        return c == '\n' ? HTTP_EVENT_MORE : bad(p, "A header line does not end in CRLF.");
    default:
        ASSERT(p->state == S_FIELDS_LF);
        if (c != '\n')
            return bad(p, "The headers do not end in CRLF.");
        return p->trailers ? end_message(p) : end_head(p);
    }
}

static enum http_event end_size(struct http_parser *p)
{
    p->state = S_SIZE_LF;
    return HTTP_EVENT_MORE;
}

/* States between chunks. */
static enum http_event chunk_byte(struct http_parser *p, char c)
{
    switch (p->state) {
    case S_SIZE:
        if (token_hex(c) >= 0) {
            p->left = 16 * p->left + (uint64_t)token_hex(c);
            if (++p->digits > 16)
                return bad(p, "A chunk size has more than 16 digits.");
            if (p->left > p->limits.body_bytes_max - p->body_total)
                return http_framing_fault(p, 413, "body_too_large", "The body is over the limit.");
            return HTTP_EVENT_MORE;
        }
        if (p->digits == 0)
            return bad(p, "A chunk size is missing.");
        /* fall through */
    case S_EXT_QUOTED_END:
    case S_SIZE_OWS: /* spaces before ';' must be read (RFC 9112 7.1.1), before CR they are faults
                      */
        if (c == '\r' && p->state != S_SIZE_OWS)
            return end_size(p);
        if (c != ';' && c != ' ' && c != '\t')
            return bad(p, "A chunk size is malformed.");
        p->state = c == ';' ? S_EXT : S_SIZE_OWS;
        break;
    case S_EXT:
        if (c == '\r')
            return end_size(p);
        if (c == '"')
            p->state = S_EXT_QUOTED;
        else if (!token_is(c, TOKEN_TCHAR) && c != '=' && c != ';' && c != ' ' && c != '\t')
            return bad(p, "A chunk extension is malformed.");
        break;
    case S_EXT_QUOTED:
        if (!token_is(c, TOKEN_VALUE))
            return bad(p, "A chunk extension is malformed.");
        p->state = c == '"' ? S_EXT_QUOTED_END : c == '\\' ? S_EXT_ESCAPE : S_EXT_QUOTED;
        break;
    case S_EXT_ESCAPE:
        p->state = S_EXT_QUOTED;
        if (!token_is(c, TOKEN_VALUE))
            return bad(p, "A chunk extension is malformed.");
        break;
    case S_SIZE_LF:
        if (c != '\n')
            return bad(p, "A chunk size does not end in CRLF.");
        p->trailers = p->left == 0;
        p->head_bytes = 0; /* the trailers have the limit of a head of their own */
        p->body_total += p->left;
        p->state = p->trailers ? S_FIELD : S_DATA;
        return HTTP_EVENT_MORE;
    case S_DATA_CR:
        p->state = S_DATA_LF;
        return c == '\r' ? HTTP_EVENT_MORE : bad(p, "A chunk does not end in CRLF.");
    default:
        ASSERT(p->state == S_DATA_LF);
        p->state = S_SIZE;
        p->digits = 0;
        return c == '\n' ? HTTP_EVENT_MORE : bad(p, "A chunk does not end in CRLF.");
    }
    if (++p->ext_bytes > HTTP_CHUNK_EXT_BYTES_MAX)
        return bad(p, "The chunk extensions are over the limit.");
    return HTTP_EVENT_MORE;
}

/* Copy a run of bytes that need no decision; 0: the next byte needs one. */
static size_t take_run(struct http_parser *p, const char *data, size_t bytes)
{
    enum token_class class = p->state == S_VALUE    ? TOKEN_VALUE
                             : p->state == S_TARGET ? TOKEN_TARGET
                                                    : TOKEN_TCHAR;
    size_t room = p->limits.head_bytes_max - p->head_bytes;
    size_t run;

    if (p->state == S_METHOD)
        room = HTTP_METHOD_BYTES_MAX - p->head_used < room ? HTTP_METHOD_BYTES_MAX - p->head_used
                                                           : room;
    run = token_span(data, bytes < room ? bytes : room, class);
    if (!p->trailers) {
        memcpy(p->head + p->head_used, data, run);
        p->head_used += (uint32_t)run;
    }
    p->head_bytes += (uint32_t)run;
    return run;
}

static enum http_event head_byte(struct http_parser *p, char c)
{
    if (p->head_bytes == p->limits.head_bytes_max)
        return p->state <= S_TARGET ? http_framing_fault(p, 414, "target_too_long",
                                                         "The request target is over the limit.")
                                    : http_framing_fault(p, 431, "headers_too_large",
                                                         "The headers are over the limit.");
    p->head_bytes++;
    return p->state < S_FIELD ? line_byte(p, c) : field_byte(p, c);
}

/* A piece of the body, as long as data and message allow. */
static enum http_event take_body(struct http_parser *p, const char *data, size_t bytes)
{
    p->body_data = data;
    p->body_bytes = bytes < p->left ? bytes : (size_t)p->left;
    p->left -= p->body_bytes;
    if (p->left == 0)
        p->state = p->state == S_LENGTH ? S_DONE : S_DATA_CR;
    return HTTP_EVENT_BODY;
}

enum http_event http_parser_push(struct http_parser *p, const char *data, size_t bytes,
                                 size_t *ret_used)
{
    enum http_event event = HTTP_EVENT_MORE;
    size_t used = 0;

    ASSERT(p->state != S_FAULT);
    if (p->state == S_DONE)
        event = HTTP_EVENT_DONE;
    while (event == HTTP_EVENT_MORE && used < bytes) {
        if (p->state == S_LENGTH || p->state == S_DATA) {
            event = take_body(p, data + used, bytes - used);
            used += p->body_bytes;
            break;
        }
        if (p->state == S_METHOD || p->state == S_TARGET || p->state == S_NAME ||
            p->state == S_VALUE) {
            used += take_run(p, data + used, bytes - used);
            if (p->state == S_TARGET && p->head_used - p->target > HTTP_TARGET_BYTES_MAX)
                event = http_framing_fault(p, 414, "target_too_long",
                                           "The request target is over the limit.");
            if (event != HTTP_EVENT_MORE || used == bytes)
                break;
        }
        event = p->state < S_LENGTH ? head_byte(p, data[used]) : chunk_byte(p, data[used]);
        used++;
    }
    if (event == HTTP_EVENT_FAULT)
        p->state = S_FAULT;
    *ret_used = used;
    return event;
}
