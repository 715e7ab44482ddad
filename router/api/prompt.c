/* prompt.c - template and tokenizer, and which text may hold control tokens. */
#include "router/api/prompt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"

/* The ids were not counted to the end: all that is known is that they are more than fit. */
static int too_long(const struct api_request *request, const struct token_ids *out,
                    struct api_error *error)
{
    const char *param = request->messages ? "messages" : "prompt";
    return api_error_set(error, 400, "context_length_exceeded", param,
                         "The %s: more than %zu tokens alone, past this model's maximum "
                         "context length. Please shorten the %s.",
                         param, out->count_max, param);
}

/* Text of a special token as it stands in the vocabulary, or NULL. */
static const char *token_text(const struct tokenizer *tokenizer, uint32_t id, char *text,
                              size_t text_max)
{
    const char *bytes;
    size_t count;
    bool control;

    if (id == TOKEN_ID_NONE || tokenizer_token_bytes(tokenizer, id, &bytes, &count, &control) < 0 ||
        count >= text_max)
        return NULL;
    memcpy(text, bytes, count);
    text[count] = '\0';
    return text;
}

/* The answer goes on where the last message's text ends: cut what the template wrote behind it. */
static int cut_after_last_message(struct rendered *rendered, int32_t last, struct api_error *error)
{
    for (size_t i = rendered->spans_count; i-- > 0;) {
        const struct text_span *span = &rendered->spans[i];
        if (span->source != SPAN_CONTENT || span->message != last)
            continue;
        rendered->text.bytes = span->end;
        rendered->text.data[span->end] = '\0';
        rendered->spans_count = i + 1;
        return 0;
    }
    return api_error_bad(error, "continue_final_message",
                         "'continue_final_message': the template does not write the text of the "
                         "last message.");
}

/* The evaluator's own errors begin with their line; what a template raises does not. */
static const char *without_line(const char *text, uint32_t line)
{
    char start[24];

    (void)snprintf(start, sizeof(start), "line %u: ", line);
    return strncmp(text, start, strlen(start)) == 0 ? text + strlen(start) : text;
}

/* What a client can change when a template and its messages do not go together. */
static const char *template_param(const struct api_request *request)
{
    return request->chat_template_bytes > 0 ? "chat_template" : "messages";
}

int prompt_render(const struct prompt_maker *maker, const struct api_request *request, double now,
                  struct rendered *ret, struct api_error *error)
{
    const struct model_card *card = tokenizer_card(maker->tokenizer);
    char bos[256], eos[256];
    struct errmsg err;
    uint32_t line = 0;
    struct render_input input = {
        .messages = request->messages,
        .tools = request->tools,
        .documents = request->documents,
        .kwargs = request->kwargs,
        .add_generation_prompt = request->add_generation_prompt,
        .bos_token = token_text(maker->tokenizer, card->bos, bos, sizeof(bos)),
        .eos_token = token_text(maker->tokenizer, card->eos, eos, sizeof(eos)),
        .now = now,
    };

    const struct chat_template *template =
        json_array_size(request->tools) > 0 && maker->tool_template ? maker->tool_template
                                                                    : maker->chat_template;
    if (!template)
        return api_error_set(error, 400, "no_chat_template", "model",
                             "This model has no chat template; start the router with "
                             "--chat-template FILE, or use /v1/completions.");
    int r = chat_template_render(template, &input, ret, &line, &err);
    if (r < 0)
        return api_error_set(error, 400, "chat_template_error", template_param(request),
                             "The chat template %s these messages (line %u): %s",
                             r == -E2BIG ? "passes a limit with" : "refuses", line,
                             without_line(err.text, line));
    if (!request->continue_final_message)
        return 0;
    r = cut_after_last_message(ret, (int32_t)json_array_size(request->messages) - 1, error);
    if (r < 0)
        rendered_done(ret);
    return r;
}

