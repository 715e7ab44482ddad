/* auth.c - keys are compared whole, whatever byte differs first. */
#include "router/api/auth.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "proto/base/mem.h"
#include "router/http/server.h"

#define KEYS_MAX 64u

struct auth {
    char *keys[KEYS_MAX];
    size_t count; /* 0: everyone may */
};

struct auth *auth_new(const char *keys)
{
    struct auth *auth = mem_zalloc(sizeof(*auth));

    for (const char *at = keys; at && *at && auth->count < KEYS_MAX;) {
        at += strspn(at, ", ");
        size_t bytes = strcspn(at, ", ");
        if (bytes > 0)
            auth->keys[auth->count++] = mem_strndup(at, bytes);
        at += bytes;
    }
    return auth;
}

void auth_free(struct auth *auth)
{
    if (!auth)
        return;
    for (size_t i = 0; i < auth->count; i++)
        mem_free(auth->keys[i]);
    mem_free(auth);
}

/* Time depends on the lengths only. */
static bool equal(const char *key, const char *given)
{
    size_t key_bytes = strlen(key), given_bytes = strlen(given);
    volatile unsigned char differs = key_bytes != given_bytes;

    for (size_t i = 0; i < given_bytes; i++)
        differs |= (unsigned char)(key[key_bytes ? i % key_bytes : 0] ^ given[i]);
    return differs == 0;
}

bool auth_header_ok(const struct auth *auth, const char *header)
{
    bool ok = false;

    if (!header || strncasecmp(header, "Bearer ", 7) != 0)
        return false;
    header += 7 + strspn(header + 7, " ");
    for (size_t i = 0; i < auth->count; i++)
        ok = equal(auth->keys[i], header) || ok;
    return ok;
}

static bool refuse(struct http_exchange *exchange)
{
    http_exchange_add_header(exchange, "WWW-Authenticate", "Bearer");
    http_exchange_reply_error(exchange, 401, "invalid_api_key", NULL,
                              "A valid key is needed: Authorization: Bearer KEY.");
    return false;
}

bool auth_client(const struct auth *auth, struct http_exchange *exchange)
{
    if (auth->count == 0 || auth_header_ok(auth, http_exchange_header(exchange, "authorization")))
        return true;
    return refuse(exchange);
}

/* Asked by this machine itself, not by a proxy on it. */
static bool is_local(const struct http_exchange *exchange)
{
    const char *peer = http_exchange_peer(exchange);

    if (http_exchange_header(exchange, "x-forwarded-for") ||
        http_exchange_header(exchange, "forwarded"))
        return false;
    return strncmp(peer, "127.", 4) == 0 || strncmp(peer, "[::1]", 5) == 0 ||
           strncmp(peer, "::1", 3) == 0;
}

/* A page of another origin may make a browser on this machine ask. */
static bool is_foreign_page(const struct http_exchange *exchange)
{
    const char *origin = http_exchange_header(exchange, "origin");
    const char *host = http_exchange_header(exchange, "host");
    const char *at = origin ? strstr(origin, "://") : NULL;

    return origin && (!at || !host || strcasecmp(at + 3, host) != 0);
}

bool auth_reader(const struct auth *auth, struct http_exchange *exchange)
{
    return is_local(exchange) || auth_client(auth, exchange);
}

bool auth_admin(const struct auth *auth, struct http_exchange *exchange)
{
    if (auth_header_ok(auth, http_exchange_header(exchange, "authorization")))
        return true;
    if (is_local(exchange) && !is_foreign_page(exchange))
        return true;
    if (auth->count > 0)
        return refuse(exchange);
    http_exchange_reply_error(exchange, 403, "forbidden", NULL,
                              "This path is for this machine itself; from elsewhere it needs a "
                              "key, and the router was started without --api-key.");
    return false;
}
