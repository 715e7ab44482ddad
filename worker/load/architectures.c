/* architectures.c - one row per architecture. To add one: a row, and a switch in the decoder where
 * it does something that no row before does.
 *
 * Features that the files themselves show are not in the rows: biases and fused matrices (there is
 * a tensor), a tied head (there is none), experts, windows, caps and multipliers (there is a
 * number). What is in the rows cannot be seen from a file.
 * Rotation: GGUF converters permute q and k of the Llama kin for pairs (2i, 2i + 1). */
#include "worker/load/architectures.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"

#define MORE_BYTES_MAX (sizeof(", 999 more") - 1)
#define LLAMA MODEL_PRE_NORM
#define COHERE (MODEL_PRE_NORM | MODEL_LAYER_NORM | MODEL_PARALLEL | MODEL_INTERLEAVED)
#define GEMMA (MODEL_PRE_NORM | MODEL_POST_NORM | MODEL_GELU)

static void scale_embedding_by_root(struct model_config *config)
{
    config->embedding_scale = sqrtf((float)config->hidden);
}

/* GGUF does not hold what the largest Gemmas divide scores by: hidden / heads. */
static void finish_gemma2(struct model_config *config)
{
    scale_embedding_by_root(config);
    if (config->from_gguf && config->layers == 46)
        config->attention_scale = 1 / sqrtf((float)config->hidden / (float)config->q_heads);
}

static void finish_gemma3(struct model_config *config)
{
    scale_embedding_by_root(config);
    if (config->from_gguf && config->layers == 62)
        config->attention_scale = 1 / sqrtf((float)config->hidden / (float)config->q_heads);
}

static void finish_mixtral(struct model_config *config)
{
    config->experts.normalise = true; /* no file says so */
}

/* Not normalised unless config.json says so; a GGUF cannot. */
static void finish_qwen2_moe(struct model_config *config)
{
    if (config->from_gguf)
        config->experts.normalise = false;
}

static void finish_deepseek_v3(struct model_config *config)
{
    config->experts.sigmoid = true;
    config->experts.group_by_two = true;
    config->experts.biased = true;
}

/* One name for both; the file says how experts are scored. */
static void finish_deepseek2(struct model_config *config)
{
    config->experts.group_by_two = config->experts.sigmoid;
}

static const struct architecture rows[] = {
    {.name = "llama",
     .hf_class = "LlamaForCausalLM",
     .gguf = true,
     .features = LLAMA,
     .gguf_features = MODEL_INTERLEAVED,
     .slide_every = SLIDE_ALL, /* a Mistral's file says "llama" and has a window */
     .naming = EXPERTS_MIXTRAL},
    {.name = "mistral",
     .hf_class = "MistralForCausalLM",
     .features = LLAMA,
     .slide_every = SLIDE_ALL},
    {.name = "mixtral",
     .hf_class = "MixtralForCausalLM",
     .features = LLAMA,
     .slide_every = SLIDE_ALL,
     .naming = EXPERTS_MIXTRAL,
     .finish = finish_mixtral},
    {.name = "qwen2", .hf_class = "Qwen2ForCausalLM", .gguf = true, .features = LLAMA},
    {.name = "qwen3",
     .hf_class = "Qwen3ForCausalLM",
     .gguf = true,
     .features = LLAMA | MODEL_QK_NORM},
    {.name = "qwen2moe",
     .hf_class = "Qwen2MoeForCausalLM",
     .gguf = true,
     .features = LLAMA | MODEL_SHARED_GATE,
     .naming = EXPERTS_QWEN2,
     .finish = finish_qwen2_moe},
    {.name = "qwen3moe",
     .hf_class = "Qwen3MoeForCausalLM",
     .gguf = true,
     .features = LLAMA | MODEL_QK_NORM},
    {.name = "gemma2",
     .hf_class = "Gemma2ForCausalLM",
     .gguf = true,
     .features = GEMMA,
     .hf_features = MODEL_NORM_PLUS_1,
     .slide_every = 2,
     .finish = finish_gemma2},
    {.name = "gemma3",
     .hf_class = "Gemma3ForCausalLM",
     .gguf = true,
     .features = GEMMA | MODEL_QK_NORM,
     .hf_features = MODEL_NORM_PLUS_1,
     .slide_every = 6,
     .finish = finish_gemma3},
    {.name = "gemma3", /* the ones that see images: their text part */
     .hf_class = "Gemma3ForConditionalGeneration",
     .features = GEMMA | MODEL_QK_NORM,
     .hf_features = MODEL_NORM_PLUS_1,
     .slide_every = 6,
     .finish = finish_gemma3,
     .hf_text = "text_config",
     .hf_defaults = "{\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256, "
                    "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6, "
                    "\"rope_theta\": 1e6, \"rope_local_base_freq\": 1e4, "
                    "\"query_pre_attn_scalar\": 256, \"sliding_window\": 4096, "
                    "\"tie_word_embeddings\": true}"},
    {.name = "phi3",
     .hf_class = "Phi3ForCausalLM",
     .gguf = true,
     .features = LLAMA,
     .slide_every = SLIDE_ALL},
    {.name = "olmo2",
     .hf_class = "Olmo2ForCausalLM",
     .gguf = true,
     .features = MODEL_POST_NORM | MODEL_QK_NORM_ALL},
    {.name = "granite",
     .hf_class = "GraniteForCausalLM",
     .gguf = true,
     .features = LLAMA,
     .gguf_features = MODEL_INTERLEAVED},
    {.name = "smollm3",
     .hf_class = "SmolLM3ForCausalLM",
     .gguf = true,
     .features = LLAMA,
     .gguf_features = MODEL_INTERLEAVED,
     .no_rope_every = 4},
    {.name = "command-r",
     .hf_class = "CohereForCausalLM",
     .gguf = true,
     .features = COHERE,
     .logit_factor = 0.0625f},
    {.name = "cohere2",
     .hf_class = "Cohere2ForCausalLM",
     .gguf = true,
     .features = COHERE,
     .slide_every = 4,
     .no_rope_every = NO_ROPE_FULL,
     .logit_factor = 0.0625f},
    {.name = "deepseek_v2",
     .hf_class = "DeepseekV2ForCausalLM",
     .features = LLAMA | MODEL_LATENT | MODEL_INTERLEAVED},
    {.name = "deepseek2", /* V2 and V3 */
     .gguf = true,
     .features = LLAMA | MODEL_LATENT | MODEL_INTERLEAVED,
     .finish = finish_deepseek2},
    {.name = "deepseek_v3",
     .hf_class = "DeepseekV3ForCausalLM",
     .features = LLAMA | MODEL_LATENT | MODEL_INTERLEAVED,
     .finish = finish_deepseek_v3},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

const struct architecture *architecture_of_gguf(const char *name, size_t bytes)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].gguf && strlen(rows[i].name) == bytes && memcmp(rows[i].name, name, bytes) == 0)
            return &rows[i];
    }
    return NULL;
}

