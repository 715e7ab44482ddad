/* adapter_config.c - keys of adapter_config.json, and names of modules against its patterns.
 *
 * A target in a list is a module's whole name or its end behind a dot. A key of rank_pattern is a
 * regular expression for such an end; the first that matches counts. Expressions come from a file:
 * their number, length and the work of a match are bounded; one that does not come to an end in
 * time does not match. */
#include "worker/lora/adapter_config.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "kernels/ops.h"
#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define MATCH_STEPS_MAX 20000u
#define ALPHA_MAX 1e6

struct pattern {
    pcre2_code *code;
    double value;
};

struct patterns {
    struct pattern *items;
    size_t count;
};

struct adapter_config {
    double rank, alpha;
    bool rslora, all_linear;
    struct patterns targets, ranks, alphas;
    pcre2_match_context *context;
    pcre2_match_data *match;
};

/* --- patterns -------------------------------------------------------------------------------- */

static int compile(const char *text, size_t bytes, pcre2_code **ret_code, struct errmsg *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    *ret_code = pcre2_compile((PCRE2_SPTR)text, bytes, PCRE2_ANCHORED | PCRE2_ENDANCHORED, &code,
                              &at, NULL);
    if (*ret_code != NULL)
        return 0;
    PCRE2_UCHAR why[128] = "";
    (void)pcre2_get_error_message(code, why, sizeof(why));
    return errmsg_set(err, -EINVAL, "a pattern cannot be read: %s at byte %zu", (const char *)why,
                      at);
}

/* `literal`: the text is a name, no expression. `ending`: what stands before a dot does not count.
 */
static int add_pattern(struct patterns *patterns, const char *text, size_t text_bytes, bool literal,
                       bool ending, double value, struct errmsg *err)
{
    struct pattern *pattern = &patterns->items[patterns->count];
    if (text_bytes == 0 || text_bytes > ADAPTER_PATTERN_BYTES_MAX || strlen(text) != text_bytes ||
        (literal && strstr(text, "\\E") != NULL))
        return errmsg_set(err, -EINVAL, "a module's name or pattern has 1 to %u bytes",
                          ADAPTER_PATTERN_BYTES_MAX);
    char *whole = mem_printf("%s(?:%s%s%s)", ending ? "(?:.*\\.)?" : "", literal ? "\\Q" : "", text,
                             literal ? "\\E" : "");
    int r = compile(whole, strlen(whole), &pattern->code, err);
    mem_free(whole);
    if (r < 0)
        return r;
    pattern->value = value;
    patterns->count++;
    return 0;
}

static bool matches(const struct adapter_config *config, const struct pattern *pattern,
                    const char *module)
{
    return pcre2_match(pattern->code, (PCRE2_SPTR)module, strlen(module), 0, 0, config->match,
                       config->context) >= 0;
}

static double value_of(const struct adapter_config *config, const struct patterns *patterns,
                       const char *module, double otherwise)
{
    for (size_t i = 0; i < patterns->count; i++) {
        if (matches(config, &patterns->items[i], module))
            return patterns->items[i].value;
    }
    return otherwise;
}

static void free_patterns(struct patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        pcre2_code_free(patterns->items[i].code);
    mem_free(patterns->items);
}

/* --- keys ------------------------------------------------------------------------------------ */

/* Kinds of adapters that are not served, by the key that asks for them. */
static const struct {
    const char *key, *what;
} refused[] = {
    {"use_dora", "DoRA (use_dora)"},
    {"modules_to_save", "whole modules beside the low-rank ones (modules_to_save)"},
    {"trainable_token_indices", "changed embeddings (trainable_token_indices)"},
    {"target_parameters", "adapters of bare parameters (target_parameters)"},
    {"layer_replication", "replicated layers (layer_replication)"},
    {"fan_in_fan_out", "transposed weights (fan_in_fan_out)"},
    {"lora_bias", "biases (lora_bias)"},
    {"use_qalora", "QALoRA (use_qalora)"},
    {"alora_invocation_tokens", "activated LoRA (alora_invocation_tokens)"},
};

/* false, null, 0 and nothing in a list are as if the key were absent. */
static bool is_set(const json_t *value)
{
    if (json_is_array(value))
        return json_array_size(value) > 0;
    if (json_is_object(value))
        return json_object_size(value) > 0;
    return value != NULL && !json_is_null(value) && !json_is_false(value);
}

/* Ways to start a training that take something out of the base model's weights. */
static bool changes_base(const char *init)
{
    static const char *const names[] = {"pissa", "olora", "corda"};
    for (size_t i = 0; init != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(init, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

static int refuse_others(const json_t *json, struct errmsg *err)
{
    const char *type = json_string_value(json_object_get(json, "peft_type"));
    const char *bias = json_string_value(json_object_get(json, "bias"));
    if (type == NULL || strcmp(type, "LORA") != 0)
        return errmsg_set(err, type == NULL ? -EINVAL : -ENOTSUP,
                          "peft_type is %.40s; only LORA is served",
                          type == NULL ? "missing" : type);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (is_set(json_object_get(json, refused[i].key)))
            return errmsg_set(err, -ENOTSUP, "%s: not served", refused[i].what);
    }
    if (bias != NULL && strcmp(bias, "none") != 0)
        return errmsg_set(err, -ENOTSUP, "biases (bias is \"%.40s\"): not served", bias);
    if (changes_base(json_string_value(json_object_get(json, "init_lora_weights"))))
        return errmsg_set(err, -ENOTSUP,
                          "init_lora_weights changed the base model's weights: save the adapter as "
                          "plain LoRA first");
    return 0;
}

static int read_number(const json_t *value, const char *key, double max, double *ret_value,
                       struct errmsg *err)
{
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number) || number <= 0 || number > max)
        return errmsg_set(err, -EINVAL, "%s is missing, or not more than 0 and at most %.0f", key,
                          max);
    *ret_value = number;
    return 0;
}

