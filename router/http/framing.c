/* framing.c - RFC 9112 3 and 6: the request line's words, and how long the message is.
 *
 *   method -> version -> header, header, ... -> head: NONE | LENGTH (Content-Length) | CHUNKED
 *
 * Why apart from parser.c: there the question is which byte may follow, here what it means. Each
 *   function answers MORE, or FAULT with p->fault set; the parser keeps its own state.
 * Invariant: after the head, body_total <= body_bytes_max; a message has one length or none. */
#include "router/http/framing.h"

#include <string.h>
#include <strings.h>

#include "router/http/target.h"
#include "router/http/token.h"

enum coding { CODING_CHUNKED = 1, CODING_OTHER = 2, CODING_AFTER_CHUNKED = 4 };

enum http_event http_framing_fault(struct http_parser *p, int status, const char *code,
                                   const char *message)
{
    p->fault = (struct http_fault){.status = status, .code = code, .message = message};
    return HTTP_EVENT_FAULT;
}

static enum http_event fault(struct http_parser *p, int status, const char *code,
                             const char *message)
{
    return http_framing_fault(p, status, code, message);
}

static enum http_event bad(struct http_parser *p, const char *message)
{
    return http_framing_fault(p, 400, "bad_request", message);
}

/* A method is any token; these two and RTSP's own are other protocols and have other framing. */
enum http_event http_framing_method(struct http_parser *p)
{
    static const char *const rtsp[] = {"ANNOUNCE", "DESCRIBE",      "SETUP",         "PLAY",
                                       "PAUSE",    "TEARDOWN",      "RECORD",        "FLUSH",
                                       "REDIRECT", "GET_PARAMETER", "SET_PARAMETER", NULL};

    for (size_t i = 0; rtsp[i] != NULL; i++) {
        if (strcmp(p->head, rtsp[i]) == 0)
            return bad(p, "The method belongs to RTSP, this server speaks HTTP/1.1.");
    }
    if (strcmp(p->head, "PRI") == 0)
        return fault(p, 505, "unsupported_version", "HTTP/2 is not spoken here, use HTTP/1.1.");
    if (strcmp(p->head, "CONNECT") == 0)
        return fault(p, 501, "unsupported_method", "This server is no proxy: no CONNECT.");
    return HTTP_EVENT_MORE;
}

/* "0.9", "2.0" and "3.0" are real versions that are not spoken here; the rest never was one. */
enum http_event http_framing_version(struct http_parser *p, int major, char minor)
{
    struct http_target target;
    const char *why;

    if (minor < '0' || minor > '9')
        return bad(p, "The HTTP version is malformed.");
    if (major != 1 && minor == (major == 0 ? '9' : '0') && major <= 3)
        return fault(p, 505, "unsupported_version", "Only HTTP/1.1 and HTTP/1.0 are spoken here.");
    if (major != 1)
        return bad(p, "There is no such HTTP version.");
    p->version_minor = minor == '0' ? 0 : 1; /* RFC 9110 2.5: a higher minor is read as ours */
    why = http_target_split(p->head + p->target, &target);
    if (why != NULL)
        return bad(p, why);
    p->path = p->target + target.path;
    p->segment = p->target + target.segment;
    p->query = p->target + target.query;
    p->has_query = target.has_query;
    return HTTP_EVENT_MORE;
}

static enum http_event check_length(struct http_parser *p, const char *value)
{
    uint64_t length = 0;

    if (p->has_length)
        return bad(p, "There are two Content-Length headers.");
    if (*value == '\0')
        return bad(p, "The Content-Length is empty.");
    for (; *value != '\0'; value++) {
        unsigned digit = (unsigned)(*value - '0');
        if (digit > 9)
            return bad(p, "The Content-Length is not a decimal number.");
        if (length > (UINT64_MAX / 2 - digit) / 10)
            return bad(p, "The Content-Length is too large for a number.");
        length = 10 * length + digit;
    }
    p->has_length = true;
    p->content_length = length;
    return HTTP_EVENT_MORE;
}

