/* errors.c - one error, written as a response or as an event. */
#include "router/api/errors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "proto/base/assert.h"
#include "router/http/response.h"
#include "router/http/server.h"

int api_error_set(struct api_error *error, int status, const char *code, const char *param,
                  const char *format, ...)
{
    va_list args;

    ASSERT(status >= 400 && status < 600);
    error->status = status;
    error->code = code;
    error->retry_after_s = 0;
    (void)snprintf(error->param, sizeof(error->param), "%s", param ? param : "");
    va_start(args, format);
    (void)vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    return -EINVAL;
}

void api_error_reply(struct http_exchange *exchange, const struct api_error *error)
{
    if (error->retry_after_s > 0) {
        char seconds[16];
        (void)snprintf(seconds, sizeof(seconds), "%u", error->retry_after_s);
        http_exchange_add_header(exchange, "Retry-After", seconds);
    }
    http_exchange_reply_error(exchange, error->status, error->code,
                              error->param[0] ? error->param : NULL, "%s", error->message);
}

void api_error_json(struct buffer *out, const struct api_error *error)
{
    http_response_error(out, error->status, error->code, error->param[0] ? error->param : NULL,
                        error->message);
}
