/* architectures.h - the table of architectures: one row says how one differs from the plain one. */
#ifndef REFRAIN_WORKER_LOAD_ARCHITECTURES_H
#define REFRAIN_WORKER_LOAD_ARCHITECTURES_H

#include "worker/load/model_config.h"

/* Which layers slide, where the file does not list it: layer i does unless (i + 1) % every == 0. */
#define SLIDE_NONE 0u
#define SLIDE_ALL UINT32_MAX
#define NO_ROPE_FULL UINT32_MAX /* those that do not slide */

enum expert_naming {                  /* of tensors in a Hugging Face folder */
                     EXPERTS_MLP = 0, /* mlp.experts.N.gate_proj */
                     EXPERTS_MIXTRAL, /* block_sparse_moe.experts.N.w1 */
                     EXPERTS_QWEN2,   /* as the first; mlp.shared_expert.gate_proj with a gate */
};

struct architecture {
    const char *name;     /* ours, and GGUF's where `gguf` is set */
    const char *hf_class; /* "LlamaForCausalLM"; NULL: only in GGUF */
    bool gguf;
    uint32_t features;      /* in both formats, unless the file shows them itself */
    uint32_t gguf_features; /* in GGUF besides */
    uint32_t hf_features;   /* in a Hugging Face folder besides */
    uint32_t slide_every;
    uint32_t no_rope_every; /* layer i does not rotate if (i + 1) % every == 0; 0: all do */
    float logit_factor;     /* 0, or logit_scale is a factor, and this where no file has it */
    enum expert_naming naming;
    /* Of a model that sees images too: the object of config.json that is about text, and what is
     * meant where that is silent (JSON). NULL: config.json itself is about text. */
    const char *hf_text, *hf_defaults;
    /* Numbers that this one computes in a way of its own; NULL: none. */
    void (*finish)(struct model_config *config);
};

/* NULL: not supported. */
const struct architecture *architecture_of_gguf(const char *name, size_t bytes);
const struct architecture *architecture_of_hf(const char *class_name);
/* Into text: names of what can be run, or as many as fit within text_max (>=
 * ARCHITECTURE_LIST_MIN): "llama, qwen2, 9 more". Names are never cut, save that those of Hugging
 * Face stand without ARCHITECTURE_HF_SUFFIX where they end in it. */
#define ARCHITECTURE_HF_SUFFIX "ForCausalLM"
#define ARCHITECTURE_LIST_MIN 64u
void architecture_list(bool gguf, char *text, size_t text_max);
/* By its name: an encoder, or an encoder with a decoder. Those keep no KV from one turn to the
 * next. */
bool architecture_is_encoder(const char *name, size_t bytes);

#endif
