/* model_config.c - what a file says about its model -> checked numbers, or a sentence that says
 * why not.
 *
 *   architecture   a row of the table (architectures.c): what no file says
 *   numbers        by their names in either format (config_keys.c), ranges and relations
 *   layers         which slide, do not rotate, have experts
 *   features       what tensors are there: biases, fused matrices, a head
 *   rotation       config_rope.c
 *   refusals       keys and tensors that would change the arithmetic and that nobody here obeys
 *
 * Cost: a few look-ups per tensor. */
#include "worker/load/model_config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "worker/load/architectures.h"
#include "worker/load/config_keys.h"
#include "worker/load/config_rope.h"
#include "worker/load/fp8.h"
#include "worker/load/tensor_names.h"

#define HIDDEN_MAX (1u << 17)
#define FFN_MAX (1u << 20)
#define VOCAB_MAX (1u << 20)
#define CONTEXT_MAX (1u << 24)
#define EPSILON_MIN 1e-30 /* any that is there; without one a row of zeros becomes 0 / 0 */
#define NAMES_MAX 256u    /* of architectures in a sentence: a path has to fit before it */
#define NAME(hf, gguf) ((struct config_name){hf, gguf})

const char *model_feature_name(unsigned i)
{
    static const char *const names[] = {
        "tied_embedding", "pre_norm",   "post_norm",   "norm_plus_1", "qkv_bias",
        "output_bias",    "ffn_bias",   "qk_norm",     "qk_norm_all", "fused_qkv",
        "fused_gate_up",  "gelu",       "interleaved", "experts",     "latent_attention",
        "shared_gate",    "split_kv_b", "layer_norm",  "qk_norm_own", "parallel_blocks"};
    return i < sizeof(names) / sizeof(names[0]) ? names[i] : NULL;
}

/* Keys that change the arithmetic and that nobody obeys; 0, false and an empty string are as good
 * as none. In GGUF also 1 of a scale. */
static const struct config_name refused[] = {
    {NULL, "attention.clamp_kqv"},
    {NULL, "attention.max_alibi_bias"},
    {"use_bidirectional_attention", NULL},
    {"alibi|use_alibi", NULL},
    {"clip_qkv", NULL},
};

/* --- architecture ---------------------------------------------------------------------------- */

static int refuse_architecture(bool gguf, const char *name, size_t bytes, struct errmsg *err)
{
    const char *kind = gguf ? "" : " (..." ARCHITECTURE_HF_SUFFIX ")";
    char names[NAMES_MAX];
    for (size_t i = 0; i < bytes && i < 64; i++) {
        if (name[i] < 0x20 || name[i] > 0x7e)
            return errmsg_set(err, -EINVAL, "the architecture is not a name");
    }
    architecture_list(gguf, names, sizeof(names));
    if (architecture_is_encoder(name, bytes))
        return errmsg_set(err, -ENOTSUP,
                          "architecture '%.*s' is an encoder: only decoder-only models can be "
                          "served, prefix caching or not; supported%s: %s",
                          (int)(bytes < 64 ? bytes : 64), name, kind, names);
    return errmsg_set(err, -ENOTSUP, "architecture '%.*s' is not supported; supported%s: %s",
                      (int)(bytes < 64 ? bytes : 64), name, kind, names);
}

static int find_architecture(const struct model_source *source, const struct architecture **ret_row,
                             struct errmsg *err)
{
    const struct gguf *gguf = model_source_gguf(source);
    if (gguf != NULL) {
        struct gguf_string name;
        if (gguf_get_string(gguf, "general.architecture", &name) < 0)
            return errmsg_set(err, -EINVAL,
                              "key 'general.architecture' is missing or not a string");
        *ret_row = architecture_of_gguf(name.text, name.bytes);
        return *ret_row != NULL ? 0 : refuse_architecture(true, name.text, name.bytes, err);
    }
    const json_t *classes = json_object_get(model_source_config(source), "architectures");
    const char *name = json_string_value(json_array_get(classes, 0));
    if (name == NULL)
        return errmsg_set(err, -EINVAL, "config.json: key 'architectures' names nothing");
    *ret_row = architecture_of_hf(name);
    return *ret_row != NULL ? 0 : refuse_architecture(false, name, strlen(name), err);
}

