/* health.c - GET /health, /ready, /version, /metrics: for probes and Prometheus; no key needed.
 *
 * /health says that the process and its loop live; /ready that a request would be taken. */
#include "router/api/api.h"

#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/proc_stat.h"
#include "router/metrics.h"

#define METRICS_BYTES_MAX ((size_t)64 << 20)

void health_handler(struct http_exchange *exchange, void *user)
{
    (void)user;
    http_exchange_reply(exchange, 200, "application/json", "{\"status\":\"ok\"}", 15);
}

void ready_handler(struct http_exchange *exchange, void *user)
{
    const struct api *api = user;

    if (!api->draining && links_ready(api->links)) {
        http_exchange_reply(exchange, 200, "application/json", "{\"ready\":true}", 14);
        return;
    }
    const char *body = api->draining ? "{\"ready\":false,\"why\":\"the router is stopping\"}"
                                     : "{\"ready\":false,\"why\":\"no worker takes requests\"}";
    http_exchange_add_header(exchange, "Retry-After", "1");
    http_exchange_reply(exchange, 503, "application/json", body, strlen(body));
}

void version_handler(struct http_exchange *exchange, void *user)
{
    static const char body[] = "{\"version\":\"" REFRAIN_VERSION "\"}";
    (void)user;
    http_exchange_reply(exchange, 200, "application/json", body, sizeof(body) - 1);
}

static void fill_text_cache(const struct api *api)
{
    struct text_cache_counts counts;

    text_cache_counts(api->text_cache, &counts);
    metrics_set(api->metrics, RM_TEXT_CACHE_BYTES, 0, (double)counts.bytes);
    metrics_set(api->metrics, RM_TEXT_CACHE_ENTRIES, 0, (double)counts.entries);
    metrics_set(api->metrics, RM_TEXT_CACHE_HITS, RM_TEXT_SEGMENT, (double)counts.segment_tokens);
    metrics_set(api->metrics, RM_TEXT_CACHE_HITS, RM_TEXT_TURN, (double)counts.turn_tokens);
    metrics_set(api->metrics, RM_TEXT_CACHE_MISSES, 0, (double)counts.missed_tokens);
    metrics_set(api->metrics, RM_TEXT_CACHE_EVICTIONS, 0, (double)counts.evictions);
}

static void fill_memory(const struct api *api)
{
    struct proc_stat stat = {.name = ""};

    if (proc_stat_read("/proc/self/stat", &stat) == 0)
        metrics_set(api->metrics, RM_RESIDENT_BYTES, 0, (double)stat.resident_bytes);
    for (enum mem_purpose purpose = 0; purpose < MEM_PURPOSE_COUNT; purpose++) {
        struct mem_usage usage;
        mem_usage(purpose, &usage);
        metrics_set(api->metrics, RM_MEMORY_BYTES, purpose, (double)usage.bytes);
    }
}

/* Counters that live elsewhere are copied in when they are asked for. */
static void fill_metrics(const struct api *api)
{
    struct http_counts counts;

    fill_text_cache(api);
    http_server_counts(api->server, &counts);
    sessions_fill_metrics(api->sessions);
    metrics_set(api->metrics, RM_REQUESTS_OPEN, 0, requests_open_count(api->requests));
    metrics_set(api->metrics, RM_HTTP_CLIENTS, 0, (double)counts.clients_open);
    metrics_set(api->metrics, RM_HTTP_CLIENTS_TOTAL, 0, (double)counts.clients_total);
    metrics_set(api->metrics, RM_HTTP_REQUESTS, 0, (double)counts.requests_total);
    metrics_set(api->metrics, RM_HTTP_REJECTED, 0, (double)counts.rejected_total);
    fill_memory(api);
    metrics_set(api->metrics, RM_UPTIME, 0, (double)(clock_ms() - api->started_ms) / 1e3);
}

void metrics_handler(struct http_exchange *exchange, void *user)
{
    const struct api *api = user;
    struct buffer out;

    buffer_init(&out, METRICS_BYTES_MAX);
    fill_metrics(api);
    metrics_write(api->metrics, NULL, &out);
    models_write_metrics(api->models, &out);
    links_write_metrics(api->links, &out);
    if (buffer_finish(&out) < 0)
        http_exchange_reply_error(exchange, 500, "answer_too_large", NULL,
                                  "The metrics have too many bytes.");
    else
        http_exchange_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", out.data,
                            out.bytes);
    buffer_done(&out);
}