static enum http_event check_codings(struct http_parser *p, const char *value)
{
    const char *element;
    size_t bytes;

    p->has_transfer_encoding = true;
    while ((element = http_list_next(&value, &bytes)) != NULL) {
        bool chunked = bytes == 7 && strncasecmp(element, "chunked", 7) == 0;

        if ((p->codings & CODING_CHUNKED) != 0)
            p->codings |= CODING_AFTER_CHUNKED;
        p->codings |= chunked ? CODING_CHUNKED : CODING_OTHER;
    }
    return HTTP_EVENT_MORE;
}

/* A whole header line is kept: act on the ones that frame the message or that must be unique. */
enum http_event http_framing_header(struct http_parser *p, const struct http_header *header)
{
    const char *name = p->head + header->name;
    const char *value = p->head + header->value;

    switch (header->value - header->name - 1) { /* bytes of the name */
    case 4:
        if (strcasecmp(name, "host") != 0)
            break;
        if (p->has_host)
            return bad(p, "There are two Host headers.");
        p->has_host = true;
        return token_is_host(value) ? HTTP_EVENT_MORE : bad(p, "The Host header is malformed.");
    case 6:
        if (strcasecmp(name, "expect") != 0)
            break;
        if (strcasecmp(value, "100-continue") != 0)
            return fault(p, 417, "unsupported_expectation", "Only 100-continue can be expected.");
        p->expect_continue = true;
        break;
    case 14:
        if (strcasecmp(name, "content-length") == 0)
            return check_length(p, value);
        break;
    case 17:
        if (strcasecmp(name, "transfer-encoding") == 0)
            return check_codings(p, value);
        break;
    default:
        break;
    }
    return HTTP_EVENT_MORE;
}

/* May the connection outlive the message? After an Upgrade the client may go on in another
 * protocol; only h2c clients are known to stay with HTTP/1.1 when the offer is ignored. */
static bool wants_keep_alive(const struct http_parser *p)
{
    bool keep_alive = p->version_minor >= 1;
    const char *upgrade = http_parser_header(p, "upgrade");

    for (uint32_t i = 0; i < p->headers_count; i++) {
        const char *value = p->head + p->headers[i].value;

        if (strcasecmp(p->head + p->headers[i].name, "connection") != 0)
            continue;
        if (http_list_has(value, "close"))
            return false;
        if (http_list_has(value, "keep-alive"))
            keep_alive = true;
        if (upgrade != NULL && http_list_has(value, "upgrade") && strcasecmp(upgrade, "h2c") != 0)
            return false;
    }
    return keep_alive;
}

/* The blank line: how long is the message (RFC 9112 6.3)? */
enum http_event http_framing_head(struct http_parser *p)
{
    if (p->has_transfer_encoding) {
        if (p->version_minor == 0)
            return bad(p, "HTTP/1.0 has no Transfer-Encoding.");
        if (p->has_length)
            return bad(p, "Content-Length and Transfer-Encoding exclude each other.");
        if (p->codings == 0 || (p->codings & CODING_AFTER_CHUNKED) != 0)
            return bad(p, "The Transfer-Encoding must end in one \"chunked\".");
        if (p->codings != CODING_CHUNKED)
            return fault(p, 501, "unsupported_transfer_coding",
                         "The only transfer coding understood is \"chunked\".");
        p->body = HTTP_BODY_CHUNKED;
    } else if (p->has_length && p->content_length > 0) {
        if (p->content_length > p->limits.body_bytes_max)
            return fault(p, 413, "body_too_large", "The body is over the limit.");
        p->body = HTTP_BODY_LENGTH;
        p->left = p->content_length;
        p->body_total = p->content_length;
    }
    p->expect_continue = p->expect_continue && p->body != HTTP_BODY_NONE && p->version_minor >= 1;
    p->keep_alive = wants_keep_alive(p);
    return HTTP_EVENT_MORE;
}
