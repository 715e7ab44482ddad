/* client.c - one connection: bytes in, exchanges one after the other, bytes out.
 *
 *             first byte          head whole         body whole           begin
 *      IDLE -------------> HEAD -------------> BODY -------------> HANDLER -----> STREAM
 *       ^ |                  | \_______no body______________________^ |             |
 *       | |                  +-- fault, 408 --+-- fault, 408 --+      | reply       | end
 *       | +-- drain, end of input ------------|----------------|------|-------------|--+
 *       |                                     v                v      v             v  |
 *       +------------- keep-alive --------------------------- answered --- close ---> FLUSH
 *                                                                                      |
 *      CLOSING <-- reset, stalled write, server closes: from anywhere      all sent    v
 *              <-- the client closed, CLIENT_LINGER_MS, _BYTES ------------------- LINGER
 *
 * One exchange at a time, in order. While it is open nothing is parsed: pipelined bytes wait in
 *   `in`, up to a limit, then reading stops. Reading goes on until then only to see the end.
 * Writes fill `out`; the end of the turn sends it. What the socket does not take becomes `sending`
 *   and belongs to uv_write. Both together are bounded: a slow reader is doomed, and closed at the
 *   end of the turn, never inside a call of its handler.
 * LINGER: closing with unread input would make the kernel send a reset, which may overtake the
 *   answer (a 413 above all). So our side is shut first and input is dropped for a while.
 *
 * End of input while an exchange is open. A client that has closed and a client that has only shut
 *   its side look the same: one FIN. The next bytes sent tell: a closed socket answers with a
 *   reset. A response that is being written finds out by itself; where nothing is written for
 *   CLIENT_PROBE_AFTER_MS, we write something that means nothing: before the response an interim
 *   "100 Continue" (any HTTP/1.1 client must accept it), within a chunked one a '0', which becomes
 *   a leading zero of the next chunk's size. Then the socket is looked at every
 *   CLIENT_PROBE_EVERY_MS. A half-closed client lives on and gets its answer, a closed one is
 *   noticed within some 70 ms. HTTP/1.0 has nothing to send: CLIENT_HALF_CLOSE_GRACE_MS to finish.
 * Invariants: exchange.active only in HANDLER and STREAM; on `ended` only then; CLOSING is on no
 *   list; unsent bytes exist only in `out` and `sending`. */
#define LOG_MODULE "http"
#include "router/http/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "router/http/response.h"
#include "router/http/server_internal.h"

#define KEEPALIVE_S 60

static const char *const state_names[CLIENT_STATES] = {
    "idle", "head", "body", "handler", "stream", "flush", "linger", "closing",
};

static const bool may_follow[CLIENT_STATES][CLIENT_STATES] = {
    [CLIENT_IDLE] = {[CLIENT_HEAD] = true, [CLIENT_FLUSH] = true, [CLIENT_CLOSING] = true},
    [CLIENT_HEAD] = {[CLIENT_BODY] = true,
                     [CLIENT_HANDLER] = true,
                     [CLIENT_FLUSH] = true,
                     [CLIENT_CLOSING] = true},
    [CLIENT_BODY] = {[CLIENT_HANDLER] = true, [CLIENT_FLUSH] = true, [CLIENT_CLOSING] = true},
    [CLIENT_HANDLER] = {[CLIENT_STREAM] = true,
                        [CLIENT_IDLE] = true,
                        [CLIENT_FLUSH] = true,
                        [CLIENT_CLOSING] = true},
    [CLIENT_STREAM] = {[CLIENT_IDLE] = true, [CLIENT_FLUSH] = true, [CLIENT_CLOSING] = true},
    [CLIENT_FLUSH] = {[CLIENT_LINGER] = true, [CLIENT_CLOSING] = true},
    [CLIENT_LINGER] = {[CLIENT_CLOSING] = true},
};

/* `limit_ms`: how long the state may last; 0: for ever. */
static void client_set_state(struct http_client *c, enum client_state next, uint32_t limit_ms,
                             const char *why)
{
    ASSERT(may_follow[c->state][next]);
    log_debug("client_state", "peer=%s from=%s to=%s why=\"%s\"", c->peer, state_names[c->state],
              state_names[next], why);
    c->state = next;
    c->deadline_ms = limit_ms == 0 ? 0 : uv_now(c->server->loop) + limit_ms;
}

