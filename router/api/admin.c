/* admin.c - what operators ask: status, drain of a group, reset of the prefix caches.
 *
 * From this machine, or with a key (auth.h). */
#include "router/api/api.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/json.h"
#include "proto/base/number.h"

#define STATUS_BYTES_MAX ((size_t)4 << 20)

static void write_router(const struct api *api, struct buffer *out)
{
    struct http_counts counts;
    bool ready = !api->draining && links_ready(api->links);
    bool first = true;

    http_server_counts(api->server, &counts);
    buffer_printf(out,
                  "{\"pid\":%d,\"version\":\"" REFRAIN_VERSION "\",\"uptime_s\":%" PRIu64
                  ",\"port\":%u,\"ready\":%s,\"draining\":%s"
                  ",\"policy\":\"%s\",\"requests_open\":%u,\"inflight\":%u"
                  ",\"clients_open\":%" PRIu64 ",\"http_requests_total\":%" PRIu64 ",\"models\":[",
                  (int)getpid(), (clock_ms() - api->started_ms) / 1000, api->port,
                  ready ? "true" : "false", api->draining ? "true" : "false",
                  router_policy_name(api->settings), requests_open_count(api->requests),
                  links_inflight(api->links), counts.clients_open, counts.requests_total);
    LIST_FOR(item, models_list(api->models))
    {
        const struct served_model *model = LIST_ENTRY(item, struct served_model, link);
        if (!model->live || model->parent)
            continue;
        if (!first)
            buffer_append_char(out, ',');
        first = false;
        json_append_string(out, model->card->name, strlen(model->card->name));
    }
    buffer_append_text(out, "]}");
}

void status_handler(struct http_exchange *exchange, void *user)
{
    const struct api *api = user;
    struct buffer out;

    if (!auth_reader(api->auth, exchange))
        return;
    buffer_init(&out, STATUS_BYTES_MAX);
    buffer_append_text(&out, "{\"router\":");
    write_router(api, &out);
    buffer_append_text(&out, ",\"workers\":");
    links_write_status(api->links, &out);
    buffer_append_char(&out, '}');
    api_reply_json(exchange, &out);
    buffer_done(&out);
}

/* Value of `name` in "a=1&b=2"; false: absent or too long. */
static bool query_get(const char *query, const char *name, char *ret_value, size_t value_max)
{
    size_t name_bytes = strlen(name);

    while (query && *query) {
        size_t bytes = strcspn(query, "&");
        if (bytes > name_bytes && strncmp(query, name, name_bytes) == 0 &&
            query[name_bytes] == '=' && bytes - name_bytes - 1 < value_max) {
            memcpy(ret_value, query + name_bytes + 1, bytes - name_bytes - 1);
            ret_value[bytes - name_bytes - 1] = '\0';
            return true;
        }
        query += bytes + (query[bytes] == '&');
    }
    return false;
}

void drain_handler(struct http_exchange *exchange, void *user)
{
    const struct api *api = user;
    const char *query = http_exchange_query(exchange);
    char text[16], undo[8] = "0";
    uint64_t group = 0;
    struct buffer out;

    if (!auth_admin(api->auth, exchange))
        return;
    if (!query_get(query, "group", text, sizeof(text)) || number_parse_u64(text, &group) < 0 ||
        group > 999) {
        http_exchange_reply_error(exchange, 400, "invalid_value", "group",
                                  "The query needs group=N, with N from 0 to 999.");
        return;
    }
    (void)query_get(query, "undo", undo, sizeof(undo));
    bool back = strcmp(undo, "1") == 0 || strcmp(undo, "true") == 0;
    if (links_drain_group(api->links, (uint32_t)group, back) < 0) {
        http_exchange_reply_error(exchange, 404, "group_not_found", "group",
                                  "No worker of group %u is attached.", (unsigned)group);
        return;
    }
    buffer_init(&out, STATUS_BYTES_MAX);
    buffer_printf(&out, "{\"group\":%u,\"draining\":%s}", (unsigned)group, back ? "false" : "true");
    api_reply_json(exchange, &out);
    buffer_done(&out);
}

void reset_prefix_cache_handler(struct http_exchange *exchange, void *user)
{
    const struct api *api = user;

    if (!auth_admin(api->auth, exchange))
        return;
    links_reset_prefix_cache(api->links);
    http_exchange_reply(exchange, 200, "application/json", "{\"success\":true}", 16);
}
