/* errors.h - what a client is told when its request cannot be served, as one value.
 *
 * Functions that look at a request fill a `struct api_error` and return -EINVAL; only the handler
 * (or the request) that owns the exchange answers with it. Sentences carry names and numbers, never
 * text of a prompt. Thread: any. */
#ifndef REFRAIN_ROUTER_API_ERRORS_H
#define REFRAIN_ROUTER_API_ERRORS_H

#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/errmsg.h"

#define API_PARAM_MAX 96

struct http_exchange;

struct api_error {
    int status;                /* HTTP */
    const char *code;          /* static, or NULL */
    char param[API_PARAM_MAX]; /* "messages[3].content"; "" for none */
    uint32_t retry_after_s;    /* 0: no such header */
    char message[ERRMSG_MAX];
};

/* Returns -EINVAL, so that `return api_error_set(...)`. code, param: NULL for none. */
int api_error_set(struct api_error *error, int status, const char *code, const char *param,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
/* 400 without a code: the usual one. */
#define api_error_bad(error, param, ...) \
    api_error_set(error, 400, "invalid_value", param, __VA_ARGS__)
/* The whole response. */
void api_error_reply(struct http_exchange *exchange, const struct api_error *error);
/* {"error": {...}} for a stream that has begun. */
void api_error_json(struct buffer *out, const struct api_error *error);

#endif
