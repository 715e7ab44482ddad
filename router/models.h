/* models.h - the models that the workers brought: tokenizer and template, made once per card.
 *
 * A model whose last worker is gone stays known (its worker usually comes back, and clients are
 * told 503 instead of 404) until its place is needed. Counted: a request holds its model while it
 * is answered. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_MODELS_H
#define REFRAIN_ROUTER_MODELS_H

#include "proto/base/list.h"
#include "proto/base/metrics.h"
#include "router/answer_formats.h"
#include "router/api/prompt.h"
#include "router/worker_links.h"

#define MODELS_MAX 320u /* of 64 workers, and their adapters */

struct served_model {
    struct list link;
    uint32_t refs;
    bool live; /* has a worker */
    /* A LoRA adapter: everything but its name is its base model's. */
    struct served_model *parent; /* NULL: a model of its own */
    char *adapter, *adapter_key, *adapter_path;
    struct model_card *card;
    struct prompt_maker maker; /* tokenizer NULL: see broken */
    struct chat_template *chat_template, *tool_template;
    struct answer_formats answers;
    struct metrics *metrics;  /* over vllm_request_specs; an adapter's: its parent's */
    uint64_t created_s;       /* unix */
    char broken[ERRMSG_MAX];  /* why nothing of it can be served, or "" */
    char no_chat[ERRMSG_MAX]; /* why its template cannot be used, or "" */
};

struct models;

struct models_settings {
    const char *template_path; /* a file that replaces every model's own template, or NULL */
    struct text_cache *cache;  /* of all models together; outlives them */
    bool turn_memory;
    struct answer_settings answers; /* checked; the texts must outlive the models */
    bool trust_request_templates;   /* requests may bring their own template */
};

/* -EINVAL, -ENOENT: the template. */
int models_new(const struct models_settings *settings, struct models **ret_models,
               struct errmsg *err);
void models_free(struct models *models);

/* A worker brought this card. Never fails: a model that cannot be used says so when asked for. */
void models_add(struct models *models, struct model_card *card);
void models_gone(struct models *models, const char *name);
/* Workers have this adapter of a model that is here. */
void models_add_adapter(struct models *models, const struct links_adapter *adapter);
/* No worker has it. forgotten: its name is free; else it comes back with them. */
void models_adapter_gone(struct models *models, const char *name, bool forgotten);
/* What clients call it. */
static inline const char *served_model_name(const struct served_model *model)
{
    return model->adapter ? model->adapter : model->card->name;
}

/* NULL name: the only live model, adapters not counted, if there is exactly one. NULL: none. */
struct served_model *models_find(const struct models *models, const char *name);
/* What makes the request's prompt: the model's maker, with the request's own template if it has
 * one. That one is good until the next call. -EINVAL: templates of requests are not trusted, or
 * this one does not compile; *error is filled. */
int models_maker(struct models *models, const struct served_model *model,
                 const struct api_request *request, struct prompt_maker *ret_maker,
                 struct api_error *error);
struct list *models_list(struct models *models);
/* Prometheus text of all models' own metrics. */
void models_write_metrics(const struct models *models, struct buffer *out);
size_t models_live(const struct models *models); /* without adapters */
struct served_model *served_model_ref(struct served_model *model);
void served_model_unref(struct served_model *model);

#endif
