/* token_rules.c - reading, checking and packing. Error sentences name places, never texts. */
#include "router/api/token_rules.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/number.h"
#include "proto/sampling_limits.h"

static struct api_request *request_of(const struct field_reader *reader)
{
    return reader->out;
}

static int refuse_memory(struct api_error *error, const char *name)
{
    return api_error_set(error, 413, "request_too_large", name,
                         "'%s' needs more memory than a request may have.", name);
}

int token_rules_read_ids(struct field_reader *reader, const char *name, const json_t *list,
                         size_t count_max, const uint32_t **ret_ids, size_t *ret_count)
{
    size_t count = json_array_size(list);

    if (!json_is_array(list))
        return fields_wrong_type(reader->error, name, "a list", list);
    if (count > count_max)
        return api_error_bad(reader->error, name, "'%s' has %zu token ids; at most %zu are taken.",
                             name, count, count_max);
    uint32_t *ids = arena_alloc(reader->arena, (count ? count : 1) * sizeof(*ids));
    if (!ids)
        return refuse_memory(reader->error, name);
    for (size_t i = 0; i < count; i++) {
        int64_t id = -1;
        const json_t *value = json_array_get(list, i);
        if (fields_integer(value, &id) < 0 || id < 0 || id >= (int64_t)UINT32_MAX)
            return api_error_bad(reader->error, name,
                                 "'%s' must hold token ids: entry %zu is no integer from 0 on.",
                                 name, i);
        ids[i] = (uint32_t)id;
    }
    *ret_ids = ids;
    *ret_count = count;
    return 0;
}

/* ---- logit_bias ---- */

static int read_bias_entry(struct field_reader *reader, const char *key, const json_t *value,
                           size_t i, uint32_t *ret_id, float *ret_bias)
{
    double bias = json_number_value(value);
    char got[NUMBER_TEXT_MAX];
    uint64_t id = 0;

    if (number_parse_u64(key, &id) < 0 || id >= UINT32_MAX)
        return api_error_bad(reader->error, "logit_bias",
                             "'logit_bias': the key of entry %zu is no token id.", i);
    if (!json_is_number(value))
        return api_error_bad(reader->error, "logit_bias",
                             "'logit_bias' of token %u must be a number, not %s.", (uint32_t)id,
                             fields_type_name(value));
    *ret_id = (uint32_t)id;
    number_format(bias, got);
    if (!(fabs(bias) <= LOGIT_BIAS_MAX))
        return api_error_bad(reader->error, "logit_bias",
                             "'logit_bias' of token %u is %s; it must be at least -%g and at most "
                             "%g.",
                             *ret_id, got, LOGIT_BIAS_MAX, LOGIT_BIAS_MAX);
    *ret_bias = (float)bias;
    return 0;
}

int token_rules_read_bias(struct field_reader *reader, const struct field *field,
                          const json_t *value)
{
    struct api_request *request = request_of(reader);
    size_t count = json_object_size(value), i = 0;
    const char *key;
    json_t *bias;

    if (!json_is_object(value))
        return fields_wrong_type(reader->error, field->name, "an object", value);
    if (count > LOGIT_BIAS_ENTRIES_MAX)
        return api_error_bad(reader->error, field->name, "'%s' has %zu entries; at most %u fit.",
                             field->name, count, LOGIT_BIAS_ENTRIES_MAX);
    uint32_t *ids = arena_alloc(reader->arena, (count ? count : 1) * sizeof(*ids));
    float *values = arena_alloc(reader->arena, (count ? count : 1) * sizeof(*values));
    if (!ids || !values)
        return refuse_memory(reader->error, field->name);
    json_object_foreach((json_t *)value, key, bias)
    {
        int r = read_bias_entry(reader, key, bias, i, &ids[i], &values[i]);
        if (r < 0)
            return r;
        i++;
    }
    request->bias_ids = ids;
    request->bias_values = values;
    request->bias_count = count;
    return 0;
}

int token_rules_read_allowed(struct field_reader *reader, const struct field *field,
                             const json_t *value)
{
    struct api_request *request = request_of(reader);
    int r = token_rules_read_ids(reader, field->name, value, ALLOWED_IDS_MAX, &request->allowed_ids,
                                 &request->allowed_count);
    if (r == 0 && request->allowed_count == 0)
        return api_error_bad(reader->error, field->name,
                             "'%s' is empty: then no token could be written.", field->name);
    return r;
}

/* ---- bad_words ---- */

static size_t leading_spaces(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && strchr(" \t\n\v\f\r", text[i]) && text[i] != '\0')
        i++;
    return i;
}

static int read_bad_word(struct field_reader *reader, const json_t *value, size_t i,
                         struct api_word *ret_word)
{
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);

    if (!text)
        return api_error_bad(reader->error, "bad_words",
                             "'bad_words' must be a list of strings; entry %zu is %s.", i,
                             fields_type_name(value));
    size_t spaces = leading_spaces(text, bytes);
    if (spaces == bytes)
        return api_error_bad(reader->error, "bad_words",
                             "'bad_words' must not hold an empty string: entry %zu has nothing but "
                             "spaces.",
                             i);
    if (bytes - spaces > BAD_WORD_BYTES_MAX)
        return api_error_bad(reader->error, "bad_words",
                             "'bad_words' entry %zu has %zu bytes; at most %u fit.", i,
                             bytes - spaces, BAD_WORD_BYTES_MAX);
    *ret_word = (struct api_word){text + spaces, bytes - spaces};
    return 0;
}

