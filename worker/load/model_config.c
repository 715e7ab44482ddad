/* model_config.c - metadata of a GGUF file -> checked numbers, or a sentence that says why not.
 *
 *   architecture row  which keys, which rotation     one row per architecture
 *   numbers           {arch}.*, ranges and relations
 *   rope              base, linear scaling, per-pair divisors
 *   refusals          keys and tensors that would change the arithmetic and that nobody here obeys
 *
 * Why refuse unknown tensors: a bias, a gate or a norm that is silently left out gives a model that
 *   talks, and talks nonsense.
 * Cost: a few lookups per tensor.
 * Invariant: what is returned describes a forward pass that the decoder runs completely. */
#include "worker/load/model_config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"

#define HIDDEN_MAX (1u << 17)
#define FFN_MAX (1u << 20)
#define VOCAB_MAX (1u << 20)
#define CONTEXT_MAX (1u << 24)
#define ROPE_THETA_DEFAULT 10000.0f

struct architecture {
    const char *name;
    bool rope_interleaved;
};

static const struct architecture architectures[] = {
    /* The converter permutes q and k of this one for pairs (2i, 2i + 1). */
    {.name = "llama", .rope_interleaved = true},
};
#define ARCHITECTURES (sizeof(architectures) / sizeof(architectures[0]))

/* "%u" is the layer. Everything else in a file is refused, except what `ignored` lists. */
static const char *const layer_tensors[] = {
    "attn_norm.weight", "attn_q.weight",   "attn_k.weight", "attn_v.weight",   "attn_output.weight",
    "ffn_norm.weight",  "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight", NULL};
static const char *const model_tensors[] = {"token_embd.weight", "output_norm.weight",
                                            "output.weight", "rope_freqs.weight", NULL};
static const char *const ignored_tensors[] = {"rope.freqs", "attn_rot_embd.weight",
                                              "attention.rotary_emb.inv_freq", NULL};

/* Keys that change the arithmetic; a value of 0 is as good as none. */
static const char *const refused_keys[] = {"expert_count",
                                           "attention.clamp_kqv",
                                           "attention.max_alibi_bias",
                                           "attention.sliding_window_pattern",
                                           "attn_logit_softcapping",
                                           "final_logit_softcapping",
                                           "embedding_scale",
                                           "residual_scale",
                                           "logit_scale",
                                           "rope.scaling.attn_factor",
                                           NULL};

/* Reads keys of one architecture; remembers the first failure. */
struct reader {
    const struct gguf *gguf;
    const char *architecture;
    struct errmsg *err;
};

static void key_of(const struct reader *reader, const char *name, char *ret_key, size_t key_max)
{
    (void)snprintf(ret_key, key_max, "%s.%s", reader->architecture, name);
}

/* 0 and the value within min..max; absent: 0 and `*value` as it was, unless `required`. */
static int read_u32(const struct reader *reader, const char *name, bool required, uint32_t min,
                    uint32_t max, uint32_t *value)
{
    char key[128];
    uint32_t found = 0;
    key_of(reader, name, key, sizeof(key));
    int r = gguf_get_u32(reader->gguf, key, &found);
    if (r == -ENOENT && !required)
        return 0;
    if (r == -ENOENT)
        return errmsg_set(reader->err, -EINVAL, "key '%s' is missing", key);
    if (r < 0)
        return errmsg_set(reader->err, -EINVAL, "key '%s' is not one integer from %u to %u", key,
                          min, max);
    if (found < min || found > max)
        return errmsg_set(reader->err, -EINVAL, "key '%s' is %u, %u to %u are possible", key, found,
                          min, max);
    *value = found;
    return 0;
}

static int read_f32(const struct reader *reader, const char *name, bool required, float min,
                    float max, float *value)
{
    char key[128];
    float found = 0;
    key_of(reader, name, key, sizeof(key));
    int r = gguf_get_f32(reader->gguf, key, &found);
    if (r == -ENOENT && !required)
        return 0;
    if (r == -ENOENT)
        return errmsg_set(reader->err, -EINVAL, "key '%s' is missing", key);
    if (r < 0 || !(found >= min && found <= max))
        return errmsg_set(reader->err, -EINVAL, "key '%s' is not a number from %g to %g", key,
                          (double)min, (double)max);
    *value = found;
    return 0;
}

