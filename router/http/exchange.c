/* exchange.c - what a handler sees and says.
 *
 *   exchange_start --> active --reply-----------------------> over
 *                        |  \--begin--> begun --write*, end--> over
 *                        +--- client gone: on_gone ----------> over   (the pointer is dead)
 *
 * Why nothing here calls back: writes only fill the client's buffer, and a client that has to go
 *   is closed at the end of the loop turn. So a handler never finds its exchange dead half-way
 *   through a function, and on_gone never runs inside one of its own calls.
 * Invariants: `active` is true exactly while the owner may use the pointer; when a handler returns
 *   it has ended the response or set on_gone, else its pointer would dangle one day. */
#define LOG_MODULE "http"
#include "router/http/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "router/http/client.h"
#include "router/http/routes.h"
#include "router/http/server_internal.h"
#include "router/http/token.h"

#define ERROR_MESSAGE_BYTES_MAX 4096

void exchange_init(struct http_exchange *exchange, struct http_client *client)
{
    memset(exchange, 0, sizeof(*exchange));
    exchange->client = client;
    buffer_init(&exchange->extra, EXCHANGE_EXTRA_BYTES_MAX);
}

void exchange_done(struct http_exchange *exchange)
{
    ASSERT(!exchange->active);
    buffer_done(&exchange->extra);
}

static void reply_no_path(struct http_exchange *exchange, const char *path)
{
    const char *near = http_routes_near(exchange->client->server->routes, path);

    http_exchange_reply_error(exchange, 404, "not_found", NULL,
                              "There is no path '%.200s' here%s%s%s.", path, near ? "; '" : "",
                              near ? near : "", near ? "' is" : "");
}

/* None, or one that changes nothing. */
static bool is_plain(const char *encoding)
{
    return encoding == NULL || strcasecmp(encoding, "identity") == 0;
}

/* Routes come first: a path that is not here is 404 whatever else the request lacks. */
static void call_handler(struct http_exchange *exchange)
{
    struct http_server *server = exchange->client->server;
    const struct http_parser *parser = &exchange->client->parser;
    struct http_path path = {http_parser_path(parser), http_parser_segment(parser)};
    const struct http_route *route;
    struct buffer allow;

    buffer_init(&allow, 1024);
    route = http_routes_find(server->routes, http_parser_method(parser), &path, &exchange->segment,
                             &allow);
    if (route == NULL && allow.bytes == 0) {
        reply_no_path(exchange, path.text);
    } else if (route == NULL) {
        http_exchange_add_header(exchange, "Allow", allow.data);
        http_exchange_reply_error(exchange, 405, "method_not_allowed", NULL, "This path allows %s.",
                                  allow.data);
    } else if (!parser->has_host && parser->version_minor >= 1 && strcmp(path.text, "/") != 0) {
        /* RFC 9112 3.2. The root page is let off: port probes ask for it in two words, it depends
         * on no Host, and the outside cases hold such a request to be legal. */
        http_exchange_reply_error(exchange, 400, "missing_host", NULL,
                                  "An HTTP/1.1 request needs a Host header.");
    } else if (!is_plain(http_parser_header(parser, "content-encoding"))) {
        http_exchange_add_header(exchange, "Accept-Encoding", "identity");
        http_exchange_reply_error(
            exchange, 415, "unsupported_content_encoding", NULL,
            "Bodies are not unpacked here: send it without Content-Encoding.");
    } else {
        route->handler(exchange, server->user);
    }
    buffer_done(&allow);
}

void exchange_start(struct http_exchange *exchange)
{
    struct http_server *server = exchange->client->server;

    ASSERT(!exchange->active);
    exchange->active = true;
    exchange->begun = false;
    exchange->head_only = strcmp(http_parser_method(&exchange->client->parser), "HEAD") == 0;
    exchange->segment = NULL;
    exchange->on_gone = NULL;
    exchange->owner = NULL;
    buffer_clear(&exchange->extra);
    server->counts.exchanges_open++;
    server->counts.requests_total++;
    call_handler(exchange);
    ASSERT(!exchange->active || exchange->on_gone != NULL);
}

static void finish(struct http_exchange *exchange)
{
    ASSERT(exchange->active && exchange->client->server->counts.exchanges_open > 0);
    exchange->active = false;
    exchange->client->server->counts.exchanges_open--;
}

void exchange_gone(struct http_exchange *exchange)
{
    void (*on_gone)(void *owner) = exchange->on_gone;

    if (!exchange->active)
        return;
    finish(exchange);
    log_info("exchange_gone", "peer=%s status=499 begun=%d", exchange->client->peer,
             exchange->begun);
    if (on_gone != NULL)
        on_gone(exchange->owner);
}

const char *http_exchange_method(const struct http_exchange *exchange)
{
    ASSERT(exchange->active);
    return http_parser_method(&exchange->client->parser);
}

const char *http_exchange_path(const struct http_exchange *exchange)
{
    ASSERT(exchange->active);
    return http_parser_path(&exchange->client->parser);
}

const char *http_exchange_query(const struct http_exchange *exchange)
{
    ASSERT(exchange->active);
    return http_parser_query(&exchange->client->parser);
}

const char *http_exchange_segment(const struct http_exchange *exchange)
{
    ASSERT(exchange->active);
    return exchange->segment;
}

