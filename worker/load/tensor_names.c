/* tensor_names.c - roles against names, in the two formats.
 *
 *   "blk.12.attn_q.weight"  -> "blk.%u.attn_q.weight", layer 12 -> the role with that pattern
 *
 * Cost: one pass over the roles per tensor of a file, at load. */
#include "worker/load/tensor_names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "worker/load/architectures.h"

/* "%u": the layer, then the expert. */
static const char *const gguf_names[TENSOR_ROLES] = {
    [TENSOR_EMBEDDING] = "token_embd.weight",
    [TENSOR_FINAL_NORM] = "output_norm.weight",
    [TENSOR_HEAD] = "output.weight",
    [TENSOR_ATTENTION_NORM] = "blk.%u.attn_norm.weight",
    [TENSOR_POST_ATTENTION_NORM] = "blk.%u.post_attention_norm.weight",
    [TENSOR_FFN_NORM] = "blk.%u.ffn_norm.weight",
    [TENSOR_POST_FFN_NORM] = "blk.%u.post_ffw_norm.weight",
    [TENSOR_Q] = "blk.%u.attn_q.weight",
    [TENSOR_K] = "blk.%u.attn_k.weight",
    [TENSOR_V] = "blk.%u.attn_v.weight",
    [TENSOR_QKV] = "blk.%u.attn_qkv.weight",
    [TENSOR_OUTPUT] = "blk.%u.attn_output.weight",
    [TENSOR_Q_BIAS] = "blk.%u.attn_q.bias",
    [TENSOR_K_BIAS] = "blk.%u.attn_k.bias",
    [TENSOR_V_BIAS] = "blk.%u.attn_v.bias",
    [TENSOR_QKV_BIAS] = "blk.%u.attn_qkv.bias",
    [TENSOR_OUTPUT_BIAS] = "blk.%u.attn_output.bias",
    [TENSOR_Q_NORM] = "blk.%u.attn_q_norm.weight",
    [TENSOR_K_NORM] = "blk.%u.attn_k_norm.weight",
    [TENSOR_Q_A] = "blk.%u.attn_q_a.weight",
    [TENSOR_Q_A_NORM] = "blk.%u.attn_q_a_norm.weight",
    [TENSOR_Q_B] = "blk.%u.attn_q_b.weight",
    [TENSOR_KV_A] = "blk.%u.attn_kv_a_mqa.weight",
    [TENSOR_KV_A_NORM] = "blk.%u.attn_kv_a_norm.weight",
    [TENSOR_KV_B] = "blk.%u.attn_kv_b.weight",
    [TENSOR_K_B] = "blk.%u.attn_k_b.weight",
    [TENSOR_V_B] = "blk.%u.attn_v_b.weight",
    [TENSOR_GATE] = "blk.%u.ffn_gate.weight",
    [TENSOR_UP] = "blk.%u.ffn_up.weight",
    [TENSOR_GATE_UP] = "blk.%u.ffn_up.weight", /* MODEL_FUSED_GATE_UP: both in it */
    [TENSOR_DOWN] = "blk.%u.ffn_down.weight",
    [TENSOR_GATE_BIAS] = "blk.%u.ffn_gate.bias",
    [TENSOR_UP_BIAS] = "blk.%u.ffn_up.bias",
    [TENSOR_DOWN_BIAS] = "blk.%u.ffn_down.bias",
    [TENSOR_ROUTER] = "blk.%u.ffn_gate_inp.weight",
    [TENSOR_ROUTER_BIAS] = "blk.%u.exp_probs_b.bias",
    [TENSOR_SHARED_GATE] = "blk.%u.ffn_gate_shexp.weight",
    [TENSOR_SHARED_UP] = "blk.%u.ffn_up_shexp.weight",
    [TENSOR_SHARED_DOWN] = "blk.%u.ffn_down_shexp.weight",
    [TENSOR_SHARED_ROUTER] = "blk.%u.ffn_gate_inp_shexp.weight",
    [TENSOR_EXPERT_GATE] = "blk.%u.ffn_gate_exps.weight",
    [TENSOR_EXPERT_UP] = "blk.%u.ffn_up_exps.weight",
    [TENSOR_EXPERT_DOWN] = "blk.%u.ffn_down_exps.weight",
};

#define LAYER(name) ("model.layers.%u." name)