/* --- numbers --------------------------------------------------------------------------------- */

/* A multiplier; 0, as some files say, is none. */
static float read_scale(struct config_keys *keys, struct config_name name)
{
    double scale = config_number(keys, name, 0, 1e6, 1);
    return scale == 0 ? 1 : (float)scale;
}

/* What logits are multiplied by. Of the same name in two architectures' GGUFs one is a factor, the
 * other a divisor. */
static float read_logit_scale(struct config_keys *keys, const struct architecture *row)
{
    if (row->logit_factor > 0)
        return (float)config_number(keys, NAME("logit_scale", "logit_scale"), 1e-6, 1e6,
                                    (double)row->logit_factor);
    return 1 / read_scale(keys, NAME("logits_scaling", "logit_scale"));
}

/* Tokens that the model was trained for: model_max_length where config.json has it besides and it
 * is a length (Command-R's other number is for memory's sake), as vLLM reads it. */
static uint32_t read_context(struct config_keys *keys)
{
    uint32_t tokens = config_u32_required(keys, NAME("max_position_embeddings", "context_length"),
                                          1, CONTEXT_MAX);
    double longest = config_number(keys, NAME("model_max_length", NULL), 0, HUGE_VAL, 0);
    return longest >= 1 && longest <= CONTEXT_MAX ? (uint32_t)longest : tokens;
}

static float read_epsilon(struct config_keys *keys, const struct model_config *c)
{
    const struct config_name name = model_has(c, MODEL_LAYER_NORM)
                                        ? NAME("layer_norm_eps", "attention.layer_norm_epsilon")
                                        : NAME("rms_norm_eps", "attention.layer_norm_rms_epsilon");
    double eps = config_number(keys, name, EPSILON_MIN, 0.1, -1);
    if (eps < 0)
        config_fail(keys, -EINVAL, "the norms' epsilon (%s) is missing",
                    keys->gguf != NULL ? name.gguf : name.hf);
    return (float)eps;
}

static void read_sizes(struct config_keys *keys, const struct architecture *row,
                       struct model_config *c)
{
    c->layers =
        config_u32_required(keys, NAME("num_hidden_layers", "block_count"), 1, MODEL_LAYERS_MAX);
    c->hidden = config_u32_required(keys, NAME("hidden_size", "embedding_length"), 1, HIDDEN_MAX);
    c->ffn =
        config_u32_required(keys, NAME("intermediate_size", "feed_forward_length"), 1, FFN_MAX);
    c->context_tokens = read_context(keys);
    c->norm_eps = read_epsilon(keys, c);
    c->window =
        config_u32(keys, NAME("sliding_window", "attention.sliding_window"), 0, CONTEXT_MAX, 0);
    if (!config_bool(keys, NAME("use_sliding_window", NULL), true))
        c->window = 0;
    c->attention_softcap = (float)config_number(
        keys, NAME("attn_logit_softcapping", "attn_logit_softcapping"), 0, 1e6, 0);
    c->logit_softcap = (float)config_number(
        keys, NAME("final_logit_softcapping", "final_logit_softcapping"), 0, 1e6, 0);
    c->embedding_scale = read_scale(keys, NAME("embedding_multiplier", "embedding_scale"));
    c->residual_scale = read_scale(keys, NAME("residual_multiplier", "residual_scale"));
    c->logit_scale = read_logit_scale(keys, row);
}

