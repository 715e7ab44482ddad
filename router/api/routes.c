/* routes.c - path -> handler: the whole surface on one page. */
#include "router/api/api.h"
#include "router/http/status_page.h"

/* Of other servers and models: a sentence is better than a path that is not there. */
static void unserved_handler(struct http_exchange *exchange, void *user)
{
    (void)user;
    http_exchange_reply_error(exchange, 404, "unsupported_endpoint", NULL,
                              "'%s' is not served: models here answer chats, at "
                              "/v1/chat/completions, and go on with texts, at /v1/completions.",
                              http_exchange_path(exchange));
}

const struct http_route api_routes[] = {
    {"GET", "/", status_page_handler},
    {"POST", "/v1/chat/completions", chat_handler},
    {"POST", "/v1/completions", completions_handler},
    {"GET", "/v1/models", models_handler},
    {"GET", "/v1/models/{*}", model_handler},
    {"POST", "/v1/load_lora_adapter", load_lora_handler},
    {"POST", "/v1/unload_lora_adapter", unload_lora_handler},
    {"POST", "/tokenize", tokenize_handler},
    {"POST", "/detokenize", detokenize_handler},
    {"GET", "/health", health_handler},
    {"GET", "/ready", ready_handler},
    {"GET", "/version", version_handler},
    {"GET", "/metrics", metrics_handler},
    {"POST", "/reset_prefix_cache", reset_prefix_cache_handler},
    {"GET", "/v1/refrain/status", status_handler},
    {"POST", "/v1/refrain/drain", drain_handler},
    {"POST", "/v1/refrain/prefix_check", prefix_check_handler},
    {"GET", "/ping", health_handler}, /* vLLM's, for SageMaker */
    {"POST", "/ping", health_handler},
    {"POST", "/v1/embeddings", unserved_handler},
    {"POST", "/v1/responses", unserved_handler},
    {"POST", "/v1/messages", unserved_handler},
    {"POST", "/v1/rerank", unserved_handler},
    {"POST", "/v1/score", unserved_handler},
    {"POST", "/v1/moderations", unserved_handler},
    {"POST", "/v1/images/generations", unserved_handler},
    {"POST", "/v1/audio/speech", unserved_handler},
    {"POST", "/v1/audio/transcriptions", unserved_handler},
    {NULL, NULL, NULL},
};

void api_reply_json(struct http_exchange *exchange, const struct buffer *out)
{
    if (buffer_finish(out) < 0)
        http_exchange_reply_error(exchange, 500, "answer_too_large", NULL,
                                  "The answer has more than %zu bytes.", out->bytes_max);
    else
        http_exchange_reply(exchange, 200, "application/json", out->data, out->bytes);
}