static const char *const hf_names[TENSOR_ROLES] = {
    [TENSOR_EMBEDDING] = "model.embed_tokens.weight",
    [TENSOR_FINAL_NORM] = "model.norm.weight",
    [TENSOR_HEAD] = "lm_head.weight",
    [TENSOR_ATTENTION_NORM] = LAYER("input_layernorm.weight"),
    [TENSOR_POST_ATTENTION_NORM] = LAYER("post_attention_layernorm.weight"),
    [TENSOR_FFN_NORM] = LAYER("pre_feedforward_layernorm.weight"),
    [TENSOR_POST_FFN_NORM] = LAYER("post_feedforward_layernorm.weight"),
    [TENSOR_Q] = LAYER("self_attn.q_proj.weight"),
    [TENSOR_K] = LAYER("self_attn.k_proj.weight"),
    [TENSOR_V] = LAYER("self_attn.v_proj.weight"),
    [TENSOR_QKV] = LAYER("self_attn.qkv_proj.weight"),
    [TENSOR_OUTPUT] = LAYER("self_attn.o_proj.weight"),
    [TENSOR_Q_BIAS] = LAYER("self_attn.q_proj.bias"),
    [TENSOR_K_BIAS] = LAYER("self_attn.k_proj.bias"),
    [TENSOR_V_BIAS] = LAYER("self_attn.v_proj.bias"),
    [TENSOR_QKV_BIAS] = LAYER("self_attn.qkv_proj.bias"),
    [TENSOR_OUTPUT_BIAS] = LAYER("self_attn.o_proj.bias"),
    [TENSOR_Q_NORM] = LAYER("self_attn.q_norm.weight"),
    [TENSOR_K_NORM] = LAYER("self_attn.k_norm.weight"),
    [TENSOR_Q_A] = LAYER("self_attn.q_a_proj.weight"),
    [TENSOR_Q_A_NORM] = LAYER("self_attn.q_a_layernorm.weight"),
    [TENSOR_Q_B] = LAYER("self_attn.q_b_proj.weight"),
    [TENSOR_KV_A] = LAYER("self_attn.kv_a_proj_with_mqa.weight"),
    [TENSOR_KV_A_NORM] = LAYER("self_attn.kv_a_layernorm.weight"),
    [TENSOR_KV_B] = LAYER("self_attn.kv_b_proj.weight"),
    [TENSOR_GATE] = LAYER("mlp.gate_proj.weight"),
    [TENSOR_UP] = LAYER("mlp.up_proj.weight"),
    [TENSOR_GATE_UP] = LAYER("mlp.gate_up_proj.weight"),
    [TENSOR_DOWN] = LAYER("mlp.down_proj.weight"),
    [TENSOR_GATE_BIAS] = LAYER("mlp.gate_proj.bias"),
    [TENSOR_UP_BIAS] = LAYER("mlp.up_proj.bias"),
    [TENSOR_DOWN_BIAS] = LAYER("mlp.down_proj.bias"),
    [TENSOR_ROUTER] = LAYER("mlp.gate.weight"),
    [TENSOR_ROUTER_BIAS] = LAYER("mlp.gate.e_score_correction_bias"),
    [TENSOR_SHARED_GATE] = LAYER("mlp.shared_experts.gate_proj.weight"),
    [TENSOR_SHARED_UP] = LAYER("mlp.shared_experts.up_proj.weight"),
    [TENSOR_SHARED_DOWN] = LAYER("mlp.shared_experts.down_proj.weight"),
    [TENSOR_EXPERT_GATE] = LAYER("mlp.experts.%u.gate_proj.weight"),
    [TENSOR_EXPERT_UP] = LAYER("mlp.experts.%u.up_proj.weight"),
    [TENSOR_EXPERT_DOWN] = LAYER("mlp.experts.%u.down_proj.weight"),
};

/* Where an architecture's folder names a role otherwise. */
static const char *const mixtral_names[TENSOR_ROLES] = {
    [TENSOR_ROUTER] = LAYER("block_sparse_moe.gate.weight"),
    [TENSOR_EXPERT_GATE] = LAYER("block_sparse_moe.experts.%u.w1.weight"),
    [TENSOR_EXPERT_UP] = LAYER("block_sparse_moe.experts.%u.w3.weight"),
    [TENSOR_EXPERT_DOWN] = LAYER("block_sparse_moe.experts.%u.w2.weight"),
};

static const char *const qwen2_moe_names[TENSOR_ROLES] = {
    [TENSOR_SHARED_GATE] = LAYER("mlp.shared_expert.gate_proj.weight"),
    [TENSOR_SHARED_UP] = LAYER("mlp.shared_expert.up_proj.weight"),
    [TENSOR_SHARED_DOWN] = LAYER("mlp.shared_expert.down_proj.weight"),
    [TENSOR_SHARED_ROUTER] = LAYER("mlp.shared_expert_gate.weight"),
};

