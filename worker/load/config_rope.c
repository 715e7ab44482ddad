/* config_rope.c - default, linear, llama3, yarn and longrope scaling, from either format.
 *
 *   config.json    rope_theta + rope_scaling {type or rope_type, factor...}; transformers 5:
 *                  rope_parameters {rope_theta, rope_type...}, or one such object per kind of layer
 *   GGUF           rope.freq_base, rope.scaling.*; llama3 as tensor rope_freqs, longrope as
 *                  tensors rope_factors_short and _long
 *
 * All of it becomes a divisor of each pair's speed, worked out in double, and one amplitude.
 * yarn: Peng et al. 2023; longrope: Ding et al. 2024. */
#include "worker/load/config_rope.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define THETA_DEFAULT 10000.0

struct scaling {
    const char *type;               /* "default", "linear"... */
    double factor, original;        /* original: context that the model was first trained for */
    double low_factor, high_factor; /* llama3 */
    double beta_fast, beta_slow;    /* yarn */
    double mscale, mscale_all, amplitude; /* 0: not given */
    double short_factors[MODEL_ROPE_PAIRS_MAX], long_factors[MODEL_ROPE_PAIRS_MAX];
};

static double speed(double theta, uint32_t pair, uint32_t dims)
{
    return pow(theta, -2.0 * pair / dims);
}

/* --- kinds ----------------------------------------------------------------------------------- */

static void fill(float *divisors, double value)
{
    for (uint32_t i = 0; i < MODEL_ROPE_PAIRS_MAX; i++)
        divisors[i] = (float)value;
}

static void apply_llama3(struct rope_config *rope, const struct scaling *s, uint32_t dims)
{
    for (uint32_t i = 0; i < dims / 2; i++) {
        double turns = s->original * speed((double)rope->theta, i, dims) / (2 * M_PI);
        double smooth = (turns - s->low_factor) / (s->high_factor - s->low_factor);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth; /* slow pairs divide, fast ones do not */
        rope->divisors[i] = (float)(1 / ((1 - smooth) / s->factor + smooth));
    }
}

