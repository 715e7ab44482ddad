/* auth.h - bearer keys, and who may use the admin paths.
 *
 * Keys are compared in constant time. /health, /ready, /metrics and the page ask for none. Thread:
 * the loop's; immutable. */
#ifndef REFRAIN_ROUTER_API_AUTH_H
#define REFRAIN_ROUTER_API_AUTH_H

#include <stdbool.h>

struct http_exchange;
struct auth;

/* keys: separated by commas; NULL: everyone may. */
struct auth *auth_new(const char *keys);
void auth_free(struct auth *auth);
/* False: 401 was answered. */
bool auth_client(const struct auth *auth, struct http_exchange *exchange);
/* For what only looks at the cluster: as auth_client, and this machine itself without a key. */
bool auth_reader(const struct auth *auth, struct http_exchange *exchange);
/* For what changes the cluster: this machine itself, or a key. A browser's page of another origin
 * is refused even on this machine. False: 401 or 403 was answered. */
bool auth_admin(const struct auth *auth, struct http_exchange *exchange);
/* The rule behind it, for tests: does "Bearer KEY" name one of the keys? */
bool auth_header_ok(const struct auth *auth, const char *header);

#endif