const char *http_exchange_header(const struct http_exchange *exchange, const char *name)
{
    ASSERT(exchange->active);
    return http_parser_header(&exchange->client->parser, name);
}

const void *http_exchange_body(const struct http_exchange *exchange, size_t *ret_bytes)
{
    ASSERT(exchange->active);
    *ret_bytes = exchange->client->body.bytes;
    return exchange->client->body.data;
}

const char *http_exchange_peer(const struct http_exchange *exchange)
{
    ASSERT(exchange->active);
    return exchange->client->peer;
}

void http_exchange_on_gone(struct http_exchange *exchange, void (*on_gone)(void *owner),
                           void *owner)
{
    ASSERT(exchange->active && on_gone != NULL);
    exchange->on_gone = on_gone;
    exchange->owner = owner;
}

bool http_exchange_begun(const struct http_exchange *exchange)
{
    ASSERT(exchange->active);
    return exchange->begun;
}

void http_exchange_add_header(struct http_exchange *exchange, const char *name, const char *value)
{
    ASSERT(exchange->active && !exchange->begun);
    ASSERT(token_is_name(name) && token_is_value(value));
    buffer_append_text(&exchange->extra, name);
    buffer_append_text(&exchange->extra, ": ");
    buffer_append_text(&exchange->extra, value);
    buffer_append_text(&exchange->extra, "\r\n");
    ASSERT(buffer_finish(&exchange->extra) == 0); /* a handler adds a handful of short ones */
}

static void append_head(struct http_exchange *exchange, int status, const char *content_type,
                        size_t bytes)
{
    struct http_client *client = exchange->client;
    bool close = exchange->framing == HTTP_FRAMING_CLOSE || !client_may_stay(client);
    struct http_response response = {
        .status = status,
        .content_type = content_type,
        .framing = exchange->framing,
        .bytes = bytes,
        .extra = exchange->extra.data,
        .date = http_date_text(&client->server->date),
        .close = close,
        .keep_alive = client->parser.version_minor == 0,
    };

    ASSERT(content_type == NULL || token_is_value(content_type));
    client->close_after = close;
    http_response_head(client_out(client), &response);
}

void http_exchange_reply(struct http_exchange *exchange, int status, const char *content_type,
                         const void *body, size_t bytes)
{
    ASSERT(exchange->active && !exchange->begun);
    ASSERT(bytes == 0 || (status != 204 && status != 304));
    exchange->framing = HTTP_FRAMING_LENGTH;
    append_head(exchange, status, content_type, bytes);
    if (!exchange->head_only)
        buffer_append(client_out(exchange->client), body, bytes);
    finish(exchange);
    client_on_answered(exchange->client);
}

void http_exchange_reply_error(struct http_exchange *exchange, int status, const char *code,
                               const char *param, const char *format, ...)
{
    char message[ERROR_MESSAGE_BYTES_MAX];
    struct buffer json;
    va_list args;

    ASSERT(status >= 400);
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args); /* too long is cut */
    va_end(args);
    buffer_init(&json, 8 * ERROR_MESSAGE_BYTES_MAX);
    http_response_error(&json, status, code, param, message);
    ASSERT(buffer_finish(&json) == 0);
    http_exchange_reply(exchange, status, "application/json", json.data, json.bytes);
    buffer_done(&json);
}

void http_exchange_begin(struct http_exchange *exchange, int status, const char *content_type)
{
    ASSERT(exchange->active && !exchange->begun);
    ASSERT(status != 204 && status != 304);
    exchange->framing =
        exchange->client->parser.version_minor == 0 ? HTTP_FRAMING_CLOSE : HTTP_FRAMING_CHUNKED;
    append_head(exchange, status, content_type, 0);
    exchange->begun = true;
    client_on_begun(exchange->client);
}

void exchange_write_parts(struct http_exchange *exchange, const struct http_part *parts,
                          size_t count)
{
    struct buffer *out;
    size_t bytes = 0;

    ASSERT(exchange->active && exchange->begun);
    for (size_t i = 0; i < count; i++)
        bytes += parts[i].bytes;
    if (bytes == 0 || exchange->head_only || !client_may_write(exchange->client))
        return; /* an empty chunk would end the body */
    out = client_out(exchange->client);
    if (exchange->framing == HTTP_FRAMING_CHUNKED)
        buffer_printf(out, "%zx\r\n", bytes);
    for (size_t i = 0; i < count; i++)
        buffer_append(out, parts[i].data, parts[i].bytes);
    if (exchange->framing == HTTP_FRAMING_CHUNKED)
        buffer_append_text(out, "\r\n");
    client_on_written(exchange->client);
}

void http_exchange_write(struct http_exchange *exchange, const void *data, size_t bytes)
{
    struct http_part part = {data, bytes};

    exchange_write_parts(exchange, &part, 1);
}

void http_exchange_end(struct http_exchange *exchange)
{
    ASSERT(exchange->active && exchange->begun);
    if (exchange->framing == HTTP_FRAMING_CHUNKED && !exchange->head_only)
        buffer_append_text(client_out(exchange->client), "0\r\n\r\n");
    finish(exchange);
    client_on_answered(exchange->client);
}