static int read_rank(const json_t *value, const char *key, double *ret_rank, struct errmsg *err)
{
    if (!json_is_integer(value))
        return errmsg_set(err, -EINVAL, "%s is missing, or no whole number", key);
    return read_number(value, key, LORA_RANK_MAX, ret_rank, err);
}

static int read_patterns(const json_t *json, const char *key, bool rank, struct patterns *patterns,
                         struct errmsg *err)
{
    const json_t *object = json_object_get(json, key);
    const char *name;
    json_t *value;
    int r = 0;
    if (object == NULL || json_is_null(object))
        return 0;
    if (!json_is_object(object) || json_object_size(object) > ADAPTER_PATTERNS_MAX)
        return errmsg_set(err, -EINVAL, "%s is no object of at most %u patterns", key,
                          ADAPTER_PATTERNS_MAX);
    patterns->items = mem_calloc(json_object_size(object) + 1, sizeof(*patterns->items));
    json_object_foreach((json_t *)object, name, value)
    {
        double number = 0;
        if (r == 0)
            r = rank ? read_rank(value, key, &number, err)
                     : read_number(value, key, ALPHA_MAX, &number, err);
        if (r == 0)
            r = add_pattern(patterns, name, strlen(name), false, true, number, err);
    }
    return r < 0 ? errmsg_prefix(err, r, "%s", key) : 0;
}

static int read_targets(const json_t *json, struct adapter_config *config, struct errmsg *err)
{
    const json_t *targets = json_object_get(json, "target_modules");
    struct patterns *patterns = &config->targets;
    size_t count = json_array_size(targets);
    int r = 0;
    if (json_is_string(targets) && strcmp(json_string_value(targets), "all-linear") == 0) {
        config->all_linear = true;
        return 0;
    }
    if (!json_is_string(targets) && (count == 0 || count > ADAPTER_PATTERNS_MAX))
        return errmsg_set(err, -EINVAL, "target_modules is no pattern and no list of 1 to %u names",
                          ADAPTER_PATTERNS_MAX);
    patterns->items = mem_calloc(count + 1, sizeof(*patterns->items));
    if (json_is_string(targets))
        r = add_pattern(patterns, json_string_value(targets), json_string_length(targets), false,
                        false, 1, err);
    for (size_t i = 0; i < count && r == 0; i++) {
        const json_t *name = json_array_get(targets, i);
        r = json_is_string(name) ? add_pattern(patterns, json_string_value(name),
                                               json_string_length(name), true, true, 1, err)
                                 : errmsg_set(err, -EINVAL, "entry %zu is no text", i);
    }
    return r < 0 ? errmsg_prefix(err, r, "target_modules") : 0;
}

int adapter_config_read(const json_t *json, struct adapter_config **ret_config, struct errmsg *err)
{
    if (!json_is_object(json))
        return errmsg_set(err, -EINVAL, "it is no JSON object");
    int r = refuse_others(json, err);
    if (r < 0)
        return r;
    struct adapter_config *config = mem_zalloc(sizeof(*config));
    config->context = pcre2_match_context_create(NULL);
    config->match = pcre2_match_data_create(1, NULL);
    ASSERT(config->context != NULL && config->match != NULL);
    (void)pcre2_set_match_limit(config->context, MATCH_STEPS_MAX);
    (void)pcre2_set_depth_limit(config->context, MATCH_STEPS_MAX);
    config->rslora = json_is_true(json_object_get(json, "use_rslora"));
    r = read_rank(json_object_get(json, "r"), "r", &config->rank, err);
    if (r == 0)
        r = read_number(json_object_get(json, "lora_alpha"), "lora_alpha", ALPHA_MAX,
                        &config->alpha, err);
    if (r == 0)
        r = read_targets(json, config, err);
    if (r == 0)
        r = read_patterns(json, "rank_pattern", true, &config->ranks, err);
    if (r == 0)
        r = read_patterns(json, "alpha_pattern", false, &config->alphas, err);
    if (r < 0) {
        adapter_config_free(config);
        return r;
    }
    *ret_config = config;
    return 0;
}

void adapter_config_free(struct adapter_config *config)
{
    if (config == NULL)
        return;
    free_patterns(&config->targets);
    free_patterns(&config->ranks);
    free_patterns(&config->alphas);
    pcre2_match_data_free(config->match);
    pcre2_match_context_free(config->context);
    mem_free(config);
}

bool adapter_config_targets(struct adapter_config *config, const char *module)
{
    return config->all_linear || value_of(config, &config->targets, module, 0) > 0;
}

uint32_t adapter_config_rank(struct adapter_config *config, const char *module)
{
    return (uint32_t)value_of(config, &config->ranks, module, config->rank);
}

float adapter_config_factor(struct adapter_config *config, const char *module)
{
    double rank = value_of(config, &config->ranks, module, config->rank);
    double alpha = value_of(config, &config->alphas, module, config->alpha);
    return (float)(config->rslora ? alpha / sqrt(rank) : alpha / rank);
}
