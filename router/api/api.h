/* api.h - the routes of the router and what their handlers work with.
 *
 * One handler file per subject; each translates its exchange and calls one thing that decides. The
 * `user` of every handler is a struct api. Ownership: borrowed, router.c owns all. */
#ifndef REFRAIN_ROUTER_API_API_H
#define REFRAIN_ROUTER_API_API_H

#include "router/api/auth.h"
#include "router/http/server.h"
#include "router/models.h"
#include "router/request.h"
#include "router/settings.h"
#include "router/worker_links.h"

struct api {
    struct text_cache *text_cache;
    struct models *models;
    struct worker_links *links;
    struct requests *requests;
    struct sessions *sessions;
    struct metrics *metrics; /* router_metric_specs */
    struct auth *auth;
    struct http_server *server;
    const struct router_settings *settings;
    uint64_t started_ms;
    uint16_t port;
    bool draining;
};

extern const struct http_route api_routes[];

void chat_handler(struct http_exchange *exchange, void *user);
void completions_handler(struct http_exchange *exchange, void *user);
void models_handler(struct http_exchange *exchange, void *user);
void model_handler(struct http_exchange *exchange, void *user);
void load_lora_handler(struct http_exchange *exchange, void *user);
void unload_lora_handler(struct http_exchange *exchange, void *user);
void tokenize_handler(struct http_exchange *exchange, void *user);
void detokenize_handler(struct http_exchange *exchange, void *user);
void health_handler(struct http_exchange *exchange, void *user);
void ready_handler(struct http_exchange *exchange, void *user);
void version_handler(struct http_exchange *exchange, void *user);
void metrics_handler(struct http_exchange *exchange, void *user);
void status_handler(struct http_exchange *exchange, void *user);
void drain_handler(struct http_exchange *exchange, void *user);
void prefix_check_handler(struct http_exchange *exchange, void *user);
void reset_prefix_cache_handler(struct http_exchange *exchange, void *user);

/* 200 with the JSON in `out`; 500 when it did not fit. */
void api_reply_json(struct http_exchange *exchange, const struct buffer *out);

#endif
