/* http_get.h - one GET from the router, for commands that show something. */
#ifndef REFRAIN_DEPLOY_CLI_HTTP_GET_H
#define REFRAIN_DEPLOY_CLI_HTTP_GET_H

#include <jansson.h>

#include "proto/base/errmsg.h"

#define HTTP_GET_BYTES_MAX (16u << 20)

/* base: "http://127.0.0.1:8000"; api_key: NULL or the bearer key. *ret_json is the caller's.
 * 0; -ECONNREFUSED and other transport faults; -EPROTO: no 200 or no JSON, *err has the status. */
int http_get_json(const char *base, const char *path, const char *api_key, json_t **ret_json,
                  struct errmsg *err);
/* The same for any text; *ret_text by mem_alloc. */
int http_get_text(const char *base, const char *path, const char *api_key, char **ret_text,
                  struct errmsg *err);

#endif
