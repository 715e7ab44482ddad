/* sampling_fields.c - fields in which one name has two shapes, or that need a second one. */
#include "router/api/sampling_fields.h"

#include <errno.h>

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

/* ---- best_of ---- */

int sampling_fields_read_best_of(struct field_reader *reader, const struct field *field,
                                 const json_t *value)
{
    struct field row = *field;

    row.type = FIELD_U32;
    return fields_read_value(&row, value, reader);
}

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

int sampling_fields_check(struct api_request *request, struct api_error *error)
{
    int r = check_best_of(request, error);

    if (r < 0)
        return r;
    if (request->best_of > 1 && request->prompts_count * request->best_of > API_CHOICES_MAX)
        return api_error_bad(
            error, request->best_of > request->n ? "best_of" : "n",
            "%zu prompts times %s = %u; at most %u choices fit.", request->prompts_count,
            request->best_of > request->n ? "best_of" : "n", request->best_of, API_CHOICES_MAX);
    return 0;
}
