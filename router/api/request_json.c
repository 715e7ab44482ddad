/* request_json.c - the table of request fields, and the few that a row cannot describe.
 *
 * One table for all endpoints that take a prompt; a row says for which. A new field is one row (and
 * one read function when it has several shapes). vLLM's names and limits where it has them. */
#include "router/api/request_json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "proto/base/json.h"
#include "proto/sampling_limits.h"
#include "router/api/fields.h"
#include "router/api/grammar_fields.h"
#include "router/api/messages.h"
#include "router/api/sampling_fields.h"
#include "router/api/token_rules.h"
#include "router/api/tool_fields.h"
#include "router/text/chat_template.h"

#define CHAT (1u << API_CHAT)
#define COMPLETIONS (1u << API_COMPLETIONS)
#define TOKENIZE (1u << API_TOKENIZE)
#define DETOKENIZE (1u << API_DETOKENIZE)
#define ANSWERS (CHAT | COMPLETIONS)
#define RENDERS (CHAT | TOKENIZE)
#define ALL (CHAT | COMPLETIONS | TOKENIZE | DETOKENIZE)

#define TOKENS_LIMIT 16777216.0
#define PROMPT_IDS_MAX (1u << 22)

static struct api_request *request_of(const struct field_reader *reader)
{
    return reader->out;
}

static int read_messages(struct field_reader *reader, const struct field *field,
                         const json_t *value)
{
    (void)field;
    return messages_read(value, &request_of(reader)->messages, reader->error);
}

static int read_tools(struct field_reader *reader, const struct field *field, const json_t *value)
{
    (void)field;
    return messages_read_tools(value, &request_of(reader)->tools, reader->error);
}

static int read_object(struct field_reader *reader, const struct field *field, const json_t *value)
{
    if (!json_is_object(value))
        return fields_wrong_type(reader->error, field->name, "an object", value);
    *(const json_t **)(void *)((char *)reader->out + field->offset) = value;
    return 0;
}

static int read_list(struct field_reader *reader, const struct field *field, const json_t *value)
{
    if (!json_is_array(value))
        return fields_wrong_type(reader->error, field->name, "a list", value);
    *(const json_t **)(void *)((char *)reader->out + field->offset) = value;
    return 0;
}

/* Whether it may be used is not known here (models_maker). The field itself is read after
 * chat_template_kwargs, so it wins. */
static int read_chat_template(struct field_reader *reader, const struct field *field,
                              const json_t *value)
{
    struct api_request *request = request_of(reader);
    size_t bytes = json_string_length(value);

    if (!json_is_string(value))
        return api_error_bad(reader->error, field->name,
                             "'chat_template' must be a string, not %s.", fields_type_name(value));
    if (bytes > CHAT_TEMPLATE_SOURCE_MAX)
        return api_error_bad(reader->error, field->name,
                             "'chat_template' has %zu bytes; at most %u fit.", bytes,
                             CHAT_TEMPLATE_SOURCE_MAX);
    request->chat_template = json_string_value(value);
    request->chat_template_bytes = bytes;
    return 0;
}

static int read_kwargs(struct field_reader *reader, const struct field *field, const json_t *value)
{
    const json_t *template = json_object_get(value, "chat_template");

    int r = read_object(reader, field, value);
    if (r < 0 || !template || json_is_null(template))
        return r;
    return read_chat_template(reader, field, template);
}

/* As vLLM: a variable of the template, unless chat_template_kwargs has it. */
static int read_reasoning_effort(struct field_reader *reader, const struct field *field,
                                 const json_t *value)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    struct api_request *request = request_of(reader);
    json_t *kwargs = json_object_get(request->root, "chat_template_kwargs");
    const char *effort = json_string_value(value);
    size_t i = 0, count = sizeof(efforts) / sizeof(efforts[0]);

    while (effort && i < count && strcmp(effort, efforts[i]) != 0)
        i++;
    if (!effort || i == count)
        return api_error_bad(reader->error, field->name,
                             "'%s' must be none, minimal, low, medium, high, xhigh or max.",
                             field->name);
    if (!json_is_object(kwargs)) { /* absent or null: its own row has refused the rest */
        kwargs = json_object();
        (void)json_object_set_new(request->root, "chat_template_kwargs", kwargs);
    }
    if (!json_object_get(kwargs, field->name))
        (void)json_object_set_new(kwargs, field->name, json_string(effort));
    request->kwargs = kwargs;
    return 0;
}