/* The pair that turns `rotations` times within the original context. */
static double correction(double rotations, double theta, double original, uint32_t dims)
{
    return dims * log(original / (rotations * 2 * M_PI)) / (2 * log(theta));
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static void apply_yarn(struct rope_config *rope, const struct scaling *s, uint32_t dims)
{
    double theta = (double)rope->theta;
    double low = floor(correction(s->beta_fast, theta, s->original, dims));
    double high = ceil(correction(s->beta_slow, theta, s->original, dims));
    low = low < 0 ? 0 : low;
    high = high > dims - 1 ? dims - 1 : high;
    high = high == low ? high + 0.001 : high;
    for (uint32_t i = 0; i < dims / 2; i++) {
        double ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        rope->divisors[i] = (float)(1 / (ramp / s->factor + 1 - ramp));
    }
    if (s->amplitude > 0)
        rope->amplitude = (float)s->amplitude;
    else if (s->mscale > 0 && s->mscale_all > 0)
        rope->amplitude =
            (float)(yarn_mscale(s->factor, s->mscale) / yarn_mscale(s->factor, s->mscale_all));
    else
        rope->amplitude = (float)yarn_mscale(s->factor, 1);
}

static void apply_longrope(struct rope_config *rope, const struct scaling *s, uint32_t dims)
{
    for (uint32_t i = 0; i < dims / 2; i++) {
        rope->divisors[i] = (float)s->short_factors[i];
        rope->long_divisors[i] = (float)s->long_factors[i];
    }
    rope->long_after = (uint32_t)s->original;
    rope->amplitude = s->amplitude > 0 ? (float)s->amplitude
                      : s->factor <= 1 ? 1
                                       : (float)sqrt(1 + log(s->factor) / log(s->original));
}

static void apply(struct config_keys *keys, const struct scaling *s, uint32_t dims,
                  struct rope_config *rope)
{
    bool needs_original = strcmp(s->type, "llama3") == 0 || strcmp(s->type, "yarn") == 0 ||
                          strcmp(s->type, "longrope") == 0;
    if (needs_original && s->original < 2)
        config_fail(keys, -EINVAL, "scaling '%s' of positions without the original context",
                    s->type);
    else if (strcmp(s->type, "linear") == 0)
        fill(rope->divisors, s->factor);
    else if (strcmp(s->type, "llama3") == 0 && s->high_factor > s->low_factor)
        apply_llama3(rope, s, dims);
    else if (strcmp(s->type, "yarn") == 0)
        apply_yarn(rope, s, dims);
    else if (strcmp(s->type, "longrope") == 0)
        apply_longrope(rope, s, dims);
    else if (strcmp(s->type, "default") != 0)
        config_fail(keys, -ENOTSUP,
                    "scaling '%.40s' of positions is not supported; supported: default, linear, "
                    "llama3, yarn, longrope",
                    s->type);
    for (uint32_t i = 0; i < dims / 2; i++) {
        if (!(rope->divisors[i] > 1e-6f && rope->divisors[i] < 1e6f) ||
            !(rope->amplitude > 1e-3f && rope->amplitude < 1e3f))
            config_fail(keys, -EINVAL, "scaling '%.40s' of positions: impossible numbers", s->type);
    }
}

/* Latent attention takes yarn's factor in its scores instead of in the cosines. */
static void scale_attention(const struct scaling *s, struct model_config *config)
{
    if (strcmp(s->type, "yarn") != 0 || s->mscale_all <= 0 || !model_has(config, MODEL_LATENT))
        return;
    double mscale = yarn_mscale(s->factor, s->mscale_all);
    config->attention_scale *= (float)(mscale * mscale);
}

static void set_plain(struct rope_config *rope, double theta)
{
    *rope = (struct rope_config){.theta = (float)theta, .amplitude = 1};
    fill(rope->divisors, 1);
    fill(rope->long_divisors, 1);
}

/* --- Hugging Face ---------------------------------------------------------------------------- */

/* One positive number per pair. */
static void read_factors(struct config_keys *keys, const json_t *object, const char *name,
                         uint32_t pairs, double *ret_factors)
{
    const json_t *array = json_object_get(object, name);
    if (json_array_size(array) != pairs)
        config_fail(keys, -EINVAL, "key '%s' is not %u numbers", name, pairs);
    for (uint32_t i = 0; i < pairs && keys->result == 0; i++) {
        ret_factors[i] = json_number_value(json_array_get(array, i));
        if (!(ret_factors[i] > 1e-6 && ret_factors[i] < 1e6))
            config_fail(keys, -EINVAL, "key '%s': value %u is out of range", name, i);
    }
}

static double number(struct config_keys *keys, const json_t *object, const char *name, double min,
                     double max, double absent)
{
    struct config_keys part = {.object = object, .result = keys->result, .err = keys->err};
    double value = config_number(&part, (struct config_name){name, NULL}, min, max, absent);
    keys->result = part.result;
    return value;
}

static void read_hf_scaling(struct config_keys *keys, const json_t *object, uint32_t dims,
                            const struct model_config *config, struct scaling *s)
{
    const json_t *named = json_object_get(object, "rope_type");
    named = named == NULL ? json_object_get(object, "type") : named;
    const char *type = json_string_value(named);
    if (type == NULL && named != NULL && !json_is_null(named))
        config_fail(keys, -EINVAL, "the type of positions' scaling is no text");
    s->type = type == NULL ? "default" : strcmp(type, "su") == 0 ? "longrope" : type;
    double top = number(keys, keys->object, "original_max_position_embeddings", 1, 1e9, 0);
    s->original = number(keys, object, "original_max_position_embeddings", 1, 1e9, top);
    s->factor = number(keys, object, "factor", 1e-3, 1e6, 0);
    bool derives = strcmp(s->type, "yarn") == 0 || strcmp(s->type, "longrope") == 0;
    bool needs = derives || strcmp(s->type, "linear") == 0 || strcmp(s->type, "llama3") == 0;
    if (s->factor == 0 && derives && s->original > 0) /* as transformers does */
        s->factor = number(keys, keys->object, "max_position_embeddings", 1, 1e9, s->original) /
                    s->original;
    else if (s->factor == 0 && needs)
        config_fail(keys, -EINVAL, "scaling '%s' of positions without key 'factor'", s->type);
    s->low_factor = number(keys, object, "low_freq_factor", 1e-3, 1e6, 1);
    s->high_factor = number(keys, object, "high_freq_factor", 1e-3, 1e6, 4);
    s->beta_fast = number(keys, object, "beta_fast", 1e-3, 1e6, 32);
    s->beta_slow = number(keys, object, "beta_slow", 1e-3, 1e6, 1);
    s->mscale = number(keys, object, "mscale", 0, 1e3, 0);
    s->mscale_all = number(keys, object, "mscale_all_dim", 0, 1e3, 0);
    s->amplitude = number(keys, object, "attention_factor", 0, 1e3, 0);
    if (strcmp(s->type, "yarn") == 0 && s->original == 0)
        s->original = config->context_tokens;
    if (strcmp(s->type, "longrope") == 0) {
        read_factors(keys, object, "short_factor", dims / 2, s->short_factors);
        read_factors(keys, object, "long_factor", dims / 2, s->long_factors);
    }
}

/* One object of either spelling; NULL: no scaling. */
static void read_hf_rope(struct config_keys *keys, const json_t *object, double theta,
                         struct model_config *config, struct rope_config *rope)
{
    struct scaling s = {.type = "default"};
    set_plain(rope, number(keys, object, "rope_theta", 1, 1e12, theta));
    if (json_is_object(object))
        read_hf_scaling(keys, object, config->rotary_dims, config, &s);
    if (keys->result == 0)
        apply(keys, &s, config->rotary_dims, rope);
    if (keys->result == 0)
        scale_attention(&s, config);
}

static void read_hf(struct config_keys *keys, struct model_config *config)
{
    const json_t *parameters = json_object_get(keys->object, "rope_parameters");
    const json_t *full = json_object_get(parameters, "full_attention");
    const json_t *sliding = json_object_get(parameters, "sliding_attention");
    double theta = number(keys, keys->object, "rope_theta", 1, 1e12, THETA_DEFAULT);
    double local = number(keys, keys->object, "rope_local_base_freq", 1, 1e12, 0);
    if (full != NULL || sliding != NULL) {
        read_hf_rope(keys, full, theta, config, &config->rope);
        read_hf_rope(keys, sliding, theta, config, &config->rope_local);
        return;
    }
    const json_t *scaling = json_object_get(keys->object, "rope_scaling");
    if (scaling != NULL && !json_is_null(scaling) && !json_is_object(scaling))
        config_fail(keys, -EINVAL, "key 'rope_scaling' is not an object");
    read_hf_rope(keys, json_is_object(parameters) ? parameters : scaling, theta, config,
                 &config->rope);
    config->rope_local = config->rope;
    if (local > 0)
        set_plain(&config->rope_local, local);
}

/* --- GGUF ------------------------------------------------------------------------------------ */

/* A tensor of divisors, one F32 per pair. */
static bool read_divisors(struct config_keys *keys, const struct model_source *source,
                          const char *name, uint32_t pairs, float *ret_divisors)
{
    struct model_tensor tensor;
    if (model_source_tensor(source, name, &tensor, NULL) < 0)
        return false;
    if (tensor.dtype != DTYPE_F32 || tensor.rows * tensor.planes != 1 || tensor.columns != pairs) {
        config_fail(keys, -EINVAL, "tensor '%s' is not %u values of type F32", name, pairs);
        return true;
    }
    memcpy(ret_divisors, tensor.data, pairs * sizeof(float));
    for (uint32_t i = 0; i < pairs; i++) {
        if (!(ret_divisors[i] > 1e-6f && ret_divisors[i] < 1e6f))
            config_fail(keys, -EINVAL, "tensor '%s': value %u is out of range", name, i);
    }
    return true;
}

static double gguf_key(struct config_keys *keys, const char *name, double min, double max,
                       double absent)
{
    return config_number(keys, (struct config_name){NULL, name}, min, max, absent);
}

static const char *gguf_scaling_type(struct config_keys *keys, char *text, size_t text_max)
{
    struct gguf_string type;
    (void)snprintf(text, text_max, "%s.rope.scaling.type", keys->prefix);
    int r = gguf_get_string(keys->gguf, text, &type);
    if (r == -EINVAL)
        config_fail(keys, -EINVAL, "key '%s' is not a string", text);
    if (r < 0)
        return NULL;
    (void)snprintf(text, text_max, "%.*s", (int)(type.bytes < 40 ? type.bytes : 40), type.text);
    return strcmp(text, "none") == 0 ? "default" : text;
}

static void read_gguf(struct config_keys *keys, const struct model_source *source,
                      struct model_config *config)
{
    char text[128];
    uint32_t pairs = config->rotary_dims / 2;
    struct rope_config *rope = &config->rope;
    const char *type = gguf_scaling_type(keys, text, sizeof(text));
    struct scaling s = {.type = type, .beta_fast = 32, .beta_slow = 1};
    set_plain(rope, gguf_key(keys, "rope.freq_base", 1, 1e12, THETA_DEFAULT));
    set_plain(&config->rope_local, gguf_key(keys, "rope.freq_base_swa", 1, 1e12, 0));
    s.factor = gguf_key(keys, "rope.scaling.factor|rope.scale_linear", 0, 1e6, 0);
    s.original = gguf_key(keys, "rope.scaling.original_context_length", 1, 1e9, 0);
    s.amplitude = gguf_key(keys, "rope.scaling.attn_factor", 0, 1e3, 0);
    if (s.type == NULL)
        s.type = s.factor > 0 ? "linear" : "default";
    if (s.factor == 0) { /* nothing to scale by */
        s.type = strcmp(s.type, "linear") == 0 ? "default" : s.type;
        s.factor = s.original > 0 ? config->context_tokens / s.original : 1;
    }
    bool is_long =
        read_divisors(keys, source, "rope_factors_long.weight", pairs, rope->long_divisors) &&
        read_divisors(keys, source, "rope_factors_short.weight", pairs, rope->divisors);
    for (uint32_t i = 0; i < pairs && is_long; i++) {
        s.short_factors[i] = (double)rope->divisors[i];
        s.long_factors[i] = (double)rope->long_divisors[i];
    }
    if (is_long)
        s.type = "longrope";
    else if (read_divisors(keys, source, "rope_freqs.weight", pairs, rope->divisors))
        s.type = "default";
    if (s.amplitude == 1 && strcmp(s.type, "yarn") == 0)
        s.amplitude = 0; /* 1 there: times what the factor gives */
    double scale_log = gguf_key(keys, "rope.scaling.yarn_log_multiplier", 0, 1e3, 0);
    if (strcmp(s.type, "yarn") == 0 && model_has(config, MODEL_LATENT))
        s.mscale = s.mscale_all = 10 * scale_log;
    if (keys->result == 0)
        apply(keys, &s, config->rotary_dims, rope);
    if (keys->result == 0)
        scale_attention(&s, config);
    if (config->rope_local.theta == 0 && strcmp(config->architecture, "gemma3") == 0)
        config->rope_local.theta = (float)THETA_DEFAULT; /* no key says so */
    else if (config->rope_local.theta == 0)
        config->rope_local = *rope;
}

void config_rope_read(struct config_keys *keys, const struct model_source *source,
                      struct model_config *config)
{
    if (keys->gguf != NULL)
        read_gguf(keys, source, config);
    else
        read_hf(keys, config);
}
