/* sampling_fields.c - fields in which one name has two shapes, or that need a second one. */
#include "router/api/sampling_fields.h"

#include <errno.h>
#include <math.h>

#include "proto/sampling_limits.h"
#include "router/api/token_rules.h"

static struct api_request *request_of(const struct field_reader *reader)
{
    return reader->out;
}

int sampling_fields_read_prompt_logprobs(struct field_reader *reader, const struct field *field,
                                         const json_t *value)
{
    struct api_request *request = request_of(reader);
    struct field row = *field;
    bool stream = json_is_true(json_object_get(request->root, "stream"));

    row.type = FIELD_U32;
    int r = fields_read_value(&row, value, reader);
    if (r == 0 && stream && request->prompt_logprobs > 0)
        return api_error_bad(reader->error, field->name,
                             "'prompt_logprobs' is not available with 'stream'.");
    if (r == 0)
        request->prompt_logprobs = stream ? 0 : request->prompt_logprobs + 1;
    return r;
}

/* Chat: `logprobs` is a switch, `top_logprobs` the number. Completions: `logprobs` is the number.
 */
int sampling_fields_read_logprobs(struct field_reader *reader, const struct field *field,
                                  const json_t *value)
{
    struct api_request *request = request_of(reader);
    struct field row = *field;

    if (reader->kind == 1u << API_COMPLETIONS) {
        row.type = FIELD_U32;
        int r = fields_read_value(&row, value, reader);
        if (r == 0)
            request->logprobs++;
        return r;
    }
    if (!json_is_boolean(value))
        return api_error_bad(reader->error, field->name,
                             "'logprobs' must be true or false, not %s; 'top_logprobs' takes the "
                             "number.",
                             fields_type_name(value));
    if (json_is_true(value) && request->logprobs == 0)
        request->logprobs = 1;
    return 0;
}

int sampling_fields_read_top_logprobs(struct field_reader *reader, const struct field *field,
                                      const json_t *value)
{
    struct api_request *request = request_of(reader);
    struct field row = *field;

    row.type = FIELD_U32;
    int r = fields_read_value(&row, value, reader);
    if (r < 0)
        return r;
    if (request->logprobs > 0 && !json_is_true(json_object_get(request->root, "logprobs")))
        return api_error_bad(reader->error, field->name,
                             "'top_logprobs' is %u; it needs 'logprobs' to be true.",
                             request->logprobs);
    if (json_is_true(json_object_get(request->root, "logprobs")))
        request->logprobs++;
    return 0;
}

static bool holds(const uint32_t *ids, size_t count, uint32_t id)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

int sampling_fields_read_logprob_ids(struct field_reader *reader, const struct field *field,
                                     const json_t *value)
{
    struct api_request *request = request_of(reader);
    const uint32_t *ids = NULL;
    size_t count = 0, kept = 0;

    int r = token_rules_read_ids(reader, field->name, value, LOGPROB_IDS_MAX, &ids, &count);
    if (r < 0)
        return r;
    if (count == 0)
        return api_error_bad(reader->error, field->name, "'%s' must not be empty.", field->name);
    uint32_t *once = (uint32_t *)(uintptr_t)ids; /* the arena's */
    for (size_t i = 0; i < count; i++) {
        if (!holds(once, kept, ids[i]))
            once[kept++] = ids[i];
    }
    request->logprob_ids = once;
    request->logprob_ids_count = kept;
    return 0;
}

static int check_logprob_ids(const struct api_request *request, struct api_error *error)
{
    if (!request->logprob_ids || request->logprobs > 0)
        return 0;
    return api_error_bad(error, "logprob_token_ids", "'logprob_token_ids' needs 'logprobs'%s.",
                         request->kind == API_CHAT ? " to be true" : "");
}

/* ---- ends ---- */

