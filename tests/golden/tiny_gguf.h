/* tiny_gguf.h - a Hugging Face folder of a tiny model -> a GGUF, as llama.cpp's converter
 * writes it: its names, permuted rows, stacked experts, norms with 1 added, keys.
 *
 * Written apart from worker/load on purpose: its tables say what files hold, and a mistake in ours
 * shows as other logits. */
#ifndef REFRAIN_TESTS_GOLDEN_TINY_GGUF_H
#define REFRAIN_TESTS_GOLDEN_TINY_GGUF_H

#include <cmocka.h>
#include <math.h>

#include "tests/golden/golden.h"
#include "tests/unit/proto/files/gguf_writer.h"
#include "worker/load/model_source.h"

struct conversion {
    const char *folder; /* as golden_tiny_root() finds it */
    const char *arch;   /* general.architecture */
    bool permuted;      /* q and k rows for pairs (2i, 2i + 1) */
    bool norm_plus_1;
    bool post_norms; /* "post_attention_layernorm" stands behind attention */
    bool split_kv_b; /* MLA: k_b and v_b, and the keys of newer files */
    uint32_t split;  /* files; 0: one */
};

struct converter {
    const struct conversion *what;
    const struct model_source *source;
    const json_t *config;
    struct gguf_writer *w;
};

/* --- names ----------------------------------------------------------------------------------- */

static const char *const whole_names[][2] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                             {"model.norm.weight", "output_norm.weight"},
                                             {"lm_head.weight", "output.weight"}};