static int read_generation_prompt(struct field_reader *reader, const struct field *field,
                                  const json_t *value)
{
    struct field row = *field;
    row.type = FIELD_BOOL;
    request_of(reader)->generation_prompt_given = true;
    return fields_read_value(&row, value, reader);
}

/* ---- prompts ---- */

static int refuse_memory(struct field_reader *reader, const char *name)
{
    return api_error_set(reader->error, 413, "request_too_large", name,
                         "'%s' needs more memory than a request may have.", name);
}

static int read_one_prompt(struct field_reader *reader, const json_t *value,
                           struct api_prompt *prompt)
{
    if (json_is_string(value)) {
        prompt->text = json_string_value(value);
        prompt->bytes = json_string_length(value);
        return 0;
    }
    if (!json_is_array(value))
        return api_error_bad(reader->error, "prompt",
                             "'prompt' must be a string, a list of strings, a list of token ids or "
                             "a list of such lists; it holds %s.",
                             fields_type_name(value));
    int r = token_rules_read_ids(reader, "prompt", value, PROMPT_IDS_MAX, &prompt->ids,
                                 &prompt->ids_count);
    if (r == 0 && prompt->ids_count == 0)
        return api_error_bad(reader->error, "prompt", "'prompt' has no tokens.");
    return r;
}

static int read_prompt(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct api_request *request = request_of(reader);
    bool several = json_is_array(value) && !json_is_number(json_array_get(value, 0));
    size_t count = several ? json_array_size(value) : 1;

    if (count == 0)
        return api_error_bad(reader->error, "prompt", "'prompt' is an empty list.");
    if (count > API_CHOICES_MAX)
        return api_error_bad(reader->error, "prompt", "'prompt' has %zu entries; at most %u fit.",
                             count, API_CHOICES_MAX);
    request->prompts = arena_zalloc(reader->arena, count * sizeof(*request->prompts));
    if (!request->prompts)
        return refuse_memory(reader, field->name);
    for (size_t i = 0; i < count; i++) {
        int r = read_one_prompt(reader, several ? json_array_get(value, i) : value,
                                &request->prompts[i]);
        if (r < 0)
            return r;
    }
    request->prompts_count = count;
    return 0;
}

/* llama.cpp's name in /tokenize, with its default: no special tokens around the text. */
static int read_content(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct api_request *request = request_of(reader);

    if (request->prompts_count > 0)
        return api_error_bad(reader->error, "content",
                             "'prompt' and 'content' exclude each other.");
    if (!json_is_string(value))
        return fields_wrong_type(reader->error, "content", "a string", value);
    request->add_special_tokens = false;
    return read_prompt(reader, field, value);
}

static int refuse_pieces(struct field_reader *reader, const struct field *field,
                         const json_t *value)
{
    if (!json_is_boolean(value))
        return fields_wrong_type(reader->error, field->name, "true or false", value);
    return json_is_true(value)
               ? api_error_set(reader->error, 400, "unsupported_parameter", "with_pieces",
                               "'with_pieces' is not supported; 'return_token_strs' is.")
               : 0;
}

static int read_tokens(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct api_request *request = request_of(reader);

    request->prompts = arena_zalloc(reader->arena, sizeof(*request->prompts));
    if (!request->prompts)
        return refuse_memory(reader, field->name);
    request->prompts_count = 1;
    return token_rules_read_ids(reader, field->name, value, PROMPT_IDS_MAX, &request->prompts->ids,
                                &request->prompts->ids_count);
}

/* ---- sampling ---- */

static int add_stop(struct field_reader *reader, const json_t *value)
{
    struct api_request *request = request_of(reader);
    size_t bytes = json_string_length(value);

    if (!json_is_string(value))
        return api_error_bad(reader->error, "stop",
                             "'stop' must be a string or a list of strings; it holds %s.",
                             fields_type_name(value));
    if (bytes == 0)
        return api_error_bad(reader->error, "stop", "'stop' must not hold an empty string.");
    if (bytes > 1024)
        return api_error_bad(reader->error, "stop",
                             "'stop' holds a string of %zu bytes; at most 1024 fit.", bytes);
    request->stop[request->stop_count] = json_string_value(value);
    request->stop_bytes[request->stop_count++] = bytes;
    return 0;
}