static void read_latent(struct config_keys *keys, struct model_config *c)
{
    c->latent.q_rank =
        config_u32(keys, NAME("q_lora_rank", "attention.q_lora_rank"), 0, HIDDEN_MAX, 0);
    c->latent.kv_rank =
        config_u32_required(keys, NAME("kv_lora_rank", "attention.kv_lora_rank"), 1, HIDDEN_MAX);
    c->latent.rope_dim = config_u32_required(keys, NAME("qk_rope_head_dim", "rope.dimension_count"),
                                             2, MODEL_HEAD_DIM_MAX / 2);
    c->value_dim = config_u32_required(
        keys, NAME("v_head_dim", "attention.value_length_mla|attention.value_length"), 1,
        MODEL_HEAD_DIM_MAX);
    if (keys->gguf == NULL) {
        c->latent.nope_dim =
            config_u32_required(keys, NAME("qk_nope_head_dim", NULL), 1, MODEL_HEAD_DIM_MAX / 2);
    } else {
        /* Newer files state the lengths of the latent row as those of a key, and these besides. */
        uint32_t key =
            config_u32_required(keys, NAME(NULL, "attention.key_length_mla|attention.key_length"),
                                3, MODEL_HEAD_DIM_MAX);
        if (key <= c->latent.rope_dim)
            config_fail(keys, -EINVAL, "keys of %u values, of which %u rotate", key,
                        c->latent.rope_dim);
        c->latent.nope_dim = key - c->latent.rope_dim;
    }
    c->head_dim = c->latent.nope_dim + c->latent.rope_dim;
    c->kv_heads = c->q_heads; /* each query head gets keys and values of its own */
    if (c->value_dim > c->head_dim)
        config_fail(keys, -ENOTSUP, "keys of %u and values of %u a head: values may not be longer",
                    c->head_dim, c->value_dim);
}

static void read_plain_heads(struct config_keys *keys, struct model_config *c)
{
    c->kv_heads = config_u32(keys, NAME("num_key_value_heads", "attention.head_count_kv"), 1,
                             MODEL_HEADS_MAX, c->q_heads);
    c->head_dim = config_u32(keys, NAME("head_dim", "attention.key_length"), 2, MODEL_HEAD_DIM_MAX,
                             c->hidden / c->q_heads);
    c->value_dim =
        config_u32(keys, NAME(NULL, "attention.value_length"), 1, UINT32_MAX, c->head_dim);
    if (c->value_dim != c->head_dim)
        config_fail(keys, -ENOTSUP, "keys of %u and values of %u a head: they must be equal",
                    c->head_dim, c->value_dim);
}

static uint32_t read_rotary(struct config_keys *keys, const struct model_config *c)
{
    double part = config_number(keys, NAME("partial_rotary_factor", NULL), 0.01, 1, 1);
    const json_t *rope = json_object_get(keys->object, "rope_parameters");
    if (json_is_number(json_object_get(rope, "partial_rotary_factor")))
        part = json_number_value(json_object_get(rope, "partial_rotary_factor"));
    if (!(part >= 0.01 && part <= 1)) {
        config_fail(keys, -EINVAL, "key 'partial_rotary_factor' is not a number from 0.01 to 1");
        part = 1;
    }
    if (model_has(c, MODEL_LATENT))
        return c->latent.rope_dim;
    return config_u32(keys, NAME(NULL, "rope.dimension_count"), 2, c->head_dim,
                      (uint32_t)(part * c->head_dim));
}

