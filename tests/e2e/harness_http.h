/* harness_http.h - an HTTP client for tests: whole answers, event streams that can be dropped, and
 * raw bytes over a socket.
 *
 * Every request opens its own connection and closes it. No function here asserts, so all of them
 * may run in threads; what went wrong is in the answer. */
#ifndef REFRAIN_TESTS_E2E_HARNESS_HTTP_H
#define REFRAIN_TESTS_E2E_HARNESS_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_request {
    const char *method; /* NULL: GET, or POST when there is a body */
    const char *path;
    const char *body;
    size_t body_bytes;          /* 0: strlen(body) */
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    double timeout_s;           /* 0: 120 */
    /* The payload of each "data:" line; false drops the connection at once. */
    bool (*on_event)(void *user, const char *data);
    void *user;
};

struct http_answer {
    int status;        /* 0: no answer, `failure` says why */
    char failure[256]; /* curl's words; "" */
    char *headers;     /* as received */
    char *body;
    size_t body_bytes;
    json_t *json; /* NULL: the body is not JSON */
    bool dropped; /* by on_event */
    double first_s, total_s;
};

/* Once per program, before threads. */
void http_init(void);
void http_send(const char *url, const struct http_request *request, struct http_answer *ret_answer);
void http_answer_done(struct http_answer *answer);
/* Value of a header, "" when absent. */
void http_answer_header(const struct http_answer *answer, const char *name, char *ret_value,
                        size_t value_max);
void http_get(const char *url, const char *path, struct http_answer *ret_answer);
void http_post_text(const char *url, const char *path, const char *body,
                    struct http_answer *ret_answer);
/* Takes the reference to `body`. */
void http_post_json(const char *url, const char *path, json_t *body,
                    struct http_answer *ret_answer);

/* ---- raw bytes ---- */

int raw_connect(uint16_t port); /* 127.0.0.1; -1 */
int raw_connect_unix(const char *path);
bool raw_write(int fd, const void *data, size_t bytes);
/* Read until the peer closes, `until` stands in what came (NULL: never), or the deadline.
 * Terminated text; mem_free() it. *ret_closed: the peer closed. */
char *raw_read(int fd, const char *until, uint32_t deadline_ms, bool *ret_closed);
/* "HTTP/1.1 408 ..." -> 408; 0. */
int raw_status(const char *response);

#endif
