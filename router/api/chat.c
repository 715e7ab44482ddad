/* chat.c - POST /v1/chat/completions: messages -> prompt ids -> request. */
#include "router/api/api.h"

#include <string.h>

/* vLLM's `echo`: an answer that goes on with the assistant's last message begins with it. */
static void echo_last_message(struct request *request)
{
    const json_t *messages = request_fields(request)->messages;
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const char *role = json_string_value(json_object_get(last, "role"));

    if (request_fields(request)->echo && role && strcmp(role, "assistant") == 0 &&
        json_is_string(content))
        request_echo_prompt(request, json_string_value(content), json_string_length(content));
}

static int show_prompt(struct request *request, const struct buffer *text, struct api_error *error)
{
    const char *copy = request_keep_text(request, text->data, text->bytes);

    if (!copy)
        return api_error_set(error, 413, "request_too_large", "return_prompt_text",
                             "The text of this prompt is too large to be returned.");
    request_show_prompt(request, copy, text->bytes);
    return 0;
}

void chat_handler(struct http_exchange *exchange, void *user)
{
    struct api *api = user;
    struct token_ids ids;
    struct api_error error;
    struct prompt_trace trace = {0};
    struct prompt_maker maker;
    struct turn *turn;

    if (!auth_client(api->auth, exchange))
        return;
    struct request *request = request_open(api->requests, exchange, API_CHAT);
    if (!request)
        return;
    token_ids_init(&ids, request_context_tokens(request));
    int r =
        models_maker(api->models, request_model(request), request_fields(request), &maker, &error);
    if (r == 0)
        r = turn_open(api->sessions, request_fields(request), request_model(request), &maker, &turn,
                      &error);
    if (r == 0) {
        request_set_turn(request, turn);
        r = turn_prompt(turn, &ids, &trace, &error);
    }
    if (r == 0)
        r = request_add_prompt(request, &ids, &trace, &error);
    if (r == 0 && request_fields(request)->return_prompt_text)
        r = show_prompt(request, turn_text(turn), &error);
    if (r < 0) {
        request_refuse(request, &error);
    } else {
        echo_last_message(request);
        request_run(request);
    }
    token_ids_done(&ids);
    prompt_trace_done(&trace);
}
