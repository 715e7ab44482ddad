/* completions.c - POST /v1/completions: one or several raw prompts -> request.
 *
 * `echo` of a prompt of ids is what they decode to, control tokens included. */
#include "router/api/api.h"

#include "router/text/detokenize.h"

#define ECHO_BYTES_MAX ((size_t)16 << 20)

/* The prompt's text; for ids it is made in the request's memory. NULL: does not fit. */
static const char *echo_text(struct request *request, const struct api_prompt *prompt,
                             size_t *ret_bytes)
{
    const struct tokenizer *tokenizer = request_model(request)->maker.tokenizer;
    struct detokenizer detokenizer;
    struct buffer text;
    const char *copy = NULL;

    if (prompt->text) {
        *ret_bytes = prompt->bytes;
        return prompt->text;
    }
    buffer_init(&text, ECHO_BYTES_MAX);
    detokenizer_init(&detokenizer, tokenizer, true, tokenizer_card(tokenizer)->add_space_prefix);
    for (size_t i = 0; i < prompt->ids_count; i++)
        (void)detokenizer_push(&detokenizer, prompt->ids[i], &text);
    detokenizer_finish(&detokenizer, &text);
    if (buffer_finish(&text) == 0)
        copy = request_keep_text(request, text.data, text.bytes);
    *ret_bytes = text.bytes;
    buffer_done(&text);
    return copy;
}

static int add_prompt(struct request *request, const struct api_prompt *prompt,
                      struct api_error *error)
{
    struct prompt_trace trace = {0};
    struct token_ids ids;
    size_t echo_bytes = 0;

    token_ids_init(&ids, request_context_tokens(request));
    int r = prompt_from_completion(&request_model(request)->maker, request_fields(request), prompt,
                                   &ids, &trace, error);
    if (r == 0)
        r = request_add_prompt(request, &ids, &trace, error);
    token_ids_done(&ids);
    prompt_trace_done(&trace);
    if (r < 0 || !request_fields(request)->echo)
        return r;
    const char *echo = echo_text(request, prompt, &echo_bytes);
    if (!echo)
        return api_error_set(error, 413, "request_too_large", "echo",
                             "The text of this prompt is too large to be echoed.");
    request_echo_prompt(request, echo, echo_bytes);
    return 0;
}

void completions_handler(struct http_exchange *exchange, void *user)
{
    struct api *api = user;
    struct api_error error;

    if (!auth_client(api->auth, exchange))
        return;
    struct request *request = request_open(api->requests, exchange, API_COMPLETIONS);
    if (!request)
        return;
    for (size_t i = 0; i < request_fields(request)->prompts_count; i++) {
        if (add_prompt(request, &request_fields(request)->prompts[i], &error) < 0) {
            request_refuse(request, &error);
            return;
        }
    }
    request_run(request);
}