static bool may_parse(const struct http_client *c)
{
    return c->state <= CLIENT_BODY;
}

static void mark_dirty(struct http_client *c)
{
    server_mark_dirty(c->server, &c->dirty_link);
}

static void doom(struct http_client *c, const char *why)
{
    if (c->doom == NULL)
        c->doom = why;
    mark_dirty(c);
}

/* Bytes handed over by handlers that the kernel has not taken. */
static size_t unsent(const struct http_client *c)
{
    return c->out.bytes +
           (c->writing ? uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp) : 0);
}

static void on_closed(uv_handle_t *handle)
{
    struct http_client *c = handle->data;
    struct http_server *server = c->server;

    ASSERT(c->state == CLIENT_CLOSING);
    exchange_done(&c->exchange);
    http_parser_done(&c->parser);
    buffer_done(&c->body);
    buffer_done(&c->in);
    buffer_done(&c->out);
    buffer_done(&c->sending);
    mem_free(c);
    server_client_closed(server);
}

void client_close(struct http_client *c, const char *why)
{
    if (c->state == CLIENT_CLOSING)
        return;
    client_set_state(c, CLIENT_CLOSING, 0, why);
    list_remove(&c->link);
    list_remove(&c->dirty_link);
    list_remove(&c->ended_link);
    uv_close((uv_handle_t *)&c->tcp, on_closed);
    exchange_gone(&c->exchange); /* last: the owner may do anything now */
}

/* Sending. */

static void on_write(uv_write_t *request, int status)
{
    struct http_client *c = request->data;

    c->writing = false;
    c->sent_total += c->sending_left;
    buffer_trim(&c->sending, CLIENT_KEEP_BYTES_MAX);
    if (c->state == CLIENT_CLOSING)
        return;
    if (status < 0)
        client_close(c, uv_err_name(status));
    else
        client_flush(c);
}

/* Give `out` to the socket. 0, or the negative errno of a connection that is over. */
static int client_send(struct http_client *c)
{
    uv_stream_t *stream = (uv_stream_t *)&c->tcp;
    struct buffer taken;
    uv_buf_t rest;
    int r;

    if (c->writing || c->out.bytes == 0)
        return 0;
    r = buffer_finish(&c->out);
    if (r < 0)
        return r;
    rest =
        uv_buf_init(c->out.data, (unsigned)(c->out.bytes < INT32_MAX ? c->out.bytes : INT32_MAX));
    r = uv_try_write(stream, &rest, 1);
    if (r < 0 && r != UV_EAGAIN)
        return r;
    rest.base += r > 0 ? r : 0;
    rest.len = c->out.bytes - (size_t)(rest.base - c->out.data);
    c->sent_total += c->out.bytes - rest.len;
    if (rest.len == 0) {
        buffer_trim(&c->out, CLIENT_KEEP_BYTES_MAX);
        return 0;
    }
    taken = c->out; /* its bytes stay where they are until on_write */
    c->out = c->sending;
    c->sending = taken;
    c->sending_left = rest.len;
    c->writing = true;
    c->write.data = c;
    return uv_write(&c->write, stream, &rest, 1, on_write);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    struct http_client *c = request->data;

    if (status < 0)
        client_close(c, uv_err_name(status)); /* harmless when it is closing already */
}

/* Everything is sent and nothing more will be. */
static void finish(struct http_client *c)
{
    int r;

    if (c->ended) {
        client_close(c, "done");
        return;
    }
    client_set_state(c, CLIENT_LINGER, CLIENT_LINGER_MS, "sent");
    c->shutdown.data = c;
    r = uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown);
    if (r < 0)
        client_close(c, uv_err_name(r));
}

/* The fault's sentence, with the number where a limit was passed. */
static void fault_text(const struct http_client *c, const struct http_fault *fault, char *ret_text,
                       size_t text_max)
{
    const struct http_limits *limits = &c->server->limits;

    if (fault->status == 413)
        (void)snprintf(ret_text, text_max, "%s At most %llu bytes are taken.", fault->message,
                       (unsigned long long)limits->body_bytes_max);
    else if (fault->status == 431)
        (void)snprintf(ret_text, text_max, "%s At most %u bytes and %u headers are taken.",
                       fault->message, limits->header_bytes_max, limits->headers_max);
    else
        (void)snprintf(ret_text, text_max, "%s", fault->message);
}