int token_rules_read_bad_words(struct field_reader *reader, const struct field *field,
                               const json_t *value)
{
    struct api_request *request = request_of(reader);
    size_t count = json_array_size(value);

    if (!json_is_array(value))
        return fields_wrong_type(reader->error, field->name, "a list", value);
    if (count > BAD_WORDS_MAX)
        return api_error_bad(reader->error, field->name, "'%s' has %zu strings; at most %u fit.",
                             field->name, count, BAD_WORDS_MAX);
    struct api_word *words = arena_alloc(reader->arena, (count ? count : 1) * sizeof(*words));
    if (!words)
        return refuse_memory(reader->error, field->name);
    for (size_t i = 0; i < count; i++) {
        int r = read_bad_word(reader, json_array_get(value, i), i, &words[i]);
        if (r < 0)
            return r;
    }
    request->bad_words = words;
    request->bad_words_count = count;
    return 0;
}

/* ---- against the model ---- */

static int check_ids(const uint32_t *ids, size_t count, uint32_t vocab_size, const char *name,
                     struct api_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= vocab_size)
            return api_error_bad(error, name,
                                 "'%s' holds token id %u, which is out of vocabulary: this model "
                                 "has %u.",
                                 name, ids[i], vocab_size);
    }
    return 0;
}

/* Tokens of the word, behind a space or not, moved to the arena. */
static int encode_word(struct tokenizer *tokenizer, const struct api_word *word, bool space,
                       struct arena *arena, ProtobufCBinaryData *ret_ids)
{
    const struct tokenize_options options = {.parse_special = true};
    char text[BAD_WORD_BYTES_MAX + 1];
    struct token_ids ids;
    int r;

    text[0] = ' ';
    memcpy(text + space, word->text, word->bytes);
    token_ids_init(&ids, BAD_SEQUENCE_IDS_MAX);
    r = tokenizer_encode(tokenizer, text, word->bytes + space, &options, &ids);
    if (r == 0 && ids.count == 0)
        r = -EINVAL;
    if (r == 0) {
        ret_ids->len = ids.count * sizeof(uint32_t);
        ret_ids->data = arena_alloc(arena, ret_ids->len);
        r = ret_ids->data ? 0 : -ENOMEM;
    }
    if (r == 0)
        memcpy(ret_ids->data, ids.ids, ret_ids->len);
    token_ids_done(&ids);
    return r;
}

/* vLLM's rule: the form behind a space is another one only if it is as long and begins with another
 * token; else the space is a token of its own and the plain form bans it already. */
static bool is_other_form(const ProtobufCBinaryData *plain, const ProtobufCBinaryData *spaced)
{
    return plain->len == spaced->len && memcmp(plain->data, spaced->data, sizeof(uint32_t)) != 0;
}

static int make_bad_words(const struct api_request *request, struct tokenizer *tokenizer,
                          struct arena *arena, struct token_rules *rules, struct api_error *error)
{
    size_t count = request->bad_words_count;

    rules->bad_words = arena_alloc(arena, (count ? 2 * count : 1) * sizeof(*rules->bad_words));
    if (!rules->bad_words)
        return refuse_memory(error, "bad_words");
    for (size_t i = 0; i < count; i++) {
        ProtobufCBinaryData *at = &rules->bad_words[rules->bad_words_count];
        int r = encode_word(tokenizer, &request->bad_words[i], false, arena, &at[0]);
        if (r == 0)
            r = encode_word(tokenizer, &request->bad_words[i], true, arena, &at[1]);
        if (r == -ENOMEM)
            return refuse_memory(error, "bad_words");
        if (r < 0)
            return api_error_bad(error, "bad_words",
                                 "'bad_words' entry %zu has no tokens of this model, or more than "
                                 "%u.",
                                 i, BAD_SEQUENCE_IDS_MAX);
        rules->bad_words_count += is_other_form(&at[0], &at[1]) ? 2 : 1;
    }
    return 0;
}

static ProtobufCBinaryData packed(const void *items, size_t count)
{
    return (ProtobufCBinaryData){count * sizeof(uint32_t), (uint8_t *)items};
}

int token_rules_make(const struct api_request *request, struct tokenizer *tokenizer,
                     struct arena *arena, struct token_rules *ret_rules, struct api_error *error)
{
    uint32_t vocab_size = tokenizer_card(tokenizer)->vocab_size;
    struct token_rules rules = {.bad_words_count = 0};

    int r = check_ids(request->bias_ids, request->bias_count, vocab_size, "logit_bias", error);
    if (r == 0)
        r = check_ids(request->allowed_ids, request->allowed_count, vocab_size, "allowed_token_ids",
                      error);
    if (r == 0)
        r = check_ids(request->stop_ids, request->stop_ids_count, vocab_size, "stop_token_ids",
                      error);
    if (r == 0)
        r = check_ids(request->logprob_ids, request->logprob_ids_count, vocab_size,
                      "logprob_token_ids", error);
    if (r == 0)
        r = make_bad_words(request, tokenizer, arena, &rules, error);
    if (r < 0)
        return r;
    rules.bias_ids = packed(request->bias_ids, request->bias_count);
    rules.bias_values = packed(request->bias_values, request->bias_count);
    rules.allowed_ids = packed(request->allowed_ids, request->allowed_count);
    rules.logprob_ids = packed(request->logprob_ids, request->logprob_ids_count);
    *ret_rules = rules;
    return 0;
}
