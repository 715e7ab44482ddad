/* harness_http.c - libcurl for whole answers and streams, plain sockets for broken ones. */
#include "tests/e2e/harness_http.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"

#define BODY_BYTES_MAX ((size_t)256 << 20)
#define TIMEOUT_S 120

struct transfer {
    const struct http_request *request;
    struct buffer headers, body, line;
    uint64_t began_ns, first_ns;
    bool dropped;
};

void http_init(void)
{
    CURLcode r = curl_global_init(CURL_GLOBAL_DEFAULT);
    ASSERT(r == CURLE_OK);
    json_object_seed(1);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* One line of an event stream; false: the test wants the connection dropped. */
static bool take_line(struct transfer *transfer)
{
    const char *line = transfer->line.data;
    bool go_on = true;
    if (strncmp(line, "data: ", 6) == 0)
        go_on = transfer->request->on_event(transfer->request->user, line + 6);
    buffer_consume(&transfer->line, transfer->line.bytes);
    return go_on;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct transfer *transfer = user;
    size_t bytes = size * count;

    if (transfer->first_ns == 0)
        transfer->first_ns = clock_ns();
    buffer_append(&transfer->body, data, bytes);
    if (!transfer->request->on_event)
        return bytes;
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != '\n') {
            if (data[i] != '\r')
                buffer_append_char(&transfer->line, data[i]);
            continue;
        }
        if (!take_line(transfer)) {
            transfer->dropped = true;
            return 0; /* curl closes the connection */
        }
    }
    return bytes;
}

static size_t on_header(char *data, size_t size, size_t count, void *user)
{
    struct transfer *transfer = user;
    buffer_append(&transfer->headers, data, size * count);
    return size * count;
}

static void set_body(CURL *curl, const struct http_request *request)
{
    if (!request->body)
        return;
    size_t bytes = request->body_bytes ? request->body_bytes : strlen(request->body);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
}

void http_send(const char *url, const struct http_request *request, struct http_answer *ret_answer)
{
    struct transfer transfer = {.request = request, .began_ns = clock_ns()};
    CURL *curl = curl_easy_init();
    char *whole = mem_printf("%s%s", url, request->path);
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    double timeout_s = request->timeout_s > 0 ? request->timeout_s : TIMEOUT_S;
    long status = 0;

    *ret_answer = (struct http_answer){0};
    ASSERT(curl);
    buffer_init(&transfer.headers, BODY_BYTES_MAX);
    buffer_init(&transfer.body, BODY_BYTES_MAX);
    buffer_init(&transfer.line, BODY_BYTES_MAX);
    bool typed = false;
    for (const char *const *at = request->headers; at && *at; at++)
        typed = typed || strncasecmp(*at, "Content-Type:", 13) == 0;
    if (request->body && !typed)
        headers = curl_slist_append(headers, "Content-Type: application/json");
    for (const char *const *at = request->headers; at && *at; at++)
        headers = curl_slist_append(headers, *at);
    (void)curl_easy_setopt(curl, CURLOPT_URL, whole);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(timeout_s * 1000));
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
    set_body(curl, request);
    if (request->method)
        (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    CURLcode r = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl); /* closes the connection */
    curl_slist_free_all(headers);
    mem_free(whole);
    if (r != CURLE_OK && !transfer.dropped)
        (void)snprintf(ret_answer->failure, sizeof(ret_answer->failure), "%s",
                       curl_easy_strerror(r));
    ret_answer->status = (int)status;
    ret_answer->dropped = transfer.dropped;
    ret_answer->total_s = (double)(clock_ns() - transfer.began_ns) / 1e9;
    ret_answer->first_s =
        transfer.first_ns ? (double)(transfer.first_ns - transfer.began_ns) / 1e9 : 0;
    ret_answer->headers = buffer_take(&transfer.headers, NULL);
    ret_answer->body = buffer_take(&transfer.body, &ret_answer->body_bytes);
    buffer_done(&transfer.line);
    ret_answer->json = json_loadb(ret_answer->body, ret_answer->body_bytes,
                                  JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

void http_answer_done(struct http_answer *answer)
{
    mem_free(answer->headers);
    mem_free(answer->body);
    json_decref(answer->json);
    *answer = (struct http_answer){0};
}

void http_answer_header(const struct http_answer *answer, const char *name, char *ret_value,
                        size_t value_max)
{
    size_t name_bytes = strlen(name);

    ret_value[0] = '\0';
    for (const char *at = answer->headers; at && *at;) {
        size_t bytes = strcspn(at, "\r\n");
        if (bytes > name_bytes && at[name_bytes] == ':' && strncasecmp(at, name, name_bytes) == 0) {
            const char *value = at + name_bytes + 1;
            value += strspn(value, " ");
            (void)snprintf(ret_value, value_max, "%.*s", (int)(at + bytes - value), value);
            return;
        }
        at += bytes;
        at += strspn(at, "\r\n");
    }
}

void http_get(const char *url, const char *path, struct http_answer *ret_answer)
{
    const struct http_request request = {.path = path};
    http_send(url, &request, ret_answer);
}

void http_post_text(const char *url, const char *path, const char *body,
                    struct http_answer *ret_answer)
{
    const struct http_request request = {.path = path, .body = body};
    http_send(url, &request, ret_answer);
}

void http_post_json(const char *url, const char *path, json_t *body, struct http_answer *ret_answer)
{
    char *text = json_dumps(body, JSON_COMPACT);
    ASSERT(text);
    http_post_text(url, path, text, ret_answer);
    free(text); /* jansson's */
    json_decref(body);
}

/* ---- raw bytes ---- */

int raw_connect(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int raw_connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT(strlen(path) < sizeof(address.sun_path));
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

bool raw_write(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

char *raw_read(int fd, const char *until, uint32_t deadline_ms, bool *ret_closed)
{
    uint64_t deadline = clock_ms() + deadline_ms;
    struct buffer text;
    bool closed = false;

    buffer_init(&text, BODY_BYTES_MAX);
    while (!closed) {
        char piece[4096];
        struct pollfd poll_fd = {fd, POLLIN, 0};
        uint64_t now = clock_ms();
        if (now >= deadline)
            break;
        if (poll(&poll_fd, 1, (int)(deadline - now)) <= 0)
            continue;
        ssize_t n = recv(fd, piece, sizeof(piece), 0);
        closed = n <= 0;
        if (n > 0)
            buffer_append(&text, piece, (size_t)n);
        if (until && text.bytes > 0 && memmem(text.data, text.bytes, until, strlen(until)))
            break;
    }
    if (ret_closed)
        *ret_closed = closed;
    return buffer_take(&text, NULL);
}

int raw_status(const char *response)
{
    return strncmp(response, "HTTP/1.", 7) == 0 ? (int)strtol(response + 9, NULL, 10) : 0;
}