/* Answer a fault of the framing or of time; no request of this connection is read after it. */
static void client_fault(struct http_client *c, const struct http_fault *fault)
{
    struct http_response response = {
        .status = fault->status,
        .content_type = "application/json",
        .extra = "",
        .date = http_date_text(&c->server->date),
        .close = true,
    };
    struct buffer json;
    char text[256];

    ASSERT(may_parse(c) && !c->exchange.active);
    buffer_init(&json, 4096);
    fault_text(c, fault, text, sizeof(text));
    http_response_error(&json, fault->status, fault->code, NULL, text);
    response.bytes = json.bytes;
    http_response_head(&c->out, &response);
    if (!http_parser_is_head(&c->parser))
        buffer_append(&c->out, json.data, json.bytes);
    buffer_done(&json);
    c->server->counts.rejected_total++;
    buffer_trim(&c->body, CLIENT_KEEP_BYTES_MAX);
    buffer_trim(&c->in, CLIENT_KEEP_BYTES_MAX);
    client_set_state(c, CLIENT_FLUSH, 0, fault->code);
    mark_dirty(c);
}

/* Reading. */

/* `left`: bytes that came with the head; with some of the body here nobody waits for a 100. */
static void on_head(struct http_client *c, size_t left)
{
    if (c->parser.body == HTTP_BODY_NONE)
        return;
    client_set_state(c, CLIENT_BODY, c->server->limits.body_timeout_ms, "head");
    if (c->parser.expect_continue && left == 0) {
        buffer_append_text(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        mark_dirty(c);
    }
}

static void on_body(struct http_client *c)
{
    static const struct http_fault no_memory = {503, "out_of_memory",
                                                "There is no memory for the body."};

    buffer_append(&c->body, c->parser.body_data, c->parser.body_bytes);
    if (buffer_finish(&c->body) < 0) /* its size was checked by the parser */
        client_fault(c, &no_memory);
}

/* From here on the handler, or whatever it set in motion, calls back into client_on_*(). */
static void on_request(struct http_client *c)
{
    client_set_state(c, CLIENT_HANDLER, 0, "request");
    c->close_after = false;
    exchange_start(&c->exchange);
    buffer_trim(&c->body, CLIENT_KEEP_BYTES_MAX); /* an answer may take minutes: not so the body */
}

/* Parse and serve what can be served now. Returns the bytes used. */
static size_t client_run(struct http_client *c, const char *data, size_t bytes)
{
    enum http_event event = HTTP_EVENT_HEAD;
    size_t total = 0;

    while (event != HTTP_EVENT_MORE && may_parse(c) && c->doom == NULL) {
        size_t used;

        if (c->state == CLIENT_IDLE && unsent(c) > CLIENT_SEND_EARLY_BYTES)
            break; /* who does not read answers gets no more of them */
        event = http_parser_push(&c->parser, data + total, bytes - total, &used);
        total += used;
        if (c->state == CLIENT_IDLE && event != HTTP_EVENT_FAULT &&
            !http_parser_at_start(&c->parser))
            client_set_state(c, CLIENT_HEAD, c->server->limits.header_timeout_ms, "first byte");
        if (event == HTTP_EVENT_HEAD)
            on_head(c, bytes - total);
        else if (event == HTTP_EVENT_BODY)
            on_body(c);
        else if (event == HTTP_EVENT_DONE)
            on_request(c);
        else if (event == HTTP_EVENT_FAULT)
            client_fault(c, &c->parser.fault);
    }
    return total;
}

static void watch_ended(struct http_client *c)
{
    if (!c->ended || !c->exchange.active || !list_empty(&c->ended_link))
        return;
    c->ended_ms = uv_now(c->server->loop);
    c->probed = false;
    server_mark_ended(c->server, &c->ended_link);
}

static void on_end(struct http_client *c)
{
    (void)uv_read_stop((uv_stream_t *)&c->tcp);
    c->reading = false;
    c->ended = true;
    if (c->state == CLIENT_LINGER)
        client_close(c, "client closed");
    else if (c->exchange.active)
        watch_ended(c);
    else
        mark_dirty(c); /* to serve what waits in `in`, then to finish */
}

static void on_drop(struct http_client *c, size_t bytes)
{
    c->dropped_bytes += bytes;
    if (c->dropped_bytes > CLIENT_LINGER_BYTES_MAX)
        client_close(c, "client goes on sending");
}

static void on_input(struct http_client *c, const char *data, size_t bytes)
{
    size_t used = 0;

    if (c->in.bytes == 0) /* else older bytes wait, these belong behind them */
        used = client_run(c, data, bytes);
    if (c->state == CLIENT_CLOSING)
        return;
    if (c->state >= CLIENT_FLUSH) {
        on_drop(c, bytes - used);
        return;
    }
    buffer_append(&c->in, data + used, bytes - used);
    if (c->in.bytes >= CLIENT_IN_BYTES_MAX) {
        (void)uv_read_stop((uv_stream_t *)&c->tcp);
        c->reading = false;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    struct http_client *c = handle->data;

    (void)suggested;
    *ret_buf = uv_buf_init(c->server->read_buffer, SERVER_READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buf)
{
    struct http_client *c = stream->data;

    if (bytes > 0)
        on_input(c, buf->base, (size_t)bytes);
    else if (bytes == UV_EOF)
        on_end(c);
    else if (bytes < 0)
        client_close(c, uv_err_name((int)bytes));
}

static void read_more(struct http_client *c)
{
    int r;

    if (c->reading || c->ended)
        return;
    r = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (r < 0)
        client_close(c, uv_err_name(r));
    else
        c->reading = true;
}

/* Between exchanges: serve what waits, see the end, go on reading. */
static void go_on(struct http_client *c)
{
    if (c->in.bytes > 0) {
        size_t used = client_run(c, c->in.data, c->in.bytes);

        if (c->state == CLIENT_CLOSING)
            return;
        if (c->state < CLIENT_FLUSH)
            buffer_consume(&c->in, used);
        else
            buffer_trim(&c->in, CLIENT_KEEP_BYTES_MAX);
        if (c->in.bytes == 0)
            buffer_trim(&c->in, CLIENT_KEEP_BYTES_MAX);
        watch_ended(c);
    }
    if (may_parse(c) && c->ended && c->in.bytes == 0)
        client_set_state(c, CLIENT_FLUSH, 0, "end of input"); /* half a request is dropped */
    else if (c->in.bytes < CLIENT_IN_BYTES_MAX)
        read_more(c);
}

void client_flush(struct http_client *c)
{
    int r = c->doom == NULL ? client_send(c) : 0;

    ASSERT(c->state != CLIENT_CLOSING);
    if (r < 0)
        c->doom = uv_err_name(r);
    if (c->doom != NULL) {
        client_close(c, c->doom);
        return;
    }
    if (may_parse(c))
        go_on(c);
    if (c->state != CLIENT_FLUSH)
        return;
    buffer_trim(&c->in, CLIENT_KEEP_BYTES_MAX);
    read_more(c); /* to drop it: what is left unread would reset the connection */
    if (c->state == CLIENT_FLUSH && unsent(c) == 0)
        finish(c);
}

/* Time. */

static void check_stall(struct http_client *c, uint64_t now_ms)
{
    uint64_t sent = c->sent_total;

    if (c->writing)
        sent += c->sending_left - uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp);
    if (sent != c->sent_seen || unsent(c) == 0) {
        c->sent_seen = sent;
        c->stalled_ms = now_ms;
    } else if (now_ms - c->stalled_ms >= c->server->limits.write_timeout_ms) {
        client_close(c, "write timeout");
    }
}

void client_check_time(struct http_client *c, uint64_t now_ms)
{
    static const struct http_fault slow_head = {408, "request_timeout",
                                                "The headers did not arrive in time."};
    static const struct http_fault slow_body = {408, "request_timeout",
                                                "The body did not arrive in time."};

    check_stall(c, now_ms);
    if (c->deadline_ms == 0 || now_ms < c->deadline_ms)
        return;
    if (c->state == CLIENT_HEAD)
        client_fault(c, &slow_head);
    else if (c->state == CLIENT_BODY)
        client_fault(c, &slow_body);
    else if (c->state != CLIENT_IDLE || (unsent(c) == 0 && c->in.bytes == 0))
        client_close(c, "timeout");
}

static void send_probe(struct http_client *c)
{
    c->probed = true;
    if (c->parser.version_minor == 0) {
        if (c->state == CLIENT_HANDLER)
            c->deadline_ms = c->ended_ms + CLIENT_HALF_CLOSE_GRACE_MS;
        return;
    }
    if (c->state == CLIENT_HANDLER)
        buffer_append_text(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    else if (c->exchange.framing == HTTP_FRAMING_CHUNKED && !c->exchange.head_only)
        buffer_append_char(&c->out, '0');
    mark_dirty(c);
}

void client_probe(struct http_client *c, uint64_t now_ms)
{
    struct pollfd look = {.events = 0};
    uv_os_fd_t fd;

    ASSERT(c->ended && c->exchange.active);
    if (uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0) {
        look.fd = fd;
        if (poll(&look, 1, 0) == 1 && (look.revents & (POLLERR | POLLHUP)) != 0) {
            client_close(c, "client gone");
            return;
        }
    }
    if (!c->probed && now_ms - c->ended_ms >= CLIENT_PROBE_AFTER_MS)
        send_probe(c);
}

/* What the exchange says. */

struct buffer *client_out(struct http_client *c)
{
    return &c->out;
}

bool client_may_stay(const struct http_client *c)
{
    return c->parser.keep_alive && !c->server->draining;
}

bool client_may_write(struct http_client *c)
{
    if (c->doom == NULL && unsent(c) > c->server->limits.write_bytes_max)
        doom(c, "slow reader");
    return c->doom == NULL;
}

void client_on_begun(struct http_client *c)
{
    client_set_state(c, CLIENT_STREAM, 0, "begin");
    mark_dirty(c);
}

void client_on_written(struct http_client *c)
{
    int r = c->out.bytes >= CLIENT_SEND_EARLY_BYTES ? client_send(c) : 0;

    if (r < 0)
        doom(c, uv_err_name(r));
    mark_dirty(c);
}

void client_on_answered(struct http_client *c)
{
    list_remove(&c->ended_link);
    buffer_trim(&c->body, CLIENT_KEEP_BYTES_MAX);
    http_parser_start(&c->parser);
    if (c->close_after || c->server->draining) /* a drain may have begun since the head */
        client_set_state(c, CLIENT_FLUSH, 0, "answered");
    else
        client_set_state(c, CLIENT_IDLE, c->server->limits.idle_timeout_ms, "answered");
    mark_dirty(c);
}

/* Beginning and end. */

static void name_peer(struct http_client *c)
{
    struct sockaddr_storage address;
    int bytes = sizeof(address);
    char host[48] = "?";

    (void)snprintf(c->peer, sizeof(c->peer), "?");
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&address, &bytes) < 0)
        return; /* it is gone already */
    if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address;

        (void)uv_ip6_name(in6, host, sizeof(host));
        (void)snprintf(c->peer, sizeof(c->peer), "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address;

        (void)uv_ip4_name(in, host, sizeof(host));
        (void)snprintf(c->peer, sizeof(c->peer), "%s:%u", host, ntohs(in->sin_port));
    }
}

int client_accept(struct http_server *server, uv_stream_t *listener)
{
    const struct http_parser_limits limits = {
        .head_bytes_max = server->limits.header_bytes_max,
        .headers_max = server->limits.headers_max,
        .body_bytes_max = server->limits.body_bytes_max,
    };
    struct http_client *c = mem_zalloc(sizeof(*c));
    int r;

    c->server = server;
    list_init(&c->dirty_link);
    list_init(&c->ended_link);
    http_parser_init(&c->parser, &limits);
    exchange_init(&c->exchange, c);
    buffer_init(&c->body, limits.body_bytes_max);
    buffer_init(&c->in, CLIENT_IN_BYTES_MAX + SERVER_READ_BYTES);
    buffer_init(&c->out, SIZE_MAX);
    buffer_init(&c->sending, SIZE_MAX);
    c->deadline_ms = uv_now(server->loop) + server->limits.idle_timeout_ms;
    c->stalled_ms = uv_now(server->loop); /* the timer may look before the first answer is sent */
    list_push_back(&server->clients, &c->link);
    server_client_opened(server);
    (void)uv_tcp_init(server->loop, &c->tcp); /* makes no socket yet, so cannot fail */
    c->tcp.data = c;
    r = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (r < 0) {
        client_close(c, uv_err_name(r));
        return r;
    }
    name_peer(c);
    (void)uv_tcp_nodelay(&c->tcp, 1);
    (void)uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    read_more(c);
    return 0;
}

void client_drain(struct http_client *c)
{
    if (c->state == CLIENT_IDLE && unsent(c) == 0 && c->in.bytes == 0)
        doom(c, "drain");
}