/* --- architecture ---------------------------------------------------------------------------- */

static int find_architecture(const struct gguf *gguf, const struct architecture **ret_row,
                             struct errmsg *err)
{
    char names[128] = "";
    struct gguf_string name;
    uint32_t parts = 0;
    int r = gguf_get_string(gguf, "general.architecture", &name);
    if (r < 0)
        return errmsg_set(err, -EINVAL, "key 'general.architecture' is missing or not a string");
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        const struct architecture *row = &architectures[i];
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", row->name);
        if (strlen(row->name) == name.bytes && memcmp(row->name, name.text, name.bytes) == 0)
            *ret_row = row;
    }
    if (*ret_row == NULL) {
        for (size_t i = 0; i < name.bytes && i < 64; i++) {
            if (name.text[i] < 0x20 || name.text[i] > 0x7e)
                return errmsg_set(err, -EINVAL, "key 'general.architecture' is not a name");
        }
        return errmsg_set(err, -ENOTSUP, "architecture '%.*s' is not supported; supported: %s",
                          (int)(name.bytes < 64 ? name.bytes : 64), name.text, names);
    }
    if (gguf_get_u32(gguf, "split.count", &parts) == 0 && parts > 1)
        return errmsg_set(err, -ENOTSUP,
                          "this is one of %u parts of a split model, which is not supported: merge "
                          "the parts into one file",
                          parts);
    return 0;
}

/* --- numbers --------------------------------------------------------------------------------- */

static int read_sizes(const struct reader *reader, struct model_config *config)
{
    int r = read_u32(reader, "block_count", true, 1, MODEL_LAYERS_MAX, &config->layers);
    if (r == 0)
        r = read_u32(reader, "embedding_length", true, 1, HIDDEN_MAX, &config->hidden);
    if (r == 0)
        r = read_u32(reader, "feed_forward_length", true, 1, FFN_MAX, &config->ffn);
    if (r == 0)
        r = read_u32(reader, "context_length", true, 1, CONTEXT_MAX, &config->context_tokens);
    if (r == 0)
        r = read_f32(reader, "attention.layer_norm_rms_epsilon", true, 0.0f, 0.1f,
                     &config->norm_eps);
    if (r == 0)
        r = read_u32(reader, "attention.sliding_window", false, 0, CONTEXT_MAX, &config->window);
    if (r < 0)
        return r;
    if (config->window >= config->context_tokens)
        config->window = 0; /* sees everything anyway */
    return 0;
}

static int read_heads(const struct reader *reader, struct model_config *config)
{
    int r = read_u32(reader, "attention.head_count", true, 1, MODEL_HEADS_MAX, &config->q_heads);
    if (r < 0)
        return r;
    config->kv_heads = config->q_heads;
    config->head_dim = config->hidden / config->q_heads;
    r = read_u32(reader, "attention.head_count_kv", false, 1, MODEL_HEADS_MAX, &config->kv_heads);
    if (r == 0)
        r = read_u32(reader, "attention.key_length", false, 2, MODEL_HEAD_DIM_MAX,
                     &config->head_dim);
    uint32_t value_length = config->head_dim;
    if (r == 0)
        r = read_u32(reader, "attention.value_length", false, 1, UINT32_MAX, &value_length);
    if (r < 0)
        return r;
    if (config->q_heads % config->kv_heads != 0)
        return errmsg_set(reader->err, -EINVAL, "%u query heads do not share %u KV heads evenly",
                          config->q_heads, config->kv_heads);
    if (config->head_dim < 2 || config->head_dim > MODEL_HEAD_DIM_MAX || config->head_dim % 2 != 0)
        return errmsg_set(reader->err, -EINVAL, "heads of %u values; even numbers up to %u are run",
                          config->head_dim, MODEL_HEAD_DIM_MAX);
    if (value_length != config->head_dim)
        return errmsg_set(reader->err, -ENOTSUP,
                          "keys of %u and values of %u a head: they must be equal",
                          config->head_dim, value_length);
    config->attention_scale = 1.0f / sqrtf((float)config->head_dim);
    return read_f32(reader, "attention.scale", false, 1e-6f, 1e6f, &config->attention_scale);
}