static void read_heads(struct config_keys *keys, struct model_config *c)
{
    c->q_heads = config_u32_required(keys, NAME("num_attention_heads", "attention.head_count"), 1,
                                     MODEL_HEADS_MAX);
    if (model_has(c, MODEL_LATENT))
        read_latent(keys, c);
    else
        read_plain_heads(keys, c);
    if (c->q_heads % c->kv_heads != 0)
        config_fail(keys, -EINVAL, "%u query heads do not share %u KV heads evenly", c->q_heads,
                    c->kv_heads);
    if (c->head_dim < 2 || c->head_dim > MODEL_HEAD_DIM_MAX || c->head_dim % 2 != 0)
        config_fail(keys, -EINVAL, "heads of %u values; even numbers up to %u are run", c->head_dim,
                    MODEL_HEAD_DIM_MAX);
    double scalar = config_number(keys, NAME("query_pre_attn_scalar", NULL), 1e-6, 1e6,
                                  c->head_dim > 0 ? c->head_dim : 1);
    c->attention_scale = (float)config_number(keys, NAME("attention_multiplier", "attention.scale"),
                                              1e-6, 1e6, (double)(1.0f / sqrtf((float)scalar)));
    c->rotary_dims = read_rotary(keys, c);
    if (c->rotary_dims % 2 != 0 || c->rotary_dims > c->head_dim)
        config_fail(keys, -EINVAL, "%u rotary dimensions of %u: not an even part", c->rotary_dims,
                    c->head_dim);
}

static void check_routing(struct config_keys *keys, const struct experts_config *e)
{
    if (e->chosen > e->count || e->count % e->groups != 0 || e->groups_chosen > e->groups ||
        e->chosen > e->count / e->groups * e->groups_chosen)
        config_fail(keys, -EINVAL, "%u of %u experts, %u of %u groups: impossible", e->chosen,
                    e->count, e->groups_chosen, e->groups);
}

static void read_experts(struct config_keys *keys, struct model_config *c)
{
    struct experts_config *e = &c->experts;
    e->count =
        config_u32(keys, NAME("num_local_experts|num_experts|n_routed_experts", "expert_count"), 0,
                   MODEL_EXPERTS_MAX, 0);
    e->groups = e->groups_chosen = 1;
    e->scale = 1;
    if (e->count == 0)
        return;
    c->features |= MODEL_EXPERTS;
    e->chosen = config_u32_required(keys, NAME("num_experts_per_tok", "expert_used_count"), 1,
                                    MODEL_EXPERTS_MAX);
    e->ffn = config_u32(keys, NAME("moe_intermediate_size", "expert_feed_forward_length"), 1,
                        FFN_MAX, c->ffn);
    e->shared_ffn = config_u32(
        keys, NAME("shared_expert_intermediate_size", "expert_shared_feed_forward_length"), 0,
        FFN_MAX,
        e->ffn * config_u32(keys, NAME("n_shared_experts", "expert_shared_count"), 0, 64, 0));
    e->normalise = config_bool(keys, NAME("norm_topk_prob", "expert_weights_norm"),
                               keys->gguf != NULL && !model_has(c, MODEL_LATENT));
    uint32_t gating = config_u32(keys, NAME(NULL, "expert_gating_func"), 0, UINT32_MAX, 1);
    if (gating > 2)
        config_fail(keys, -ENOTSUP, "key '%s.expert_gating_func' is %u; 1 and 2 are run",
                    keys->prefix, gating);
    e->sigmoid = gating == 2;
    e->scale = (float)config_number(keys, NAME("routed_scaling_factor", "expert_weights_scale"),
                                    1e-6, 1e6, 1);
    const char *method = json_string_value(json_object_get(keys->object, "topk_method"));
    if (method == NULL || strcmp(method, "greedy") != 0) {
        e->groups =
            config_u32(keys, NAME("n_group", "expert_group_count"), 1, MODEL_EXPERTS_MAX, 1);
        e->groups_chosen = config_u32(keys, NAME("topk_group", "expert_group_used_count"), 1,
                                      MODEL_EXPERTS_MAX, 1);
    }
    check_routing(keys, e);
}

/* --- layers ---------------------------------------------------------------------------------- */

/* A list of config.json, NULL: it has none. */
static const json_t *read_list(struct config_keys *keys, const char *name)
{
    const json_t *list = json_object_get(keys->object, name);
    if (list == NULL || json_is_null(list))
        return NULL;
    if (!json_is_array(list))
        config_fail(keys, -EINVAL, "key '%s' is not a list", name);
    return list;
}