/* Of a layer; "exps": one per expert, stacked. */
static const char *const layer_names[][2] = {
    {"input_layernorm", "attn_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"mlp.experts.0.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.0.up_proj", "ffn_up_exps"},
    {"mlp.experts.0.down_proj", "ffn_down_exps"},
    {"block_sparse_moe.experts.0.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.0.w3", "ffn_up_exps"},
    {"block_sparse_moe.experts.0.w2", "ffn_down_exps"},
};

/* Name in the GGUF; false: part of another tensor, or of no use (layers that predict further). */
static bool gguf_name(const struct converter *c, const char *hf, char ret_name[128])
{
    unsigned layer = 0;
    int at = 0;
    char stem[128];
    for (size_t i = 0; i < sizeof(whole_names) / sizeof(whole_names[0]); i++) {
        if (strcmp(whole_names[i][0], hf) == 0)
            return snprintf(ret_name, 128, "%s", whole_names[i][1]) > 0;
    }
    if (sscanf(hf, "model.layers.%u.%n", &layer, &at) != 1 || at == 0)
        fail_msg("no name for '%s'", hf);
    (void)snprintf(stem, sizeof(stem), "%s", hf + at);
    char *dot = strrchr(stem, '.');
    const char *suffix =
        strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0 ? hf + at + (dot - stem) : "";
    if (suffix[0] != '\0')
        *dot = '\0';
    if (strcmp(stem, "post_attention_layernorm") == 0)
        return snprintf(ret_name, 128, "blk.%u.%s%s", layer,
                        c->what->post_norms ? "post_attention_norm" : "ffn_norm", suffix) > 0;
    for (size_t i = 0; i < sizeof(layer_names) / sizeof(layer_names[0]); i++) {
        if (strcmp(layer_names[i][0], stem) == 0)
            return snprintf(ret_name, 128, "blk.%u.%s%s", layer, layer_names[i][1], suffix) > 0;
    }
    if (strstr(stem, ".experts.") == NULL)
        fail_msg("no name for '%s'", hf);
    return false;
}

/* --- tensors --------------------------------------------------------------------------------- */

static uint32_t config_count(const struct converter *c, const char *key, uint32_t absent)
{
    const json_t *value = json_object_get(c->config, key);
    return json_is_integer(value) ? (uint32_t)json_integer_value(value) : absent;
}

static void put_f32(struct converter *c, const char *name, uint32_t dims_count,
                    const uint64_t *dims, const float *values)
{
    size_t count = 1;
    for (uint32_t i = 0; i < dims_count; i++)
        count *= dims[i];
    pad(&c->w->data, c->w->alignment);
    write_info(c->w, name, dims_count, dims, 0, c->w->data.bytes);
    buffer_append(&c->w->data, values, count * sizeof(float));
}

/* Rows [head][half][pair] -> [head][pair][half]. */
static void permute(float *values, size_t heads, size_t dim, size_t columns)
{
    float *copy = mem_calloc(heads * dim * columns, sizeof(*copy));
    memcpy(copy, values, heads * dim * columns * sizeof(*copy));
    for (size_t h = 0; h < heads; h++) {
        for (size_t i = 0; i < dim; i++) /* stored row i: pair i / 2, half i % 2 */
            memcpy(values + (h * dim + i) * columns,
                   copy + (h * dim + i % 2 * (dim / 2) + i / 2) * columns, columns * sizeof(float));
    }
    mem_free(copy);
}

static float *values_of(const struct converter *c, const char *hf, struct model_tensor *ret_tensor)
{
    struct errmsg err = {""};
    if (model_source_tensor(c->source, hf, ret_tensor, &err) < 0)
        fail_msg("'%s': %s", hf, err.text);
    size_t count = ret_tensor->rows * ret_tensor->columns;
    float *values = mem_calloc(count, sizeof(*values));
    dtype_to_f32(ret_tensor->dtype, ret_tensor->data, values, count);
    return values;
}

/* All experts' matrices behind each other: "...experts.0..." stands for them. */
static void put_experts(struct converter *c, const char *hf, const char *name)
{
    uint32_t experts = config_count(c, "num_local_experts", config_count(c, "n_routed_experts", 0));
    const char *zero = strstr(hf, ".experts.0.");
    struct model_tensor tensor;
    float *all = NULL;
    size_t one = 0;
    for (uint32_t e = 0; e < experts; e++) {
        char *expert = mem_printf("%.*s.experts.%u.%s", (int)(zero - hf), hf, e, zero + 11);
        float *values = values_of(c, expert, &tensor);
        one = tensor.rows * tensor.columns;
        all = all == NULL ? mem_calloc(experts * one, sizeof(*all)) : all;
        memcpy(all + e * one, values, one * sizeof(*all));
        mem_free(values);
        mem_free(expert);
    }
    put_f32(c, name, 3, (const uint64_t[]){tensor.columns, tensor.rows, experts}, all);
    mem_free(all);
}

/* kv_b [heads][nope + value][rank] -> k_b [heads][rank][nope], v_b [heads][value][rank]. */
static void put_split_kv_b(struct converter *c, const char *name, const float *values,
                           uint64_t rank)
{
    uint64_t heads = config_count(c, "num_attention_heads", 0);
    uint64_t nope = config_count(c, "qk_nope_head_dim", 0);
    uint64_t value = config_count(c, "v_head_dim", 0);
    float *k = mem_calloc(heads * nope * rank, sizeof(*k));
    float *v = mem_calloc(heads * value * rank, sizeof(*v));
    char k_name[128], v_name[128];
    int layer = (int)strcspn(name + 4, ".") + 4;
    (void)snprintf(k_name, sizeof(k_name), "%.*s.attn_k_b.weight", layer, name);
    (void)snprintf(v_name, sizeof(v_name), "%.*s.attn_v_b.weight", layer, name);
    for (uint64_t h = 0; h < heads; h++) {
        const float *head = values + h * (nope + value) * rank;
        for (uint64_t i = 0; i < nope; i++) {
            for (uint64_t r = 0; r < rank; r++)
                k[(h * rank + r) * nope + i] = head[i * rank + r];
        }
        memcpy(v + h * value * rank, head + nope * rank, value * rank * sizeof(*v));
    }
    put_f32(c, k_name, 3, (const uint64_t[]){nope, rank, heads}, k);
    put_f32(c, v_name, 3, (const uint64_t[]){rank, value, heads}, v);
    mem_free(k);
    mem_free(v);
}

static void put_tensor(struct converter *c, const char *hf)
{
    char name[128];
    struct model_tensor tensor;
    if (!gguf_name(c, hf, name))
        return;
    if (strstr(hf, ".experts.0.") != NULL) {
        put_experts(c, hf, name);
        return;
    }
    float *values = values_of(c, hf, &tensor);
    uint32_t heads = config_count(c, "num_attention_heads", 1);
    uint32_t kv_heads = config_count(c, "num_key_value_heads", heads);
    bool q = strstr(hf, "self_attn.q_proj") != NULL, k = strstr(hf, "self_attn.k_proj") != NULL;
    uint64_t rows = tensor.rows == 1 ? tensor.columns : tensor.rows;
    if (c->what->permuted && (q || k)) /* of a bias the values are the rows */
        permute(values, q ? heads : kv_heads, rows / (q ? heads : kv_heads),
                tensor.rows == 1 ? 1 : tensor.columns);
    for (uint64_t i = 0; c->what->norm_plus_1 && strstr(hf, "norm") != NULL && i < tensor.columns;
         i++)
        values[i] += 1;
    if (c->what->split_kv_b && strstr(hf, "kv_b_proj") != NULL)
        put_split_kv_b(c, name, values, tensor.columns);
    else
        put_f32(c, name, tensor.rows == 1 ? 1 : 2, (const uint64_t[]){tensor.columns, tensor.rows},
                values);
    mem_free(values);
}

/* --- keys ------------------------------------------------------------------------------------ */

static void key_u32(struct converter *c, const char *key, uint32_t value)
{
    char name[128];
    (void)snprintf(name, sizeof(name), "%s.%s", c->what->arch, key);
    write_u32(c->w, name, value);
}

/* A number of config.json, if it is there. */
static void copy_u32(struct converter *c, const char *hf, const char *key)
{
    if (json_is_integer(json_object_get(c->config, hf)))
        key_u32(c, key, config_count(c, hf, 0));
}

static void copy_f32(struct converter *c, const json_t *object, const char *hf, const char *key)
{
    char name[128];
    const json_t *value = json_object_get(object, hf);
    (void)snprintf(name, sizeof(name), "%s.%s", c->what->arch, key);
    if (json_is_number(value))
        write_f32(c->w, name, (float)json_number_value(value));
}

static void put_sizes(struct converter *c)
{
    copy_u32(c, "num_hidden_layers", "block_count");
    copy_u32(c, "hidden_size", "embedding_length");
    copy_u32(c, "intermediate_size", "feed_forward_length");
    copy_u32(c, "max_position_embeddings", "context_length");
    copy_u32(c, "num_attention_heads", "attention.head_count");
    copy_u32(c, "sliding_window", "attention.sliding_window");
    copy_f32(c, c->config, "rms_norm_eps", "attention.layer_norm_rms_epsilon");
    copy_f32(c, c->config, "layer_norm_eps", "attention.layer_norm_epsilon");
    copy_f32(c, c->config, "rope_theta", "rope.freq_base");
    copy_f32(c, c->config, "attn_logit_softcapping", "attn_logit_softcapping");
    copy_f32(c, c->config, "final_logit_softcapping", "final_logit_softcapping");
    copy_f32(c, c->config, "attention_multiplier", "attention.scale");
    copy_f32(c, c->config, "embedding_multiplier", "embedding_scale");
    copy_f32(c, c->config, "residual_multiplier", "residual_scale");
    copy_f32(c, c->config, "logits_scaling", "logit_scale");
    copy_f32(c, c->config, "logit_scale", "logit_scale"); /* Cohere's: a factor */
    copy_u32(c, "num_local_experts", "expert_count");
    copy_u32(c, "n_routed_experts", "expert_count");
    copy_u32(c, "num_experts_per_tok", "expert_used_count");
    copy_u32(c, "moe_intermediate_size", "expert_feed_forward_length");
    copy_u32(c, "first_k_dense_replace", "leading_dense_block_count");
    if (json_array_size(json_object_get(c->config, "mlp_only_layers")) > 0)
        key_u32(c, "leading_dense_block_count", 1);
}

static void put_heads(struct converter *c)
{
    uint32_t rope = config_count(c, "qk_rope_head_dim", 0),
             rank = config_count(c, "kv_lora_rank", 0);
    uint32_t key = rope + config_count(c, "qk_nope_head_dim", 0);
    if (rank == 0) {
        uint32_t dim = config_count(c, "head_dim",
                                    config_count(c, "hidden_size", 0) /
                                        config_count(c, "num_attention_heads", 1));
        copy_u32(c, "num_key_value_heads", "attention.head_count_kv");
        key_u32(c, "attention.key_length", dim);
        key_u32(c, "attention.value_length", dim);
        return;
    }
    bool split = c->what->split_kv_b;
    copy_u32(c, "q_lora_rank", "attention.q_lora_rank");
    copy_u32(c, "kv_lora_rank", "attention.kv_lora_rank");
    copy_u32(c, "n_shared_experts", "expert_shared_count");
    copy_f32(c, c->config, "routed_scaling_factor", "expert_weights_scale");
    key_u32(c, "rope.dimension_count", rope);
    key_u32(c, "attention.head_count_kv", split ? 1 : config_count(c, "num_attention_heads", 0));
    key_u32(c, "attention.key_length", split ? rank + rope : key);
    key_u32(c, "attention.value_length", split ? rank : config_count(c, "v_head_dim", 0));
    if (split) {
        key_u32(c, "attention.key_length_mla", key);
        copy_u32(c, "v_head_dim", "attention.value_length_mla");
    }
    write_bool(c->w, "deepseek2.expert_weights_norm",
               json_is_true(json_object_get(c->config, "norm_topk_prob")));
    if (json_object_get(c->config, "topk_method") == NULL) { /* V3 */
        key_u32(c, "expert_gating_func", 2);
        copy_u32(c, "n_group", "expert_group_count");
        copy_u32(c, "topk_group", "expert_group_used_count");
    }
}

/* llama3's scaling is a tensor of divisors. */
static void put_llama3(struct converter *c, const json_t *scaling)
{
    double theta = json_number_value(json_object_get(c->config, "rope_theta"));
    double factor = json_number_value(json_object_get(scaling, "factor"));
    double low = json_number_value(json_object_get(scaling, "low_freq_factor"));
    double high = json_number_value(json_object_get(scaling, "high_freq_factor"));
    double original =
        json_number_value(json_object_get(scaling, "original_max_position_embeddings"));
    uint32_t dim = config_count(c, "head_dim", 0);
    float divisors[256];
    for (uint32_t i = 0; i < dim; i += 2) {
        double wavelength = 2 * M_PI * pow(theta, (double)i / dim);
        double smooth = (original / wavelength - low) / (high - low);
        divisors[i / 2] = wavelength < original / high ? 1
                          : wavelength > original / low
                              ? (float)factor
                              : (float)(1 / ((1 - smooth) / factor + smooth));
    }
    put_f32(c, "rope_freqs.weight", 1, (const uint64_t[]){dim / 2}, divisors);
}

static void put_scaling(struct converter *c)
{
    char name[128];
    const json_t *scaling = json_object_get(c->config, "rope_scaling");
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    if (type == NULL)
        type = json_string_value(json_object_get(scaling, "type"));
    if (type == NULL)
        return;
    if (strcmp(type, "llama3") == 0) {
        put_llama3(c, scaling);
        return;
    }
    (void)snprintf(name, sizeof(name), "%s.rope.scaling.type", c->what->arch);
    write_text(c->w, name, type);
    copy_f32(c, scaling, "factor", "rope.scaling.factor");
    if (json_is_integer(json_object_get(scaling, "original_max_position_embeddings")))
        key_u32(c, "rope.scaling.original_context_length",
                (uint32_t)json_integer_value(
                    json_object_get(scaling, "original_max_position_embeddings")));
    double all = json_number_value(json_object_get(scaling, "mscale_all_dim"));
    (void)snprintf(name, sizeof(name), "%s.rope.scaling.yarn_log_multiplier", c->what->arch);
    if (all > 0)
        write_f32(c->w, name, (float)(0.1 * all));
}

/* What Gemma's converter leaves to the reader by size: the tiny ones state it. */
static void put_gemma(struct converter *c)
{
    const json_t *types = json_object_get(c->config, "layer_types"), *type = NULL;
    double scalar = json_number_value(json_object_get(c->config, "query_pre_attn_scalar"));
    uint8_t slides[64];
    char name[128];
    size_t i = 0;
    if (scalar <= 0)
        return;
    json_array_foreach(types, i, type)
    {
        slides[i] = strcmp(json_string_value(type), "sliding_attention") == 0;
    }
    (void)snprintf(name, sizeof(name), "%s.attention.scale", c->what->arch);
    write_f32(c->w, name, (float)(1 / sqrt(scalar)));
    (void)snprintf(name, sizeof(name), "%s.attention.sliding_window_pattern", c->what->arch);
    if (strcmp(c->what->arch, "gemma3") == 0)
        write_array(c->w, name, 7, json_array_size(types), slides, json_array_size(types));
}

/* --- files ----------------------------------------------------------------------------------- */

static void write_gguf(struct gguf_writer *w, const char *path)
{
    size_t bytes = 0;
    void *data = writer_finish(w, &bytes);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    free(data);
    writer_done(w);
}

/* Path of part `i`, or of the one file. */
static char *gguf_path(const struct conversion *what, const char *to, uint32_t i)
{
    return what->split > 1 ? mem_printf("%s/tiny-%05u-of-%05u.gguf", to, i + 1, what->split)
                           : mem_printf("%s/tiny.gguf", to);
}

/* Tensors are dealt out to the parts in turn. */
static void convert(const struct conversion *what, const char *to)
{
    struct errmsg err = {""};
    struct model_source *source = NULL;
    char *from = mem_printf("%s/%s", golden_tiny_root(what->folder), what->folder);
    if (model_source_open(from, &source, &err) < 0)
        fail_msg("%s", err.text);
    uint32_t parts = what->split > 1 ? what->split : 1;
    struct gguf_writer *w = mem_calloc(parts, sizeof(*w));
    struct converter c = {what, source, model_source_config(source), w};
    for (uint32_t i = 0; i < parts; i++) {
        writer_init(&w[i]);
        if (parts > 1) {
            write_u32(&w[i], "split.no", i);
            write_u32(&w[i], "split.count", parts);
        }
    }
    write_text(w, "general.architecture", what->arch);
    put_sizes(&c);
    put_heads(&c);
    put_scaling(&c);
    put_gemma(&c);
    for (size_t i = 0; i < model_source_count(source); i++) {
        struct gguf_string name = model_source_at(source, i).name;
        char *hf = mem_strndup(name.text, name.bytes);
        c.w = &w[i % parts];
        put_tensor(&c, hf);
        mem_free(hf);
    }
    for (uint32_t i = 0; i < parts; i++) {
        char *path = gguf_path(what, to, i);
        write_gguf(&w[i], path);
        mem_free(path);
    }
    mem_free(w);
    model_source_close(source);
    mem_free(from);
}

#endif
