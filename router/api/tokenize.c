/* tokenize.c - POST /tokenize and /detokenize, in vLLM's shapes.
 *
 * What llama.cpp calls it is taken and said too: "content" for a text.
 *
 * The same template, tokenizer and rule about control tokens as a chat, so what it says is what a
 * chat costs. */
#include "router/api/api.h"

#include "proto/base/json.h"
#include "router/text/detokenize.h"

#define REPLY_BYTES_MAX ((size_t)256 << 20)

/* Body and model. 0, or -EINVAL: answered. api_request_done() either way. */
static int open_body(const struct api *api, struct http_exchange *exchange, enum api_kind kind,
                     struct arena *arena, struct api_request *fields,
                     struct served_model **ret_model)
{
    struct api_error error;
    size_t bytes;
    const void *body = http_exchange_body(exchange, &bytes);

    int r = request_json_parse(kind, body, bytes, arena, fields, &error);
    if (r == 0) {
        *ret_model = request_find_model(api->models, fields->model, &error);
        if (*ret_model)
            return 0;
    }
    api_error_reply(exchange, &error);
    return -1;
}

static void write_ids(const struct token_ids *ids, struct buffer *out)
{
    buffer_printf(out, ",\"tokens\":[");
    for (size_t i = 0; i < ids->count; i++)
        buffer_printf(out, i ? ",%u" : "%u", ids->ids[i]);
    buffer_append_char(out, ']');
}

static void write_strings(const struct tokenizer *tokenizer, const struct token_ids *ids,
                          struct buffer *out)
{
    struct detokenizer detokenizer;
    struct buffer text;

    buffer_init(&text, (size_t)1 << 20);
    buffer_append_text(out, ",\"token_strs\":[");
    for (size_t i = 0; i < ids->count; i++) {
        buffer_clear(&text);
        detokenizer_init(&detokenizer, tokenizer, true, false);
        (void)detokenizer_push(&detokenizer, ids->ids[i], &text);
        detokenizer_finish(&detokenizer, &text);
        if (i > 0)
            buffer_append_char(out, ',');
        json_append_string(out, text.data, text.bytes);
    }
    buffer_append_char(out, ']');
    buffer_done(&text);
}

static void reply_tokens(const struct api *api, struct http_exchange *exchange,
                         const struct api_request *fields, const struct served_model *model,
                         const struct token_ids *ids)
{
    uint32_t context = links_context_tokens(api->links, model->card->name);
    struct buffer out;

    buffer_init(&out, REPLY_BYTES_MAX);
    buffer_printf(&out, "{\"count\":%zu,\"max_model_len\":%u", ids->count,
                  context ? context : model->card->context_tokens);
    write_ids(ids, &out);
    if (fields->return_token_strs)
        write_strings(model->maker.tokenizer, ids, &out);
    buffer_append_char(&out, '}');
    api_reply_json(exchange, &out);
    buffer_done(&out);
}

void tokenize_handler(struct http_exchange *exchange, void *user)
{
    struct api *api = user;
    struct served_model *model = NULL;
    struct prompt_maker maker;
    struct api_request fields;
    struct api_error error;
    struct token_ids ids;
    struct arena arena;
    int r;

    if (!auth_client(api->auth, exchange))
        return;
    arena_init(&arena, REQUEST_ARENA_MAX);
    token_ids_init(&ids, REQUEST_PROMPT_TOKENS_MAX);
    if (open_body(api, exchange, API_TOKENIZE, &arena, &fields, &model) == 0) {
        r = models_maker(api->models, model, &fields, &maker, &error);
        if (r == 0 && fields.messages)
            r = prompt_from_chat(&maker, &fields, &ids, NULL, &error);
        else if (r == 0)
            r = prompt_from_completion(&maker, &fields, &fields.prompts[0], &ids, NULL, &error);
        if (r < 0)
            api_error_reply(exchange, &error);
        else
            reply_tokens(api, exchange, &fields, model, &ids);
    }
    token_ids_done(&ids);
    api_request_done(&fields);
    arena_done(&arena);
}

static void reply_text(struct http_exchange *exchange, const struct api_request *fields,
                       const struct served_model *model)
{
    const struct api_prompt *tokens = &fields->prompts[0];
    struct detokenizer detokenizer;
    struct buffer text, out;

    buffer_init(&text, REPLY_BYTES_MAX);
    buffer_init(&out, REPLY_BYTES_MAX);
    detokenizer_init(&detokenizer, model->maker.tokenizer, true, true);
    for (size_t i = 0; i < tokens->ids_count; i++) {
        if (detokenizer_push(&detokenizer, tokens->ids[i], &text) == 0)
            continue;
        http_exchange_reply_error(exchange, 400, "invalid_value", "tokens",
                                  "Token id %u at position %zu is out of vocabulary: this model "
                                  "has %u.",
                                  tokens->ids[i], i, model->card->vocab_size);
        goto out;
    }
    detokenizer_finish(&detokenizer, &text);
    buffer_append_text(&out, "{\"prompt\":");
    json_append_string(&out, text.data, text.bytes);
    buffer_append_text(&out, ",\"content\":"); /* llama.cpp's name */
    json_append_string(&out, text.data, text.bytes);
    buffer_append_char(&out, '}');
    out.failed = out.failed || text.failed;
    api_reply_json(exchange, &out);
out:
    buffer_done(&text);
    buffer_done(&out);
}

void detokenize_handler(struct http_exchange *exchange, void *user)
{
    struct api *api = user;
    struct served_model *model = NULL;
    struct api_request fields;
    struct arena arena;

    if (!auth_client(api->auth, exchange))
        return;
    arena_init(&arena, REQUEST_ARENA_MAX);
    if (open_body(api, exchange, API_DETOKENIZE, &arena, &fields, &model) == 0)
        reply_text(exchange, &fields, model);
    api_request_done(&fields);
    arena_done(&arena);
}