/* Layers that a list names: "layer_types" ("sliding_attention"), "no_rope_layers" (0: none). */
static void read_layer_lists(struct config_keys *keys, struct model_config *c)
{
    const json_t *types = read_list(keys, "layer_types");
    const json_t *rope = read_list(keys, "no_rope_layers");
    const json_t *dense = read_list(keys, "mlp_only_layers");
    if ((json_is_array(types) && json_array_size(types) != c->layers) ||
        (json_array_size(rope) > 0 && json_array_size(rope) != c->layers))
        config_fail(keys, -EINVAL, "key '%s' does not list %u layers",
                    json_is_array(types) ? "layer_types" : "no_rope_layers", c->layers);
    for (uint32_t i = 0; i < c->layers && keys->result == 0; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (json_is_array(types) && (type == NULL || (strcmp(type, "full_attention") != 0 &&
                                                      strcmp(type, "sliding_attention") != 0)))
            config_fail(keys, -ENOTSUP, "key 'layer_types': layer %u is of a kind that is not run",
                        i);
        if (json_is_array(types) && type != NULL) {
            bool slides = strcmp(type, "sliding_attention") == 0;
            c->layer_kinds[i] =
                (uint8_t)((c->layer_kinds[i] & ~LAYER_SLIDING) | (slides ? LAYER_SLIDING : 0));
        }
        if (json_array_size(rope) > 0) {
            bool rotates = json_integer_value(json_array_get(rope, i)) != 0;
            c->layer_kinds[i] =
                (uint8_t)((c->layer_kinds[i] & ~LAYER_NO_ROPE) | (rotates ? 0 : LAYER_NO_ROPE));
        }
    }
    for (size_t n = 0; n < json_array_size(dense); n++) {
        json_int_t layer = json_integer_value(json_array_get(dense, n));
        if (layer >= 0 && layer < (json_int_t)c->layers)
            c->layer_kinds[layer] = (uint8_t)(c->layer_kinds[layer] & ~LAYER_EXPERTS);
    }
}

/* GGUF: a list of which layers slide; false: there is none. */
static bool find_pattern(const struct config_keys *keys, const uint8_t **ret_slides,
                         uint32_t *ret_count)
{
    char key[128];
    (void)snprintf(key, sizeof(key), "%s.attention.sliding_window_pattern", keys->prefix);
    return keys->gguf != NULL && gguf_array_bytes(keys->gguf, key, ret_slides, ret_count) == 0;
}

/* How many layers in a row have one that does not slide. */
static uint32_t read_slide_every(struct config_keys *keys, const struct architecture *row)
{
    const uint8_t *slides = NULL;
    uint32_t count = 0, stated = 0;
    if (find_pattern(keys, &slides, &count))
        return row->slide_every;
    stated = config_u32(
        keys,
        NAME("sliding_window_pattern|_sliding_window_pattern", "attention.sliding_window_pattern"),
        1, MODEL_LAYERS_MAX, 0);
    if (row->slide_every != SLIDE_NONE && row->slide_every != SLIDE_ALL)
        return stated > 0 ? stated : row->slide_every;
    if (stated > 0 && keys->gguf != NULL)
        config_fail(keys, -ENOTSUP,
                    "key '%s.attention.sliding_window_pattern': this feature is not supported",
                    keys->prefix);
    return row->slide_every;
}

static void read_pattern(struct config_keys *keys, struct model_config *c)
{
    const uint8_t *slides = NULL;
    uint32_t count = 0;
    if (!find_pattern(keys, &slides, &count))
        return;
    if (count != c->layers)
        config_fail(keys, -EINVAL,
                    "key '%s.attention.sliding_window_pattern' does not list %u layers",
                    keys->prefix, c->layers);
    for (uint32_t i = 0; i < c->layers && i < count; i++) {
        bool sliding = slides[i] != 0 && c->window > 0;
        c->layer_kinds[i] =
            (uint8_t)((c->layer_kinds[i] & ~LAYER_SLIDING) | (sliding ? LAYER_SLIDING : 0));
    }
}

