/* routes.c - a linear search. Two dozen rows of short texts cost less than a hash of the path. */
#include "router/http/routes.h"

#include <stdbool.h>
#include <string.h>

/* Does `path` fit the row? *ret_segment is set to what a pattern took, or NULL. */
static bool fits(const struct http_route *route, const struct http_path *path,
                 const char **ret_segment)
{
    const char *pattern = strchr(route->path, '{');
    size_t prefix = pattern == NULL ? 0 : (size_t)(pattern - route->path);

    *ret_segment = NULL;
    if (pattern == NULL)
        return strcmp(route->path, path->text) == 0;
    if (strncmp(route->path, path->text, prefix) != 0 || path->text[prefix] == '\0')
        return false;
    *ret_segment = path->text + prefix;
    return strcmp(pattern, "{*}") == 0 || path->segment == *ret_segment;
}

static bool method_fits(const struct http_route *route, const char *method)
{
    if (strcmp(route->method, method) == 0)
        return true;
    return strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0;
}

static void append_method(struct buffer *allow, const char *method)
{
    if (allow->bytes > 0)
        buffer_append_text(allow, ", ");
    buffer_append_text(allow, method);
    if (strcmp(method, "GET") == 0)
        buffer_append_text(allow, ", HEAD");
}

const struct http_route *http_routes_find(const struct http_route *routes, const char *method,
                                          const struct http_path *path, const char **ret_segment,
                                          struct buffer *allow)
{
    for (const struct http_route *route = routes; route->method != NULL; route++) {
        const char *segment;

        if (!method_fits(route, method) || !fits(route, path, &segment))
            continue;
        *ret_segment = segment;
        return route;
    }
    for (const struct http_route *route = routes; route->method != NULL; route++) {
        const char *segment;

        if (fits(route, path, &segment))
            append_method(allow, route->method);
    }
    return NULL;
}

/* `path` without empty segments and a slash at its end. */
static void squeeze(const char *path, char *ret_text, size_t text_max)
{
    size_t used = 0;

    for (const char *at = path; *at != '\0' && used + 1 < text_max; at++) {
        if (*at == '/' && (at[1] == '/' || at[1] == '\0'))
            continue;
        ret_text[used++] = *at;
    }
    ret_text[used] = '\0';
}

const char *http_routes_near(const struct http_route *routes, const char *path)
{
    char squeezed[128];

    if (strlen(path) >= sizeof(squeezed))
        return NULL;
    squeeze(path, squeezed, sizeof(squeezed));
    const char *rest = strncmp(squeezed, "/v1/", 4) == 0 ? squeezed + 3 : squeezed;
    for (const struct http_route *route = routes; route->method != NULL; route++) {
        bool versioned = strncmp(route->path, "/v1/", 4) == 0;
        const char *end = versioned ? route->path + 3 : route->path;
        if (strcmp(end, rest) == 0 || strcmp(route->path, rest) == 0)
            return route->path;
    }
    return NULL;
}
