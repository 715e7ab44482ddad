/* completions.c - POST /v1/completions: one or several raw prompts -> request.
 *
 * `echo` of a prompt of ids, or of one that was cut, is what its ids decode to, control tokens
 * included. */
#include "router/api/api.h"

#include "router/text/detokenize.h"

#define ECHO_BYTES_MAX ((size_t)16 << 20)

/* BOS that the tokenizer put before a text is none of the client's. */
static size_t tokens_not_echoed(struct request *request, const struct api_prompt *prompt,
                                const struct token_ids *ids)
{
    const struct model_card *card = request_model(request)->card;
    return prompt->text && request_fields(request)->add_special_tokens && ids->count > 0 &&
           ids->ids[0] == card->bos;
}

/* The prompt's text; for ids it is made in the request's memory. NULL: does not fit. */
static const char *echo_text(struct request *request, const struct api_prompt *prompt,
                             const struct token_ids *ids, size_t *ret_bytes)
{
    const struct tokenizer *tokenizer = request_model(request)->maker.tokenizer;
    struct detokenizer detokenizer;
    struct buffer text;
    const char *copy = NULL;

    if (prompt->text && request_fields(request)->truncate == 0) {
        *ret_bytes = prompt->bytes;
        return prompt->text;
    }
    buffer_init(&text, ECHO_BYTES_MAX);
    detokenizer_init(&detokenizer, tokenizer, true, true);
    for (size_t i = tokens_not_echoed(request, prompt, ids); i < ids->count; i++)
        (void)detokenizer_push(&detokenizer, ids->ids[i], &text);
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
    bool echo = request_fields(request)->echo;
    const char *text = NULL;
    struct token_ids ids;
    size_t text_bytes = 0;

    token_ids_init(&ids, request_context_tokens(request));
    int r = prompt_from_completion(&request_model(request)->maker, request_fields(request), prompt,
                                   &ids, &trace, error);
    if (r == 0 && echo)
        text = echo_text(request, prompt, &ids, &text_bytes);
    if (r == 0 && echo && !text)
        r = api_error_set(error, 413, "request_too_large", "echo",
                          "The text of this prompt is too large to be echoed.");
    if (r == 0)
        r = request_add_prompt(request, &ids, &trace, error);
    if (r == 0 && echo)
        request_echo_prompt(request, text, text_bytes);
    token_ids_done(&ids);
    prompt_trace_done(&trace);
    return r;
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