static void read_layers(struct config_keys *keys, const struct architecture *row,
                        struct model_config *c)
{
    uint32_t every = read_slide_every(keys, row);
    uint32_t slide_from =
        config_u32(keys, NAME("max_window_layers", NULL), 0, UINT32_MAX, UINT32_MAX);
    uint32_t dense = config_u32(keys, NAME("first_k_dense_replace", "leading_dense_block_count"), 0,
                                MODEL_LAYERS_MAX, 0);
    uint32_t sparse =
        config_u32(keys, NAME("decoder_sparse_step|moe_layer_freq", NULL), 1, MODEL_LAYERS_MAX, 1);
    bool latent = model_has(c, MODEL_LATENT); /* counts from 0, the others from 1 */
    uint32_t still = row->no_rope_every;      /* how many layers have one that does not rotate */
    if (still > 0 && still != NO_ROPE_FULL)
        still = config_u32(keys, NAME("no_rope_layer_interval", NULL), 1, MODEL_LAYERS_MAX, still);
    for (uint32_t i = 0; i < c->layers; i++) {
        bool slides = every == SLIDE_NONE ? i >= slide_from : (i + 1) % every != 0;
        bool rotates = still == 0 || (i + 1) % still != 0;
        bool experts = c->experts.count > 0 && i >= dense && (latent ? i : i + 1) % sparse == 0;
        c->layer_kinds[i] =
            (uint8_t)((slides && c->window > 0 ? LAYER_SLIDING : 0) |
                      (rotates ? 0 : LAYER_NO_ROPE) | (experts ? LAYER_EXPERTS : 0));
    }
    read_layer_lists(keys, c);
    read_pattern(keys, c);
    if (still == NO_ROPE_FULL && c->window == 0)
        config_fail(keys, -EINVAL, "a %s model without sliding_window: no layer would rotate",
                    c->architecture);
    for (uint32_t i = 0; i < c->layers; i++) {
        if ((c->layer_kinds[i] & LAYER_SLIDING) != 0 && c->window == 0)
            config_fail(keys, -EINVAL, "layer %u slides, but there is no sliding_window", i);
        if ((c->layer_kinds[i] & LAYER_SLIDING) == 0 && still == NO_ROPE_FULL)
            c->layer_kinds[i] |= LAYER_NO_ROPE;
    }
}

/* --- features that tensors show -------------------------------------------------------------- */

static bool has_role(const struct model_source *source, const struct model_config *c,
                     enum tensor_role role)
{
    char name[TENSOR_NAME_MAX];
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        if (tensor_name(c, role, layer, 0, name) && model_source_has(source, name))
            return true;
        if (role < TENSOR_ATTENTION_NORM)
            break;
    }
    return false;
}

