/* routes.h - which handler answers a method and a path.
 *
 * The table is server.h's: exact paths; a last part "/{}" takes one segment that is not empty, a
 * last part "/{*}" takes all that is left and not empty, slashes too. Among rows that fit, the
 * first in the table wins, so special paths stand before "/{}". Thread: any. */
#ifndef REFRAIN_ROUTER_HTTP_ROUTES_H
#define REFRAIN_ROUTER_HTTP_ROUTES_H

#include "proto/base/buffer.h"
#include "router/http/server.h"

struct http_path {
    const char *text;    /* decoded */
    const char *segment; /* in text, behind the last '/' that was not percent-encoded */
};

/* The route, and in *ret_segment what its pattern took (NULL: no pattern). HEAD is served by GET's
 * route. NULL: none; then `allow` holds the methods that the path has, "" when it has none. */
const struct http_route *http_routes_find(const struct http_route *routes, const char *method,
                                          const struct http_path *path, const char **ret_segment,
                                          struct buffer *allow);
/* For a path that no route fits: the path of one that was probably meant, with "/v1" put before it
 * or dropped once, or without slashes that are too many. NULL: none. */
const char *http_routes_near(const struct http_route *routes, const char *path);

#endif