int sampling_fields_read_repetition(struct field_reader *reader, const struct field *field,
                                    const json_t *value)
{
    static const struct field rows[] = {{.name = "repetition_detection.max_pattern_size",
                                         .type = FIELD_U32,
                                         .kinds = UINT32_MAX,
                                         .max = REPETITION_PATTERN_MAX,
                                         .offset = offsetof(struct api_request, repetition_max)},
                                        {.name = "repetition_detection.min_pattern_size",
                                         .type = FIELD_U32,
                                         .kinds = UINT32_MAX,
                                         .max = REPETITION_PATTERN_MAX,
                                         .offset = offsetof(struct api_request, repetition_min)},
                                        {.name = "repetition_detection.min_count",
                                         .type = FIELD_U32,
                                         .kinds = UINT32_MAX,
                                         .max = REPETITION_COUNT_MAX,
                                         .offset = offsetof(struct api_request, repetition_count)},
                                        {.name = NULL}};
    struct api_request *request = request_of(reader);

    if (!json_is_object(value))
        return fields_wrong_type(reader->error, field->name, "an object", value);
    int r = fields_read(rows, value, reader);
    if (r < 0)
        return r;
    if (request->repetition_min > request->repetition_max)
        return api_error_bad(reader->error, "repetition_detection.min_pattern_size",
                             "'%s': 'min_pattern_size' is %u, more than 'max_pattern_size' %u.",
                             field->name, request->repetition_min, request->repetition_max);
    if (request->repetition_max > 0 && request->repetition_count < 2)
        return api_error_bad(reader->error, "repetition_detection.min_count",
                             "'%s': 'min_count' is %u; it must be at least 2 (or "
                             "'max_pattern_size' 0, which is off).",
                             field->name, request->repetition_count);
    if (request->repetition_min == 0)
        request->repetition_min = 1;
    return 0;
}

/* ---- what they say together ---- */

/* The answers that are written for each prompt, and how many of them are given out. */
static int check_best_of(struct api_request *request, struct api_error *error)
{
    uint32_t n = request->n;

    if (request->best_of == 0) {
        request->best_of = n;
        return 0;
    }
    if (request->best_of == n)
        return 0;
    if (request->kind == API_CHAT)
        return api_error_bad(error, "best_of",
                             "'best_of' is %u and 'n' is %u: a chat answers all that it writes, so "
                             "they must be equal; /v1/completions chooses the best.",
                             request->best_of, n);
    if (request->best_of < n)
        return api_error_bad(error, "best_of", "'best_of' is %u; it must be at least 'n', %u.",
                             request->best_of, n);
    if (request->stream)
        return api_error_bad(error, "best_of",
                             "'best_of' is %u and 'n' is %u: with 'stream' they must be equal, "
                             "since the best are known only when all have ended.",
                             request->best_of, n);
    return 0;
}

/* A penalty that changes something; NAN: none was stated. */
static bool weighs(double penalty, double neutral)
{
    return !isnan(penalty) && penalty != neutral;
}

/* Beams are chosen by the model's own log probabilities: what would change them, or looks at the
 * text on the way, has no place there. vLLM takes these fields and does not heed them. */
static const char *field_against_beams(const struct api_request *request)
{
    const struct {
        const char *name;
        bool given;
    } rows[] = {
        {"stream", request->stream},
        {"best_of", request->best_of != request->n},
        {"logprob_token_ids", request->logprob_ids != NULL},
        {"prompt_logprobs", request->prompt_logprobs > 0},
        {"echo", api_request_prompt_logprobs(request) > 0},
        {"stop", request->stop_count > 0},
        {"stop_token_ids", request->stop_ids_count > 0},
        {"min_tokens", request->tokens_min > 0},
        {"max_tokens", request->score_only},
        {"logit_bias", request->bias_count > 0},
        {"allowed_token_ids", request->allowed_count > 0},
        {"bad_words", request->bad_words_count > 0},
        {"repetition_penalty", weighs(request->repetition_penalty, 1)},
        {"presence_penalty", weighs(request->presence_penalty, 0)},
        {"frequency_penalty", weighs(request->frequency_penalty, 0)},
        {"thinking_token_budget", request->thinking_tokens_max >= 0},
        {"repetition_detection", request->repetition_max > 0},
        {"tool_choice", request->tool_choice > API_TOOLS_AUTO},
        {request->grammar_param, request->grammar.kind != GRAMMAR_NONE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].given)
            return rows[i].name;
    }
    return NULL;
}

static int check_beams(const struct api_request *request, struct api_error *error)
{
    const char *name = request->beam_search ? field_against_beams(request) : NULL;

    if (name)
        return api_error_bad(error, name, "'%s' does not go with 'use_beam_search'.", name);
    if (request->beam_search && request->n > BEAMS_MAX)
        return api_error_bad(error, "n", "'n' is %u; with 'use_beam_search' at most %u beams fit.",
                             request->n, BEAMS_MAX);
    return 0;
}

int sampling_fields_check(struct api_request *request, struct api_error *error)
{
    int r = check_best_of(request, error);

    if (r == 0)
        r = check_logprob_ids(request, error);
    if (r == 0)
        r = check_beams(request, error);
    if (r < 0)
        return r;
    if (request->best_of > 1 && request->prompts_count * request->best_of > API_CHOICES_MAX)
        return api_error_bad(
            error, request->best_of > request->n ? "best_of" : "n",
            "%zu prompts times %s = %u; at most %u choices fit.", request->prompts_count,
            request->best_of > request->n ? "best_of" : "n", request->best_of, API_CHOICES_MAX);
    return 0;
}