static void read_features(struct config_keys *keys, const struct model_source *source,
                          struct model_config *c)
{
    const struct config_name tie = NAME("tie_word_embeddings", NULL);
    bool stated = config_bool(keys, tie, false), denied = !config_bool(keys, tie, true);
    bool biased = config_bool(keys, NAME("attention_bias", NULL), false);
    bool ffn_biased = config_bool(keys, NAME("mlp_bias", NULL), false);
    bool gate = has_role(source, c, TENSOR_GATE);
    if (stated || !has_role(source, c, TENSOR_HEAD))
        c->features |= MODEL_TIED;
    if (denied && model_has(c, MODEL_TIED))
        config_fail(keys, -EINVAL, "'tie_word_embeddings' is false, but there is no lm_head");
    if (has_role(source, c, TENSOR_QKV))
        c->features |= MODEL_FUSED_QKV;
    if (has_role(source, c, TENSOR_GATE_UP) && !gate)
        c->features |= MODEL_FUSED_GATE_UP;
    if (model_has(c, MODEL_LAYER_NORM) &&
        (c->from_gguf ? has_role(source, c, TENSOR_Q_NORM)
                      : config_bool(keys, NAME("use_qk_norm", NULL), false)))
        c->features |= MODEL_QK_NORM_OWN;
    if (model_has(c, MODEL_LATENT) && has_role(source, c, TENSOR_K_B))
        c->features |= MODEL_SPLIT_KV_B;
    if (c->from_gguf && has_role(source, c, TENSOR_ROUTER_BIAS))
        c->experts.biased = true;
    if (has_role(source, c, TENSOR_Q_BIAS) || has_role(source, c, TENSOR_QKV_BIAS))
        c->features |= MODEL_QKV_BIAS;
    if (has_role(source, c, TENSOR_OUTPUT_BIAS))
        c->features |= MODEL_OUTPUT_BIAS;
    if (has_role(source, c, TENSOR_DOWN_BIAS))
        c->features |= MODEL_FFN_BIAS;
    if ((biased && !model_has(c, MODEL_QKV_BIAS)) || (ffn_biased && !model_has(c, MODEL_FFN_BIAS)))
        config_fail(keys, -EINVAL, "config.json speaks of biases that no tensor holds");
    if (model_has(c, MODEL_FFN_BIAS) && model_has(c, MODEL_EXPERTS | MODEL_FUSED_GATE_UP))
        config_fail(keys, -ENOTSUP, "biases of experts or of a fused FFN are not supported");
    if (model_has(c, MODEL_LATENT) && model_has(c, MODEL_QKV_BIAS | MODEL_OUTPUT_BIAS))
        config_fail(keys, -ENOTSUP, "biases of latent attention are not supported");
}

static void read_activation(struct config_keys *keys, const struct model_config *c)
{
    const char *name = json_string_value(json_object_get(keys->object, "hidden_activation"));
    if (name == NULL)
        name = json_string_value(json_object_get(keys->object, "hidden_act"));
    if (name == NULL)
        return; /* GGUF, or the architecture's own */
    bool gelu = strcmp(name, "gelu_pytorch_tanh") == 0 || strcmp(name, "gelu_new") == 0 ||
                (model_has(c, MODEL_GELU) && strcmp(name, "gelu") == 0); /* what old Gemmas say */
    if (model_has(c, MODEL_GELU) ? !gelu : strcmp(name, "silu") != 0)
        config_fail(keys, -ENOTSUP, "activation '%.40s' is not supported in a %s model", name,
                    c->architecture);
}

/* The embedding's rows are the vocabulary; the number, where there is one, has to agree. */
static void read_vocabulary(struct config_keys *keys, const struct model_source *source,
                            struct model_config *c)
{
    char name[TENSOR_NAME_MAX];
    struct model_tensor embedding = {.rows = 0};
    (void)tensor_name(c, TENSOR_EMBEDDING, 0, 0, name);
    int r = model_source_tensor(source, name, &embedding, keys->err);
    if (r == -ENOENT)
        config_fail(keys, -EINVAL, "tensor '%s' is missing", name);
    else if (r < 0)
        keys->result = keys->result < 0 ? keys->result : r;
    else if (embedding.planes != 1 || embedding.columns != c->hidden ||
             embedding.rows > VOCAB_MAX || embedding.rows == 0)
        config_fail(keys, -EINVAL,
                    "tensor '%s' is %llu x %llu, not a vocabulary of at most %u rows of %u", name,
                    (unsigned long long)embedding.rows, (unsigned long long)embedding.columns,
                    VOCAB_MAX, c->hidden);
    if (keys->result < 0)
        return;
    c->vocab_size = (uint32_t)embedding.rows;
    uint32_t stated =
        config_u32(keys, NAME("vocab_size", "vocab_size"), 1, VOCAB_MAX, c->vocab_size);
    if (stated != c->vocab_size)
        config_fail(keys, -EINVAL, "key 'vocab_size' is %u, the embedding has %u", stated,
                    c->vocab_size);
}

