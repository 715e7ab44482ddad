/* http_get.c - GET through libcurl, bounded in bytes and time. Signals are left alone. */
#include "deploy/cli/http_get.h"

#include <curl/curl.h>
#include <errno.h>

#include "proto/base/buffer.h"
#include "proto/base/json.h"
#include "proto/base/mem.h"

#define CONNECT_TIMEOUT_MS 2000L
#define TOTAL_TIMEOUT_MS 10000L

static size_t on_data(char *data, size_t size, size_t count, void *user)
{
    struct buffer *body = user;
    buffer_append(body, data, size * count);
    return body->failed ? 0 : size * count; /* 0 ends the transfer with an error */
}

static int transfer(CURL *curl, struct errmsg *err)
{
    CURLcode code = curl_easy_perform(curl);
    long status = 0;

    if (code == CURLE_COULDNT_CONNECT)
        return errmsg_set(err, -ECONNREFUSED, "nobody answers there");
    if (code != CURLE_OK)
        return errmsg_set(err, -EPROTO, "%s", curl_easy_strerror(code));
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return errmsg_set(err, -EPROTO, "status %ld", status);
    return 0;
}

static int get(const char *base, const char *path, const char *api_key, struct buffer *body,
               struct errmsg *err)
{
    char *url = mem_printf("%s%s", base, path);
    char *bearer = api_key ? mem_printf("Authorization: Bearer %s", api_key) : NULL;
    struct curl_slist *headers = bearer ? curl_slist_append(NULL, bearer) : NULL;
    CURL *curl = curl_easy_init();
    int r;

    if (!curl) {
        r = errmsg_set(err, -ENOMEM, "no curl handle");
        goto out;
    }
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TOTAL_TIMEOUT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    r = transfer(curl, err);
    if (r < 0)
        r = errmsg_prefix(err, r, "GET %s", url);
out:
    curl_slist_free_all(headers);
    if (curl)
        curl_easy_cleanup(curl);
    mem_free(bearer);
    mem_free(url);
    return r;
}

int http_get_json(const char *base, const char *path, const char *api_key, json_t **ret_json,
                  struct errmsg *err)
{
    struct buffer body;

    buffer_init(&body, HTTP_GET_BYTES_MAX);
    int r = get(base, path, api_key, &body, err);
    if (r == 0) {
        r = json_parse(body.data, body.bytes, HTTP_GET_BYTES_MAX, ret_json, err);
        if (r < 0)
            r = errmsg_prefix(err, r, "GET %s%s", base, path);
    }
    buffer_done(&body);
    return r;
}

int http_get_text(const char *base, const char *path, const char *api_key, char **ret_text,
                  struct errmsg *err)
{
    struct buffer body;

    buffer_init(&body, HTTP_GET_BYTES_MAX);
    int r = get(base, path, api_key, &body, err);
    if (r == 0)
        *ret_text = mem_strndup(body.data, body.bytes);
    buffer_done(&body);
    return r;
}
