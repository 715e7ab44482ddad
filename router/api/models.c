/* models.c - GET /v1/models and /v1/models/{id}: what the workers brought. */
#include "router/api/api.h"

#include <inttypes.h>
#include <string.h>

#include "proto/base/json.h"

#define BYTES_MAX ((size_t)1 << 20)

static void write_text(struct buffer *out, const char *key, const char *text)
{
    buffer_printf(out, ",\"%s\":", key);
    json_append_string(out, text, strlen(text));
}

static void write_model(const struct api *api, const struct served_model *model, struct buffer *out)
{
    const struct model_card *card = model->card;
    uint32_t context = links_context_tokens(api->links, card->name);

    const char *name = served_model_name(model);
    buffer_append_text(out, "{\"id\":");
    json_append_string(out, name, strlen(name));
    buffer_printf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"refrain\"",
                  model->created_s);
    write_text(out, "root", model->parent ? model->adapter_path : card->name);
    if (model->parent)
        write_text(out, "parent", card->name);
    else
        buffer_append_text(out, ",\"parent\":null");
    buffer_printf(out, ",\"max_model_len\":%u,\"permission\":[]",
                  context ? context : card->context_tokens);
    write_text(out, "fingerprint", card->fingerprint);
    write_text(out, "architecture", card->architecture);
    buffer_printf(out, ",\"vocab_size\":%u,\"chat_template\":%s}", card->vocab_size,
                  model->chat_template ? "true" : "false");
}

void models_handler(struct http_exchange *exchange, void *user)
{
    struct api *api = user;
    struct buffer out;
    bool first = true;

    if (!auth_client(api->auth, exchange))
        return;
    buffer_init(&out, BYTES_MAX);
    buffer_append_text(&out, "{\"object\":\"list\",\"data\":[");
    LIST_FOR(item, models_list(api->models))
    {
        const struct served_model *model = LIST_ENTRY(item, struct served_model, link);
        if (!model->live)
            continue;
        if (!first)
            buffer_append_char(&out, ',');
        first = false;
        write_model(api, model, &out);
    }
    buffer_append_text(&out, "]}");
    api_reply_json(exchange, &out);
    buffer_done(&out);
}

void model_handler(struct http_exchange *exchange, void *user)
{
    struct api *api = user;
    struct buffer out;

    if (!auth_client(api->auth, exchange))
        return;
    const struct served_model *model = models_find(api->models, http_exchange_segment(exchange));
    if (!model || !model->live) {
        http_exchange_reply_error(exchange, 404, "model_not_found", "model",
                                  "The model '%.200s' does not exist here.",
                                  http_exchange_segment(exchange));
        return;
    }
    buffer_init(&out, BYTES_MAX);
    write_model(api, model, &out);
    api_reply_json(exchange, &out);
    buffer_done(&out);
}