/* The embedding's rows are the vocabulary; the key, where present, has to agree. */
static int read_vocabulary(const struct reader *reader, struct model_config *config)
{
    const struct gguf_tensor *embedding = gguf_tensor(reader->gguf, "token_embd.weight");
    if (embedding == NULL)
        return errmsg_set(reader->err, -EINVAL, "tensor 'token_embd.weight' is missing");
    if (embedding->dims_count != 2 || embedding->dims[0] != config->hidden ||
        embedding->dims[1] > VOCAB_MAX)
        return errmsg_set(reader->err, -EINVAL,
                          "tensor 'token_embd.weight' is %llu x %llu, not a vocabulary of at most "
                          "%u rows of %u",
                          (unsigned long long)embedding->dims[1],
                          (unsigned long long)embedding->dims[0], VOCAB_MAX, config->hidden);
    config->vocab_size = (uint32_t)embedding->dims[1];
    uint32_t stated = config->vocab_size;
    int r = read_u32(reader, "vocab_size", false, 1, VOCAB_MAX, &stated);
    if (r < 0)
        return r;
    if (stated != config->vocab_size)
        return errmsg_set(reader->err, -EINVAL, "key '%s.vocab_size' is %u, the embedding has %u",
                          reader->architecture, stated, config->vocab_size);
    config->tied_embedding = gguf_tensor(reader->gguf, "output.weight") == NULL;
    return 0;
}

/* --- rope ------------------------------------------------------------------------------------ */

static int read_rope_scaling(const struct reader *reader, struct model_config *config)
{
    char key[128];
    float factor = 0;
    struct gguf_string type = {"", 0};
    config->rope_scale = 1.0f;
    key_of(reader, "rope.scaling.type", key, sizeof(key));
    if (gguf_get_string(reader->gguf, key, &type) == -EINVAL)
        return errmsg_set(reader->err, -EINVAL, "key '%s' is not a string", key);
    int r = read_f32(reader, "rope.scaling.factor", false, 0.0f, 1e6f, &factor);
    if (r == 0)
        r = read_f32(reader, "rope.scale_linear", false, 0.0f, 1e6f, &factor); /* older files */
    if (r < 0)
        return r;
    bool none = type.bytes == 4 && memcmp(type.text, "none", 4) == 0;
    bool linear = type.bytes == 6 && memcmp(type.text, "linear", 6) == 0;
    if (type.bytes > 0 && !none && !linear)
        return errmsg_set(reader->err, -ENOTSUP,
                          "key '%s': this scaling of positions is not supported; supported: none, "
                          "linear, and the rope_freqs of Llama 3",
                          key);
    if (!none && factor != 0.0f)
        config->rope_scale = 1.0f / factor;
    return 0;
}

/* Llama 3's scaling comes as a tensor: what each pair's frequency is divided by. */
static int read_rope_divisors(const struct reader *reader, struct model_config *config)
{
    uint32_t pairs = config->rotary_dims / 2;
    for (uint32_t i = 0; i < pairs; i++)
        config->rope_divisors[i] = 1.0f;
    const struct gguf_tensor *tensor = gguf_tensor(reader->gguf, "rope_freqs.weight");
    if (tensor == NULL)
        return 0;
    if (tensor->dtype != DTYPE_F32 || tensor->dims_count != 1 || tensor->dims[0] != pairs)
        return errmsg_set(reader->err, -EINVAL,
                          "tensor 'rope_freqs.weight' is not %u values of type F32", pairs);
    memcpy(config->rope_divisors, tensor->data, pairs * sizeof(float));
    for (uint32_t i = 0; i < pairs; i++) {
        if (!(config->rope_divisors[i] > 1e-6f && config->rope_divisors[i] < 1e6f))
            return errmsg_set(reader->err, -EINVAL,
                              "tensor 'rope_freqs.weight': value %u is out of range", i);
    }
    return 0;
}