/* Tables that a file may hold and that we work out ourselves. */
static const char *const harmless[] = {"rope_freqs.weight",
                                       "rope_factors_long.weight",
                                       "rope_factors_short.weight",
                                       "rope.freqs",
                                       "blk.%u.attn_rot_embd.weight",
                                       "blk.%u.attention.rotary_emb.inv_freq",
                                       LAYER("self_attn.rotary_emb.inv_freq"),
                                       NULL};

static const char *pattern_of(const struct model_config *config, enum tensor_role role)
{
    if (config->from_gguf)
        return gguf_names[role];
    if (config->naming == EXPERTS_MIXTRAL && mixtral_names[role] != NULL)
        return mixtral_names[role];
    if (config->naming == EXPERTS_QWEN2 && qwen2_moe_names[role] != NULL)
        return qwen2_moe_names[role];
    /* "post attention" says where it stands: with one pair of norms it is the FFN's own. */
    if (role == TENSOR_FFN_NORM && !model_has(config, MODEL_POST_NORM))
        return hf_names[TENSOR_POST_ATTENTION_NORM];
    return hf_names[role];
}

bool tensor_name(const struct model_config *config, enum tensor_role role, uint32_t layer,
                 uint32_t expert, char text[TENSOR_NAME_MAX])
{
    const char *pattern = pattern_of(config, role);
    if (pattern == NULL)
        return false;
    (void)snprintf(text, TENSOR_NAME_MAX, pattern, layer, expert);
    return true;
}

static bool attention_uses(const struct model_config *config, enum tensor_role role)
{
    bool latent = model_has(config, MODEL_LATENT), fused = model_has(config, MODEL_FUSED_QKV);
    bool bias = model_has(config, MODEL_QKV_BIAS), low = latent && config->latent.q_rank > 0;
    switch (role) {
    case TENSOR_Q:
        return !fused && !low;
    case TENSOR_K:
    case TENSOR_V:
        return !fused && !latent;
    case TENSOR_QKV:
        return fused;
    case TENSOR_Q_BIAS:
    case TENSOR_K_BIAS:
    case TENSOR_V_BIAS:
        return bias && !fused;
    case TENSOR_QKV_BIAS:
        return bias && fused;
    case TENSOR_OUTPUT:
        return true;
    case TENSOR_OUTPUT_BIAS:
        return model_has(config, MODEL_OUTPUT_BIAS);
    case TENSOR_Q_NORM:
    case TENSOR_K_NORM:
        return model_has(config, MODEL_QK_NORM | MODEL_QK_NORM_ALL | MODEL_QK_NORM_OWN);
    case TENSOR_Q_A:
    case TENSOR_Q_A_NORM:
    case TENSOR_Q_B:
        return low;
    case TENSOR_KV_A:
    case TENSOR_KV_A_NORM:
        return latent;
    case TENSOR_KV_B:
        return latent && !model_has(config, MODEL_SPLIT_KV_B);
    case TENSOR_K_B:
    case TENSOR_V_B:
        return latent && model_has(config, MODEL_SPLIT_KV_B);
    default:
        return false;
    }
}

static bool ffn_uses(const struct model_config *config, enum tensor_role role, bool experts)
{
    bool fused = model_has(config, MODEL_FUSED_GATE_UP);
    bool bias = model_has(config, MODEL_FFN_BIAS);
    switch (role) {
    case TENSOR_GATE:
    case TENSOR_UP:
        return !experts && !fused;
    case TENSOR_GATE_UP:
        return !experts && fused;
    case TENSOR_DOWN:
        return !experts;
    case TENSOR_GATE_BIAS:
    case TENSOR_UP_BIAS:
    case TENSOR_DOWN_BIAS:
        return !experts && bias;
    case TENSOR_ROUTER_BIAS:
        return experts && config->experts.biased;
    case TENSOR_SHARED_GATE:
    case TENSOR_SHARED_UP:
    case TENSOR_SHARED_DOWN:
        return experts && config->experts.shared_ffn > 0;
    case TENSOR_SHARED_ROUTER:
        return experts && model_has(config, MODEL_SHARED_GATE);
    case TENSOR_ROUTER:
    case TENSOR_EXPERT_GATE:
    case TENSOR_EXPERT_UP:
    case TENSOR_EXPERT_DOWN:
        return experts;
    default:
        return false;
    }
}