size_t prompt_token_bytes_max(const struct model_card *card)
{
    size_t longest = 0;
    for (uint32_t id = 0; id < card->tokens.count; id++) {
        size_t bytes;
        (void)string_table_get(&card->tokens, id, &bytes);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* Even as the longest tokens it would be too many: said at once, since tokenizing megabytes only to
 * refuse them would hold up every other stream of the loop. */
static bool cannot_fit(const struct prompt_maker *maker, size_t bytes, const struct token_ids *out)
{
    return maker->token_bytes_max && bytes / maker->token_bytes_max > out->count_max;
}

/* How many tokens of the prompt are kept; -1 leaves room for the answer. */
static int tokens_kept(const struct api_request *request, size_t context, size_t *ret_kept,
                       struct api_error *error)
{
    size_t answer = request->tokens_max > 0 ? request->tokens_max : 1;

    if (request->truncate == API_TRUNCATE_MODEL_MAX)
        *ret_kept = answer < context ? context - answer : 1;
    else if (request->truncate > context)
        return api_error_bad(error, "truncate_prompt_tokens",
                             "'truncate_prompt_tokens' is %u; this model's maximum context length "
                             "is %zu tokens.",
                             request->truncate, context);
    else
        *ret_kept = request->truncate;
    return 0;
}

/* All that ids[0..count) should become: the whole, or as much as is kept. */
static int take_ids(const struct api_request *request, const uint32_t *ids, size_t count,
                    struct token_ids *out, struct api_error *error)
{
    size_t kept = count, from;

    if (request->truncate > 0 && tokens_kept(request, out->count_max, &kept, error) < 0)
        return -EINVAL;
    kept = kept < count ? kept : count;
    from = request->truncate_right ? 0 : count - kept;
    for (size_t i = from; i < from + kept; i++) {
        int r = token_ids_add(out, ids[i]);
        ASSERT(r == 0); /* the callers counted them */
    }
    return 0;
}

static bool begins_with_bos(const struct tokenizer *tokenizer, const struct buffer *text)
{
    char bos[256];
    uint32_t id = tokenizer_card(tokenizer)->bos;
    return token_text(tokenizer, id, bos, sizeof(bos)) && bos[0] &&
           strncmp(text->data, bos, strlen(bos)) == 0;
}

struct text_owner prompt_owner(const struct prompt_maker *maker, const struct api_request *request)
{
    return (struct text_owner){.tokenizer = maker->tokenizer,
                               .tokenizer_id = maker->tokenizer_id,
                               .salt = request->cache_salt,
                               .turn_memory = maker->turn_memory && request->turn_memory &&
                                              request->kind != API_TOKENIZE};
}

static int encode(const struct prompt_maker *maker, const struct api_request *request,
                  const char *text, size_t bytes, const struct tokenize_options *options,
                  struct token_ids *out, struct prompt_trace *ret_trace)
{
    const struct text_owner owner = prompt_owner(maker, request);
    if (!maker->cache)
        return tokenizer_encode(maker->tokenizer, text, bytes, options, out);
    return text_cache_encode(maker->cache, &owner, text, bytes, options, out, ret_trace);
}

/* Text -> ids, cut where the request says so: then not by the cache, whose trace is of wholes. */
static int encode_prompt(const struct prompt_maker *maker, const struct api_request *request,
                         const struct buffer *text, const struct tokenize_options *options,
                         struct token_ids *out, struct prompt_trace *ret_trace,
                         struct api_error *error)
{
    struct token_ids all;

    if (request->truncate == 0) {
        if (cannot_fit(maker, text->bytes, out) ||
            encode(maker, request, text->data, text->bytes, options, out, ret_trace) < 0)
            return too_long(request, out, error);
        return 0;
    }
    if (text->bytes > PROMPT_TRUNCATE_BYTES_MAX)
        return api_error_bad(error, "truncate_prompt_tokens",
                             "The prompt has %zu bytes; with 'truncate_prompt_tokens' it may have "
                             "at most %zu.",
                             text->bytes, PROMPT_TRUNCATE_BYTES_MAX);
    token_ids_init(&all, 4 * PROMPT_TRUNCATE_BYTES_MAX); /* a byte is never more tokens than that */
    int r = tokenizer_encode(maker->tokenizer, text->data, text->bytes, options, &all);
    r = r < 0 ? too_long(request, out, error) : take_ids(request, all.ids, all.count, out, error);
    token_ids_done(&all);
    return r;
}

int prompt_encode(const struct prompt_maker *maker, const struct api_request *request,
                  const struct rendered *rendered, struct token_ids *out,
                  struct prompt_trace *ret_trace, struct api_error *error)
{
    struct tokenize_options options = {.parse_special = true};

    struct text_range *literal = mem_calloc(rendered->spans_count + 1, sizeof(*literal));
    for (size_t i = 0; i < rendered->spans_count; i++)
        literal[i] = (struct text_range){rendered->spans[i].start, rendered->spans[i].end};
    options.literal = literal;
    options.literal_count = rendered->spans_count;
    options.add_special =
        request->add_special_tokens && !begins_with_bos(maker->tokenizer, &rendered->text);
    int r = encode_prompt(maker, request, &rendered->text, &options, out, ret_trace, error);
    mem_free(literal);
    if (r < 0)
        return r;
    if (out->count == 0)
        return api_error_bad(error, template_param(request),
                             "The chat template made an empty prompt of this.");
    return 0;
}

int prompt_from_chat(const struct prompt_maker *maker, const struct api_request *request,
                     struct token_ids *out, struct prompt_trace *ret_trace, struct api_error *error)
{
    struct rendered rendered;

    int r = prompt_render(maker, request, clock_unix(), &rendered, error);
    if (r < 0)
        return r;
    r = prompt_encode(maker, request, &rendered, out, ret_trace, error);
    rendered_done(&rendered);
    return r;
}

static int copy_ids(const struct api_request *request, const struct api_prompt *prompt,
                    uint32_t vocab_size, struct token_ids *out, struct api_error *error)
{
    if (request->truncate == 0 && prompt->ids_count > out->count_max)
        return api_error_set(error, 400, "context_length_exceeded", "prompt",
                             "This model's maximum context length is %zu tokens, and the prompt "
                             "alone has %zu; at least 1 must be left for the answer. Please "
                             "shorten the prompt.",
                             out->count_max, prompt->ids_count);
    for (size_t i = 0; i < prompt->ids_count; i++) {
        if (prompt->ids[i] >= vocab_size)
            return api_error_bad(error, "prompt",
                                 "Token id %u at position %zu is out of vocabulary: this model has "
                                 "%u.",
                                 prompt->ids[i], i, vocab_size);
    }
    return take_ids(request, prompt->ids, prompt->ids_count, out, error);
}

int prompt_from_completion(const struct prompt_maker *maker, const struct api_request *request,
                           const struct api_prompt *prompt, struct token_ids *out,
                           struct prompt_trace *ret_trace, struct api_error *error)
{
    const struct tokenize_options options = {.add_special = request->add_special_tokens,
                                             .parse_special = true};
    if (!prompt->text)
        return copy_ids(request, prompt, tokenizer_card(maker->tokenizer)->vocab_size, out, error);
    const struct buffer text = {.data = (char *)prompt->text, .bytes = prompt->bytes};
    int r = encode_prompt(maker, request, &text, &options, out, ret_trace, error);
    if (r < 0)
        return r;
    if (out->count == 0 && request->kind == API_COMPLETIONS)
        return api_error_bad(error, "prompt", "'prompt' has no tokens.");
    return 0;
}