static int read_rope(const struct reader *reader, const struct architecture *row,
                     struct model_config *config)
{
    config->rope_interleaved = row->rope_interleaved;
    config->rope_theta = ROPE_THETA_DEFAULT;
    config->rotary_dims = config->head_dim;
    int r = read_f32(reader, "rope.freq_base", false, 1.0f, 1e12f, &config->rope_theta);
    if (r == 0)
        r = read_u32(reader, "rope.dimension_count", false, 2, config->head_dim,
                     &config->rotary_dims);
    if (r < 0)
        return r;
    if (config->rotary_dims % 2 != 0)
        return errmsg_set(reader->err, -EINVAL, "%u rotary dimensions: an odd number",
                          config->rotary_dims);
    r = read_rope_scaling(reader, config);
    return r < 0 ? r : read_rope_divisors(reader, config);
}

/* --- refusals -------------------------------------------------------------------------------- */

static bool is_in(const char *const *names, const char *text, size_t bytes)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strlen(names[i]) == bytes && memcmp(names[i], text, bytes) == 0)
            return true;
    }
    return false;
}

/* The part of "blk.N.attn_q.weight" after the layer; false: no layer below `layers`. */
static bool split_layer(struct gguf_string name, uint32_t layers, struct gguf_string *ret_rest)
{
    uint32_t layer = 0;
    size_t at = 4;
    if (name.bytes < 6 || memcmp(name.text, "blk.", 4) != 0)
        return false;
    while (at < name.bytes && at < 4 + 6 && name.text[at] >= '0' && name.text[at] <= '9')
        layer = layer * 10 + (uint32_t)(name.text[at++] - '0');
    if (at == 4 || at >= name.bytes || name.text[at] != '.' || layer >= layers)
        return false;
    *ret_rest = (struct gguf_string){name.text + at + 1, name.bytes - at - 1};
    return true;
}

static int refuse_unknown_tensors(const struct reader *reader, const struct model_config *config)
{
    for (size_t i = 0; i < gguf_tensors_count(reader->gguf); i++) {
        struct gguf_string name = gguf_tensor_at(reader->gguf, i)->name, rest = name;
        bool layer = split_layer(name, config->layers, &rest);
        if (is_in(layer ? layer_tensors : model_tensors, rest.text, rest.bytes) ||
            is_in(ignored_tensors, rest.text, rest.bytes))
            continue;
        char shown[64];
        (void)snprintf(shown, sizeof(shown), "%.*s", (int)name.bytes, name.text);
        for (char *at = shown; *at != '\0'; at++)
            *at = (char)(*at >= 0x20 && *at < 0x7f ? *at : '?');
        return errmsg_set(reader->err, -ENOTSUP,
                          "tensor '%s' has no place in a %s model as this build runs it", shown,
                          reader->architecture);
    }
    return 0;
}

static int refuse_unknown_keys(const struct reader *reader)
{
    for (size_t i = 0; refused_keys[i] != NULL; i++) {
        char key[128];
        float value = 0;
        key_of(reader, refused_keys[i], key, sizeof(key));
        int r = gguf_get_f32(reader->gguf, key, &value);
        bool neutral = value == 0.0f || (value == 1.0f && strstr(key, "scal") != NULL);
        if (r == -EINVAL || (r == 0 && !neutral))
            return errmsg_set(reader->err, -ENOTSUP, "key '%s': this feature is not supported",
                              key);
    }
    return 0;
}

int model_config_from_gguf(const struct gguf *gguf, struct model_config *ret_config,
                           struct errmsg *err)
{
    const struct architecture *row = NULL;
    struct model_config config;
    memset(&config, 0,
           sizeof(config)); /* padding too: the fingerprint reads fields, tests compare */
    int r = find_architecture(gguf, &row, err);
    if (r < 0)
        return r;
    ASSERT(row != NULL);
    struct reader reader = {.gguf = gguf, .architecture = row->name, .err = err};
    (void)snprintf(config.architecture, sizeof(config.architecture), "%s", row->name);
    r = read_sizes(&reader, &config);
    if (r == 0)
        r = read_heads(&reader, &config);
    if (r == 0)
        r = read_vocabulary(&reader, &config);
    if (r == 0)
        r = read_rope(&reader, row, &config);
    if (r == 0)
        r = refuse_unknown_keys(&reader);
    if (r == 0)
        r = refuse_unknown_tensors(&reader, &config);
    if (r < 0)
        return r;
    ASSERT(config.layers > 0 && config.q_heads % config.kv_heads == 0);
    *ret_config = config;
    return 0;
}