static int read_stop(struct field_reader *reader, const struct field *field, const json_t *value)
{
    (void)field;
    if (!json_is_array(value))
        return add_stop(reader, value);
    if (json_array_size(value) > API_STOP_MAX)
        return api_error_bad(reader->error, "stop", "'stop' has %zu strings; at most %u fit.",
                             json_array_size(value), API_STOP_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        int r = add_stop(reader, json_array_get(value, i));
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_stop_ids(struct field_reader *reader, const struct field *field,
                         const json_t *value)
{
    struct api_request *request = request_of(reader);

    return token_rules_read_ids(reader, field->name, value, API_STOP_IDS_MAX, &request->stop_ids,
                                &request->stop_ids_count);
}

static int read_top_k(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct api_request *request = request_of(reader);
    struct field row = *field;
    row.type = FIELD_I64;
    int r = fields_read_value(&row, value, reader);
    if (r == 0 && request->top_k == -1)
        request->top_k = 0;
    return r;
}

static int read_seed(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct field row = *field;
    row.type = FIELD_I64;
    request_of(reader)->has_seed = true;
    return fields_read_value(&row, value, reader);
}

/* 0 is a number here: completions that only echo ask for it. */
static int read_max_tokens(struct field_reader *reader, const struct field *field,
                           const json_t *value)
{
    struct api_request *request = request_of(reader);
    struct field row = *field;

    row.type = FIELD_U32;
    row.min = reader->kind == COMPLETIONS ? 0 : 1;
    int r = fields_read_value(&row, value, reader);
    request->score_only = r == 0 && request->tokens_max == 0;
    return r;
}

/* -1, or from 1 to the row's maximum; `allowed` says so up to that number. */
static int read_count_or_minus_one(struct field_reader *reader, const struct field *field,
                                   const json_t *value, const char *allowed, int64_t *ret_number)
{
    int64_t number = 0;

    if (!json_is_number(value) || fields_integer(value, &number) < 0)
        return fields_wrong_type(reader->error, field->name, "an integer", value);
    if (number != -1 && (number < 1 || (double)number > field->max))
        return api_error_bad(reader->error, field->name, "'%s' is %" PRId64 "; it must be %s %.0f.",
                             field->name, number, allowed, field->max);
    *ret_number = number;
    return 0;
}

/* llama.cpp's name; -1 says nothing. */
static int read_n_predict(struct field_reader *reader, const struct field *field,
                          const json_t *value)
{
    struct api_request *request = request_of(reader);
    int64_t number = 0;

    int r = read_count_or_minus_one(reader, field, value, "-1, or at least 1 and at most", &number);
    if (r == 0 && number != -1 && request->tokens_max == 0 && !request->score_only)
        request->tokens_max = (uint32_t)number;
    return r;
}

static int read_truncate(struct field_reader *reader, const struct field *field,
                         const json_t *value)
{
    int64_t number = 0;

    int r =
        read_count_or_minus_one(reader, field, value, "-1 (as many as fit) or from 1 to", &number);
    if (r == 0)
        request_of(reader)->truncate = number == -1 ? API_TRUNCATE_MODEL_MAX : (uint32_t)number;
    return r;
}

static int read_truncation_side(struct field_reader *reader, const struct field *field,
                                const json_t *value)
{
    const char *side = json_string_value(value);

    if (!side || (strcmp(side, "left") != 0 && strcmp(side, "right") != 0))
        return api_error_bad(reader->error, field->name, "'%s' must be \"left\" or \"right\".",
                             field->name);
    request_of(reader)->truncate_right = strcmp(side, "right") == 0;
    return 0;
}

/* Text is all that is written here. */
static int read_modalities(struct field_reader *reader, const struct field *field,
                           const json_t *value)
{
    const char *only = json_string_value(json_array_get(value, 0));

    if (json_array_size(value) == 1 && only && strcmp(only, "text") == 0)
        return 0;
    return api_error_set(reader->error, 400, "unsupported_parameter", field->name,
                         "'%s' other than [\"text\"] is not supported: this server answers text.",
                         field->name);
}

/* OpenAI's: even an empty object asks for it. */
static int refuse_web_search(struct field_reader *reader, const struct field *field,
                             const json_t *value)
{
    (void)value;
    return api_error_set(reader->error, 400, "unsupported_parameter", field->name,
                         "'%s' is not supported: it has the model search the web before it "
                         "answers; this server answers text from the messages alone.",
                         field->name);
}

/* ---- the rest ---- */

static int read_stream_options(struct field_reader *reader, const struct field *field,
                               const json_t *value)
{
    static const struct field rows[] = {{.name = "stream_options.include_usage",
                                         .type = FIELD_BOOL,
                                         .kinds = ALL,
                                         .offset = offsetof(struct api_request, include_usage)},
                                        {.name = "stream_options.continuous_usage_stats",
                                         .type = FIELD_BOOL,
                                         .kinds = ALL,
                                         .offset = offsetof(struct api_request, continuous_usage)},
                                        {.name = NULL}};

    if (!json_is_object(value))
        return fields_wrong_type(reader->error, field->name, "an object", value);
    if (!json_is_true(json_object_get(request_of(reader)->root, "stream")))
        return api_error_bad(reader->error, field->name,
                             "'stream_options' needs 'stream' to be true.");
    return fields_read(rows, value, reader);
}

static int read_history(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct api_request *request = request_of(reader);
    struct errmsg err;

    if (history_parse_json(value, &request->history, &err) < 0)
        return api_error_bad(reader->error, field->name, "'%s' %s.", field->name, err.text);
    request->has_history = true;
    return 0;
}

static int read_refrain(struct field_reader *reader, const struct field *field, const json_t *value)
{
    static const struct field rows[] = {
        {.name = "refrain.explain",
         .type = FIELD_BOOL,
         .kinds = ALL,
         .offset = offsetof(struct api_request, explain)},
        {.name = "refrain.turn_memory",
         .type = FIELD_BOOL,
         .kinds = ALL,
         .offset = offsetof(struct api_request, turn_memory)},
        {.name = "refrain.history", .type = FIELD_CUSTOM, .kinds = CHAT, .read = read_history},
        {.name = NULL}};
    if (!json_is_object(value))
        return fields_wrong_type(reader->error, field->name, "an object", value);
    return fields_read(rows, value, reader);
}

static int read_priority(struct field_reader *reader, const struct field *field,
                         const json_t *value)
{
    int64_t number = 0;

    if (!json_is_number(value) || fields_integer(value, &number) < 0 || number < INT32_MIN ||
        number > INT32_MAX)
        return api_error_bad(reader->error, field->name,
                             "'priority' must be an integer from %d to %d.", INT32_MIN, INT32_MAX);
    request_of(reader)->priority = (int32_t)number;
    return 0;
}

#define AT(field_) offsetof(struct api_request, field_)
#define DOUBLE_ROW(name_, kinds_, field_, min_, above_, max_)                   \
    {                                                                           \
        name_, FIELD_DOUBLE, kinds_, AT(field_), min_, max_, above_, NULL, NULL \
    }
#define U32_ROW(name_, kinds_, field_, min_, max_)                          \
    {                                                                       \
        name_, FIELD_U32, kinds_, AT(field_), min_, max_, false, NULL, NULL \
    }
#define I64_ROW(name_, kinds_, field_, min_, max_)                          \
    {                                                                       \
        name_, FIELD_I64, kinds_, AT(field_), min_, max_, false, NULL, NULL \
    }
#define BOOL_ROW(name_, kinds_, field_)                                \
    {                                                                  \
        name_, FIELD_BOOL, kinds_, AT(field_), 0, 0, false, NULL, NULL \
    }
#define TEXT_ROW(name_, kinds_, field_, max_)                             \
    {                                                                     \
        name_, FIELD_TEXT, kinds_, AT(field_), 0, max_, false, NULL, NULL \
    }
#define READ_ROW(name_, kinds_, field_, min_, max_, read_)                      \
    {                                                                           \
        name_, FIELD_CUSTOM, kinds_, AT(field_), min_, max_, false, read_, NULL \
    }
#define IGNORED_ROW(name_)                                    \
    {                                                         \
        name_, FIELD_IGNORED, ALL, 0, 0, 0, false, NULL, NULL \
    }
#define REFUSED_ROW(name_) REFUSED_BECAUSE(name_, NULL)
#define REFUSED_BECAUSE(name_, why_)                          \
    {                                                         \
        name_, FIELD_REFUSED, ALL, 0, 0, 0, false, NULL, why_ \
    }

/* clang-format off */
static const struct field table[] = {
    TEXT_ROW("model", ALL, model, 256),
    READ_ROW("messages", RENDERS, messages, 0, 0, read_messages),
    READ_ROW("tools", RENDERS, tools, 0, 0, read_tools),
    READ_ROW("documents", RENDERS, documents, 0, 0, read_list),
    READ_ROW("chat_template_kwargs", RENDERS, kwargs, 0, 0, read_kwargs),
    READ_ROW("chat_template", RENDERS, chat_template, 0, 0, read_chat_template),
    READ_ROW("reasoning_effort", RENDERS, kwargs, 0, 0, read_reasoning_effort),
    READ_ROW("add_generation_prompt", RENDERS, add_generation_prompt, 0, 0, read_generation_prompt),
    BOOL_ROW("continue_final_message", RENDERS, continue_final_message),
    BOOL_ROW("add_special_tokens", CHAT | COMPLETIONS | TOKENIZE, add_special_tokens),
    BOOL_ROW("return_token_strs", TOKENIZE, return_token_strs),
    READ_ROW("prompt", COMPLETIONS | TOKENIZE, prompts, 0, 0, read_prompt),
    READ_ROW("content", TOKENIZE, prompts, 0, 0, read_content),
    BOOL_ROW("add_special", TOKENIZE, add_special_tokens), /* llama.cpp's */
    READ_ROW("with_pieces", TOKENIZE, prompts, 0, 0, refuse_pieces),
    READ_ROW("tokens", DETOKENIZE, prompts, 0, 0, read_tokens),
    BOOL_ROW("echo", ANSWERS, echo),
    DOUBLE_ROW("temperature", ANSWERS, temperature, 0, false, 1e6),
    DOUBLE_ROW("top_p", ANSWERS, top_p, 0, true, 1),
    DOUBLE_ROW("min_p", ANSWERS, min_p, 0, false, 1),
    READ_ROW("top_k", ANSWERS, top_k, -1, 2147483647, read_top_k),
    READ_ROW("seed", ANSWERS, seed, -9223372036854775808.0, 9223372036854775808.0, read_seed),
    DOUBLE_ROW("repetition_penalty", ANSWERS, repetition_penalty, 0.01, false, 2),
    DOUBLE_ROW("presence_penalty", ANSWERS, presence_penalty, -2, false, 2),
    DOUBLE_ROW("frequency_penalty", ANSWERS, frequency_penalty, -2, false, 2),
    READ_ROW("max_tokens", ANSWERS, tokens_max, 0, TOKENS_LIMIT, read_max_tokens),
    READ_ROW("n_predict", ANSWERS, tokens_max, -1, TOKENS_LIMIT, read_n_predict),
    U32_ROW("max_completion_tokens", CHAT, tokens_max, 1, TOKENS_LIMIT), /* wins over max_tokens */
    U32_ROW("min_tokens", ANSWERS, tokens_min, 0, TOKENS_LIMIT),
    READ_ROW("stop", ANSWERS, stop, 0, 0, read_stop),
    READ_ROW("stop_token_ids", ANSWERS, stop_ids, 0, 0, read_stop_ids),
    BOOL_ROW("ignore_eos", ANSWERS, ignore_eos),
    BOOL_ROW("include_stop_str_in_output", ANSWERS, include_stop),
    BOOL_ROW("skip_special_tokens", ANSWERS, skip_special_tokens),
    READ_ROW("top_logprobs", CHAT, logprobs, 0, API_TOP_LOGPROBS_MAX,
             sampling_fields_read_top_logprobs),
    READ_ROW("logprobs", ANSWERS, logprobs, 0, API_TOP_LOGPROBS_MAX, sampling_fields_read_logprobs),
    BOOL_ROW("return_tokens_as_token_ids", ANSWERS, tokens_as_ids),
    READ_ROW("logprob_token_ids", ANSWERS, logprob_ids, 0, 0, sampling_fields_read_logprob_ids),
    READ_ROW("repetition_detection", ANSWERS, repetition_max, 0, 0,
             sampling_fields_read_repetition),
    I64_ROW("thinking_token_budget", ANSWERS, thinking_tokens_max, -1, TOKENS_LIMIT),
    READ_ROW("prompt_logprobs", ANSWERS, prompt_logprobs, 0, PROMPT_LOGPROBS_MAX,
             sampling_fields_read_prompt_logprobs),
    READ_ROW("logit_bias", ANSWERS, bias_ids, 0, 0, token_rules_read_bias),
    READ_ROW("allowed_token_ids", ANSWERS, allowed_ids, 0, 0, token_rules_read_allowed),
    READ_ROW("bad_words", ANSWERS, bad_words, 0, 0, token_rules_read_bad_words),
    READ_ROW("truncate_prompt_tokens", ANSWERS, truncate, -1, TOKENS_LIMIT, read_truncate),
    READ_ROW("truncation_side", ANSWERS, truncate_right, 0, 0, read_truncation_side),
    BOOL_ROW("return_token_ids", ANSWERS, return_ids),
    BOOL_ROW("return_prompt_text", CHAT, return_prompt_text),
    TEXT_ROW("request_id", ANSWERS, request_id, 128),
    U32_ROW("n", ANSWERS, n, 1, API_N_MAX),
    BOOL_ROW("stream", ANSWERS, stream),
    READ_ROW("stream_options", ANSWERS, include_usage, 0, 0, read_stream_options),
    READ_ROW("priority", ANSWERS, priority, 0, 0, read_priority),
    TEXT_ROW("cache_salt", ANSWERS, cache_salt, CACHE_SALT_BYTES_MAX),
    TEXT_ROW("session_id", ANSWERS, session, 256),
    READ_ROW("refrain", ANSWERS, explain, 0, 0, read_refrain),
    READ_ROW("response_format", ANSWERS, grammar, 0, 0, grammar_fields_read_response_format),
    READ_ROW("guided_json", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("guided_regex", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("guided_choice", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("guided_grammar", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("json_schema", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("grammar", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("regex", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("ebnf", ANSWERS, grammar, 0, 0, grammar_fields_read_guided),
    READ_ROW("structured_outputs", ANSWERS, grammar, 0, 0, grammar_fields_read_structured),
    READ_ROW("tool_choice", CHAT, tool_choice, 0, 0, tool_fields_read_choice),
    BOOL_ROW("parallel_tool_calls", CHAT, parallel_tool_calls),
    BOOL_ROW("include_reasoning", CHAT, include_reasoning),
    READ_ROW("functions", ALL, tools, 0, 0, tool_fields_refuse_old),
    READ_ROW("function_call", ALL, tools, 0, 0, tool_fields_refuse_old),
    U32_ROW("best_of", ANSWERS, best_of, 1, API_N_MAX),
    IGNORED_ROW("guided_decoding_backend"),
    IGNORED_ROW("user"),
    IGNORED_ROW("metadata"),
    IGNORED_ROW("store"),
    IGNORED_ROW("service_tier"),
    BOOL_ROW("use_beam_search", ANSWERS, beam_search),
    DOUBLE_ROW("length_penalty", ANSWERS, length_penalty, -100, false, 100), /* of beams only */
    IGNORED_ROW("spaces_between_special_tokens"), /* no tokenizer here puts any */
    IGNORED_ROW("detokenize"), /* vLLM's Python interface only */
    IGNORED_ROW("vllm_xargs"),
    IGNORED_ROW("kv_transfer_params"),
    IGNORED_ROW("stream_interval"), /* a hint: every step's tokens are sent at once */
    IGNORED_ROW("mm_processor_kwargs"),
    IGNORED_ROW("media_io_kwargs"),
    IGNORED_ROW("ec_transfer_params"),
    IGNORED_ROW("watermarking"), /* no text is marked here */
    IGNORED_ROW("return_token_offsets"), /* vLLM's render endpoints only, as the next one */
    IGNORED_ROW("return_mm_kwargs"),
    IGNORED_ROW("routed_experts_prompt_start"),
    IGNORED_ROW("prediction"), /* a hint for speculation */
    IGNORED_ROW("prompt_cache_key"), /* caches are found by content */
    IGNORED_ROW("prompt_cache_retention"),
    IGNORED_ROW("safety_identifier"),
    IGNORED_ROW("verbosity"),
    READ_ROW("modalities", CHAT, explain, 0, 0, read_modalities),
    REFUSED_BECAUSE("suffix", ": an answer goes on where the prompt ends"),
    REFUSED_BECAUSE("logits_processors", ": code of clients is not run here; 'logit_bias' is"),
    REFUSED_BECAUSE("prompt_embeds", ": it needs a server with --enable-prompt-embeds, which this "
                                     "one does not have; a prompt is a text or token ids"),
    READ_ROW("web_search_options", ANSWERS, explain, 0, 0, refuse_web_search),
    REFUSED_BECAUSE("audio", ": it is the voice and format of spoken answers; this server answers "
                             "text"),
    {NULL, FIELD_IGNORED, 0, 0, 0, 0, false, NULL, NULL},
};
/* clang-format on */

static void set_defaults(enum api_kind kind, struct api_request *request)
{
    memset(request, 0, sizeof(*request));
    request->kind = kind;
    request->temperature = request->top_p = request->min_p = NAN;
    request->repetition_penalty = request->presence_penalty = request->frequency_penalty = NAN;
    request->top_k = API_TOP_K_UNSET;
    request->add_generation_prompt = true;
    request->add_special_tokens = kind != API_CHAT;
    request->skip_special_tokens = true;
    request->parallel_tool_calls = request->include_reasoning = true;
    request->n = 1;
    request->length_penalty = 1;
    request->thinking_tokens_max = -1;
    request->cache_salt = "";
    request->turn_memory = true;
}

/* What no row can see alone. */
static int check_together(struct api_request *request, struct api_error *error)
{
    if (request->kind == API_CHAT && !request->messages)
        return api_error_bad(error, "messages", "'messages' is missing.");
    if (request->kind == API_COMPLETIONS && request->prompts_count == 0)
        return api_error_bad(error, "prompt", "'prompt' is missing.");
    if (request->kind == API_DETOKENIZE && request->prompts_count == 0)
        return api_error_bad(error, "tokens", "'tokens' is missing.");
    if (request->kind == API_TOKENIZE && !request->messages == (request->prompts_count == 0))
        return api_error_bad(error, "prompt",
                             "One of 'prompt' (or 'content') and 'messages' is "
                             "needed.");
    if (request->kind == API_TOKENIZE && request->prompts_count > 0 &&
        (request->prompts_count > 1 || !request->prompts->text))
        return api_error_bad(error, "prompt", "'prompt' must be a string.");
    if (request->continue_final_message && request->generation_prompt_given &&
        request->add_generation_prompt)
        return api_error_bad(error, "continue_final_message",
                             "'continue_final_message' and 'add_generation_prompt' exclude each "
                             "other.");
    if (request->continue_final_message)
        request->add_generation_prompt = false;
    int r = tool_fields_check(request, error);
    if (r < 0)
        return r;
    if (request->score_only && !request->echo)
        return api_error_bad(error, "max_tokens",
                             "'max_tokens' is 0; it must be at least 1 unless 'echo' is true.");
    if (request->score_only && request->tokens_min > 0)
        return api_error_bad(error, "min_tokens", "'min_tokens' is %u, more than 'max_tokens' 0.",
                             request->tokens_min);
    if (request->tokens_max > 0 && request->tokens_min > request->tokens_max)
        return api_error_bad(error, "min_tokens", "'min_tokens' is %u, more than 'max_tokens' %u.",
                             request->tokens_min, request->tokens_max);
    return sampling_fields_check(request, error);
}

int request_json_parse(enum api_kind kind, const void *body, size_t bytes, struct arena *arena,
                       struct api_request *ret, struct api_error *error)
{
    struct field_reader reader = {.out = ret, .arena = arena, .error = error, .kind = 1u << kind};

    set_defaults(kind, ret);
    int r = fields_parse(body, bytes, &ret->root, error);
    if (r == 0)
        r = fields_read(table, ret->root, &reader);
    if (r == 0 && kind == API_TOKENIZE && ret->messages &&
        !json_is_boolean(json_object_get(ret->root, "add_special_tokens")))
        ret->add_special_tokens = false;
    if (r == 0)
        fields_drop_ignored(table, reader.kind, ret->root);
    return r == 0 ? check_together(ret, error) : r;
}

const struct field *request_json_table(void)
{
    return table;
}

void api_request_done(struct api_request *request)
{
    json_decref(request->messages);
    json_decref(request->root);
    request->messages = request->root = NULL;
}