bool tensor_is_used(const struct model_config *config, enum tensor_role role, uint32_t layer)
{
    switch (role) {
    case TENSOR_EMBEDDING:
    case TENSOR_FINAL_NORM:
        return true;
    case TENSOR_HEAD:
        return !model_has(config, MODEL_TIED);
    case TENSOR_ATTENTION_NORM:
        return model_has(config, MODEL_PRE_NORM);
    case TENSOR_FFN_NORM:
        return model_has(config, MODEL_PRE_NORM) && !model_has(config, MODEL_PARALLEL);
    case TENSOR_POST_ATTENTION_NORM:
    case TENSOR_POST_FFN_NORM:
        return model_has(config, MODEL_POST_NORM);
    default:
        return attention_uses(config, role) ||
               ffn_uses(config, role, (config->layer_kinds[layer] & LAYER_EXPERTS) != 0);
    }
}

/* Numbers between dots become "%u"; false: more than two, or none that fits 32 bits. */
static bool canonical(struct gguf_string name, char ret_text[TENSOR_NAME_MAX], uint32_t numbers[2])
{
    size_t out = 0;
    unsigned found = 0;
    for (size_t i = 0; i < name.bytes;) {
        size_t digits = 0;
        bool dot = i > 0 && name.text[i - 1] == '.';
        uint64_t value = 0;
        for (; dot && i + digits < name.bytes && digits < 9 && name.text[i + digits] >= '0' &&
               name.text[i + digits] <= '9';
             digits++)
            value = value * 10 + (uint64_t)(name.text[i + digits] - '0');
        if (out + 3 >= TENSOR_NAME_MAX)
            return false;
        if (digits > 0 && (i + digits == name.bytes || name.text[i + digits] == '.')) {
            if (found == 2)
                return false;
            numbers[found++] = (uint32_t)value;
            memcpy(ret_text + out, "%u", 2);
            out += 2;
            i += digits;
        } else {
            ret_text[out++] = name.text[i++];
        }
    }
    ret_text[out] = '\0';
    return true;
}

/* "X.weight_scale" -> "X.weight": what belongs to a matrix of fp8 is known where the matrix is. */
static void cut_scale(char *text)
{
    static const char *const ends[] = {".weight_scale_inv", ".weight_scale", ".input_scale"};
    size_t bytes = strlen(text);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t end = strlen(ends[i]);
        if (bytes > end && strcmp(text + bytes - end, ends[i]) == 0) {
            (void)snprintf(text + bytes - end, end + 1, ".weight");
            return;
        }
    }
}

static bool is_known(const struct model_config *config, struct gguf_string name)
{
    char text[TENSOR_NAME_MAX];
    uint32_t numbers[2] = {0, 0};
    if (!canonical(name, text, numbers))
        return false;
    if (!config->from_gguf)
        cut_scale(text);
    bool layered = strstr(text, "%u") != NULL;
    if (layered && numbers[0] >= config->layers)
        return !config->from_gguf && model_has(config, MODEL_LATENT); /* predicts further tokens */
    for (size_t i = 0; harmless[i] != NULL; i++) {
        if (strcmp(harmless[i], text) == 0)
            return true;
    }
    for (unsigned role = 0; role < TENSOR_ROLES; role++) {
        const char *pattern = pattern_of(config, role);
        bool tied_head = role == TENSOR_HEAD; /* a copy of the embedding is often stored */
        if (pattern != NULL && strcmp(pattern, text) == 0 &&
            (tied_head || tensor_is_used(config, role, numbers[0])))
            return numbers[1] < (config->experts.count > 0 ? config->experts.count : 1);
    }
    return false;
}

int tensor_refuse_unknown(const struct model_source *source, const struct model_config *config,
                          struct errmsg *err)
{
    for (size_t i = 0; i < model_source_count(source); i++) {
        char text[MODEL_NAME_MAX], shown[96];
        bool other = false;
        struct gguf_string name =
            model_source_plain_name(source, model_source_at(source, i).name, text, &other);
        if (other || is_known(config, name))
            continue;
        (void)snprintf(shown, sizeof(shown), "%.*s", (int)name.bytes, name.text);
        for (char *at = shown; *at != '\0'; at++)
            *at = (char)(*at >= 0x20 && *at < 0x7f ? *at : '?');
        return errmsg_set(err, -ENOTSUP,
                          "tensor '%s' has no place in a %s model as this build runs it", shown,
                          config->architecture);
    }
    return 0;
}