static void refuse_keys(struct config_keys *keys)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct config_keys probe = *keys;
        struct errmsg unused = {""};
        probe.err = &unused;
        double value = config_number(&probe, refused[i], -1e30, 1e30, 0);
        if (keys->result == 0 && (probe.result < 0 || value != 0))
            config_fail(keys, -ENOTSUP, "key '%s%s%s': this feature is not supported",
                        keys->gguf != NULL ? keys->prefix : "", keys->gguf != NULL ? "." : "",
                        keys->gguf != NULL ? refused[i].gguf : refused[i].hf);
    }
    if (keys->gguf == NULL && keys->result == 0)
        keys->result = fp8_check_config(keys->object, keys->err);
}

/* The part about text with its defaults, and what the whole says of quantisation and the head. */
static int read_text_part(const json_t *config, const struct architecture *row, json_t **ret_text,
                          struct errmsg *err)
{
    json_t *part = json_object_get(config, row->hf_text), *defaults = NULL;
    static const char *const of_whole[] = {"quantization_config", "tie_word_embeddings"};
    if (!json_is_object(part))
        return errmsg_set(err, -EINVAL, "config.json: key '%s' is not an object", row->hf_text);
    int r = json_parse(row->hf_defaults, strlen(row->hf_defaults), 4096, &defaults, err);
    ASSERT(r == 0);
    json_t *text = json_copy(part);
    (void)json_object_update_missing(text, defaults);
    for (size_t i = 0; i < sizeof(of_whole) / sizeof(of_whole[0]); i++) {
        json_t *value = json_object_get(config, of_whole[i]);
        if (value != NULL)
            (void)json_object_set(text, of_whole[i], value);
    }
    json_decref(defaults);
    *ret_text = text;
    return 0;
}

int model_config_read(const struct model_source *source, struct model_config *ret_config,
                      struct errmsg *err)
{
    const struct architecture *row = NULL;
    struct model_config c;
    memset(&c, 0, sizeof(c));
    int r = find_architecture(source, &row, err);
    if (r < 0)
        return r;
    ASSERT(row != NULL);
    json_t *text = NULL; /* what of config.json is about text, where that is a part */
    struct config_keys keys = {.gguf = model_source_gguf(source),
                               .prefix = row->name,
                               .object = model_source_config(source),
                               .err = err};
    if (row->hf_text != NULL) {
        r = read_text_part(model_source_config(source), row, &text, err);
        if (r < 0)
            return r;
        keys.object = text;
    }
    (void)snprintf(c.architecture, sizeof(c.architecture), "%s", row->name);
    c.from_gguf = keys.gguf != NULL;
    c.naming = row->naming;
    c.features = row->features | (c.from_gguf ? row->gguf_features : row->hf_features);
    read_sizes(&keys, row, &c);
    if (keys.result == 0)
        read_heads(&keys, &c);
    if (keys.result == 0)
        read_experts(&keys, &c);
    if (keys.result == 0)
        read_layers(&keys, row, &c);
    if (keys.result == 0)
        read_vocabulary(&keys, source, &c);
    if (keys.result == 0)
        read_features(&keys, source, &c);
    if (keys.result == 0 && row->finish != NULL)
        row->finish(&c);
    if (keys.result == 0)
        config_rope_read(&keys, source, &c);
    read_activation(&keys, &c);
    refuse_keys(&keys);
    if (keys.result == 0)
        keys.result = tensor_refuse_unknown(source, &c, err);
    json_decref(text);
    if (keys.result < 0)
        return keys.result;
    ASSERT(c.layers > 0 && c.q_heads % c.kv_heads == 0);
    *ret_config = c;
    return 0;
}