const struct architecture *architecture_of_hf(const char *class_name)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].hf_class != NULL && strcmp(rows[i].hf_class, class_name) == 0)
            return &rows[i];
    }
    return NULL;
}

/* What the list says of a row, and its bytes; NULL: nothing. */
static const char *listed(const struct architecture *row, bool gguf, int *ret_bytes)
{
    static const char common[] = ARCHITECTURE_HF_SUFFIX;
    const char *name = gguf ? (row->gguf ? row->name : NULL) : row->hf_class;
    if (name == NULL)
        return NULL;
    size_t bytes = strlen(name), rest = bytes - (sizeof(common) - 1);
    bool cut = !gguf && bytes >= sizeof(common) && strcmp(name + rest, common) == 0;
    *ret_bytes = (int)(cut ? rest : bytes);
    return name;
}

void architecture_list(bool gguf, char *text, size_t text_max)
{
    size_t used = 0, left = 0;
    int bytes = 0;
    ASSERT(text_max >= ARCHITECTURE_LIST_MIN);
    for (size_t i = 0; i < ROWS; i++)
        left += listed(&rows[i], gguf, &bytes) != NULL ? 1 : 0;
    text[0] = '\0';
    for (size_t i = 0; i < ROWS; i++) {
        const char *name = listed(&rows[i], gguf, &bytes), *comma = used > 0 ? ", " : "";
        size_t room = text_max - used - (left > 1 ? MORE_BYTES_MAX : 0);
        if (name == NULL)
            continue;
        if (strlen(comma) + (size_t)bytes >= room) {
            (void)snprintf(text + used, text_max - used, "%s%zu more", comma, left);
            return;
        }
        used += (size_t)snprintf(text + used, text_max - used, "%s%.*s", comma, bytes, name);
        left--;
    }
}

/* Where the name begins or what stands in it, in any case: models that read a whole text at once,
 * alone or in front of a decoder. */
static const char *const encoder_words[] = {"bert",    "t5for",   "t5enc",   "bart",
                                            "whisper", "marian",  "pegasus", "electra",
                                            "encoder", "seq2seq", NULL};

bool architecture_is_encoder(const char *name, size_t bytes)
{
    char lower[64];
    size_t count = bytes < sizeof(lower) - 1 ? bytes : sizeof(lower) - 1;

    for (size_t i = 0; i < count; i++)
        lower[i] = (char)tolower((unsigned char)name[i]);
    lower[count] = '\0';
    for (const char *const *word = encoder_words; *word != NULL; word++)
        if (strstr(lower, *word) != NULL)
            return true;
    return strcmp(lower, "t5") == 0;
}
