/* sampling_defaults.c - see sampling_defaults.h. One table of names and ranges; files are read
 * leniently (a model with a strange recommendation still serves), what an operator typed is not. */
#include "proto/files/sampling_defaults.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/files/card_ends.h"
#include "proto/files/file_bytes.h"

#define CONFIG_BYTES_MAX (1u << 20)

struct field {
    const char *name; /* in generation_config.json */
    double min, max;
    bool above_min; /* min itself is out of range */
    bool whole;     /* a uint32_t, 0: none; else a double, NAN: none */
    size_t offset;  /* in struct model_card */
};

#define AT(member) offsetof(struct model_card, member)
static const struct field fields[] = {
    {"temperature", 0, 100, false, false, AT(temperature)},
    {"top_p", 0, 1, true, false, AT(top_p)},
    {"min_p", 0, 1, false, false, AT(min_p)},
    {"top_k", 0, MODEL_CARD_TOKENS_MAX, false, true, AT(top_k)},
    {"repetition_penalty", 0, 100, true, false, AT(repetition_penalty)},
    {"max_new_tokens", 0, INT32_MAX, true, true, AT(answer_tokens_max)},
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static void set_field(struct model_card *card, const struct field *field, double value)
{
    char *at = (char *)card + field->offset;
    uint32_t whole = isnan(value) ? 0 : (uint32_t)value;
    if (field->whole)
        memcpy(at, &whole, sizeof(whole));
    else
        memcpy(at, &value, sizeof(value));
}

static bool fits(const struct field *field, const json_t *json)
{
    double value = json_number_value(json);
    return json_is_number(json) && value <= field->max &&
           (field->above_min ? value > field->min : value >= field->min) &&
           (!field->whole || value == floor(value));
}

static void clear(struct model_card *card)
{
    for (size_t i = 0; i < FIELDS; i++)
        set_field(card, &fields[i], (double)NAN);
}

void sampling_defaults_read(const json_t *config, struct model_card *card)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(config, fields[i].name);
        if (fits(&fields[i], value))
            set_field(card, &fields[i], json_number_value(value));
    }
}

static int read_folder(const char *folder, struct model_card *card, struct errmsg *err)
{
    char *path = mem_printf("%s/generation_config.json", folder), *data = NULL;
    json_t *config = NULL;
    size_t bytes = 0;
    int r = file_bytes_read(path, CONFIG_BYTES_MAX, &data, &bytes, err);
    if (r == 0)
        r = json_parse(data, bytes, CONFIG_BYTES_MAX, &config, err);
    if (r < 0) {
        r = errmsg_prefix(err, r, "--generation-config '%s'", path);
    } else {
        clear(card);
        sampling_defaults_read(config, card);
        card_add_stated_ends(card, config);
    }
    json_decref(config);
    mem_free(data);
    mem_free(path);
    return r;
}

static int override_one(struct model_card *card, const char *name, const json_t *value,
                        struct errmsg *err)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *field = &fields[i];
        if (strcmp(field->name, name) != 0)
            continue;
        if (!json_is_null(value) && !fits(field, value))
            return errmsg_set(err, -EINVAL,
                              "--override-generation-config: '%s' is no %s %s %g and at most %g",
                              name, field->whole ? "integer" : "number",
                              field->above_min ? "above" : "from", field->min, field->max);
        set_field(card, field, json_is_null(value) ? (double)NAN : json_number_value(value));
        return 0;
    }
    return errmsg_set(err, -EINVAL,
                      "--override-generation-config: '%.40s' is unknown; known: temperature, "
                      "top_p, min_p, top_k, repetition_penalty, max_new_tokens",
                      name);
}

static int override(const char *text, struct model_card *card, struct errmsg *err)
{
    json_t *object = NULL, *value = NULL;
    const char *name = NULL;
    int r = json_parse(text, strlen(text), CONFIG_BYTES_MAX, &object, err);
    if (r < 0)
        return errmsg_prefix(err, r, "--override-generation-config");
    if (!json_is_object(object))
        r = errmsg_set(err, -EINVAL, "--override-generation-config is not a JSON object");
    json_object_foreach(object, name, value)
    {
        r = override_one(card, name, value, err);
        if (r < 0)
            break;
    }
    json_decref(object);
    return r;
}

int sampling_rule_apply(const struct sampling_rule *rule, struct model_card *card,
                        struct errmsg *err)
{
    int r = 0;
    if (rule->source != NULL && strcmp(rule->source, "vllm") == 0)
        clear(card);
    else if (rule->source != NULL && strcmp(rule->source, "auto") != 0)
        r = read_folder(rule->source, card, err);
    if (r == 0 && rule->overrides != NULL)
        r = override(rule->overrides, card, err);
    return r;
}
