/* models.c - card -> tokenizer and template; which models are there now. */
#define LOG_MODULE "models"
#include "router/models.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/vllm_metrics.h"
#include "router/template_cache.h"

#define LABELS_BYTES_MAX 4096u

struct models {
    struct list list; /* struct served_model */
    uint32_t count;
    struct text_cache *cache;
    bool turn_memory;
    uint64_t last_tokenizer_id;
    struct answer_settings answers;
    char *template_text; /* NULL: each model's own */
    size_t template_bytes;
    bool trust_request_templates;
    struct template_cache *request_templates;
};

static int read_template(const char *path, struct models *models, struct errmsg *err)
{
    struct chat_template *compiled = NULL;
    FILE *file = fopen(path, "re");
    if (!file)
        return errmsg_errno(err, "--chat-template: open '%s'", path);
    models->template_text = mem_alloc(CHAT_TEMPLATE_SOURCE_MAX + 1);
    models->template_bytes = fread(models->template_text, 1, CHAT_TEMPLATE_SOURCE_MAX + 1, file);
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    if (failed)
        return errmsg_set(err, -EIO, "--chat-template: cannot read '%s'", path);
    if (models->template_bytes > CHAT_TEMPLATE_SOURCE_MAX)
        return errmsg_set(err, -E2BIG, "--chat-template: '%s' has more than %u bytes", path,
                          CHAT_TEMPLATE_SOURCE_MAX);
    int r = chat_template_new(models->template_text, models->template_bytes, &compiled, err);
    if (r < 0)
        return errmsg_prefix(err, r, "--chat-template: '%s'", path);
    chat_template_free(compiled);
    return 0;
}

int models_new(const struct models_settings *settings, struct models **ret_models,
               struct errmsg *err)
{
    struct models *models = mem_zalloc(sizeof(*models));
    list_init(&models->list);
    models->cache = settings->cache;
    models->turn_memory = settings->turn_memory;
    models->answers = settings->answers;
    models->trust_request_templates = settings->trust_request_templates;
    models->request_templates = template_cache_new();
    int r = settings->template_path ? read_template(settings->template_path, models, err) : 0;
    if (r < 0) {
        models_free(models);
        return r;
    }
    *ret_models = models;
    return 0;
}

void models_free(struct models *models)
{
    struct list *item;
    if (!models)
        return;
    while ((item = list_pop_front(&models->list)))
        served_model_unref(LIST_ENTRY(item, struct served_model, link));
    mem_free(models->template_text);
    template_cache_free(models->request_templates);
    mem_free(models);
}

struct served_model *served_model_ref(struct served_model *model)
{
    ASSERT(model->refs > 0);
    model->refs++;
    return model;
}

void served_model_unref(struct served_model *model)
{
    ASSERT(model->refs > 0);
    if (--model->refs > 0)
        return;
    if (model->parent) {
        served_model_unref(model->parent);
    } else {
        metrics_free(model->metrics);
        chat_template_free(model->chat_template);
        chat_template_free(model->tool_template);
        tokenizer_free(model->maker.tokenizer);
        model_card_unref(model->card);
    }
    mem_free(model->adapter);
    mem_free(model->adapter_key);
    mem_free(model->adapter_path);
    mem_free(model);
}

static void models_remove(struct models *models, struct served_model *model)
{
    list_remove(&model->link);
    models->count--;
    served_model_unref(model);
}

static void make_template(const struct models *models, struct served_model *model)
{
    const char *text = models->template_text;
    size_t bytes = models->template_bytes;
    const char *tools = text ? NULL : model->card->tool_template;
    struct errmsg err;

    if (!text && model->card->chat_template) {
        text = model->card->chat_template;
        bytes = strlen(text);
    }
    if (model->maker.tokenizer)
        answer_formats_pick(&models->answers, model->maker.tokenizer, tools ? tools : text,
                            tools ? strlen(tools) : bytes, &model->answers);
    if (tools && chat_template_new(tools, strlen(tools), &model->tool_template, &err) < 0) {
        (void)snprintf(model->no_chat, sizeof(model->no_chat), "%s", err.text);
        log_error("template_refused", "model=\"%s\" which=tool_use error=\"%s\"", model->card->name,
                  err.text);
    }
    model->maker.tool_template = model->tool_template;
    if (!text)
        return;
    if (chat_template_new(text, bytes, &model->chat_template, &err) < 0) {
        (void)snprintf(model->no_chat, sizeof(model->no_chat), "%s", err.text);
        log_error("template_refused", "model=\"%s\" error=\"%s\"", model->card->name, err.text);
    }
    model->maker.chat_template = model->chat_template;
}

static struct served_model *make_model(struct models *models, struct model_card *card)
{
    struct served_model *model = mem_zalloc(sizeof(*model));
    struct errmsg err;
    uint64_t began = clock_ns();

    model->refs = 1;
    model->card = model_card_ref(card);
    model->created_s = clock_unix_s();
    model->metrics = metrics_new(vllm_request_specs, VLLM_REQUEST_METRICS);
    if (tokenizer_new(card, &model->maker.tokenizer, &err) < 0) {
        model->maker.tokenizer = NULL;
        (void)snprintf(model->broken, sizeof(model->broken), "%s", err.text);
        log_error("tokenizer_refused", "model=\"%s\" error=\"%s\"", card->name, err.text);
    }
    model->maker.tokenizer_id = ++models->last_tokenizer_id;
    model->maker.cache = models->cache;
    model->maker.turn_memory = models->turn_memory;
    model->maker.token_bytes_max = prompt_token_bytes_max(card);
    make_template(models, model);
    log_info("model",
             "model=\"%s\" fingerprint=%s vocab=%u context=%u reasoning=%s tool_calls=%s "
             "made_ms=%.1f",
             card->name, card->fingerprint, card->vocab_size, card->context_tokens,
             model->answers.reasoning ? model->answers.reasoning->name : "none",
             model->answers.tools ? model->answers.tools->name : "none",
             (double)(clock_ns() - began) / 1e6);
    return model;
}

static void make_room(struct models *models)
{
    for (struct list *item = models->list.next; models->count >= MODELS_MAX;) {
        struct served_model *old = LIST_ENTRY(item, struct served_model, link);
        ASSERT(item != &models->list); /* at most as many live models as links */
        item = item->next;
        if (!old->live)
            models_remove(models, old);
    }
}

static void add(struct models *models, struct served_model *model)
{
    model->live = true;
    list_push_back(&models->list, &model->link);
    models->count++;
}

void models_add(struct models *models, struct model_card *card)
{
    struct served_model *model = models_find(models, card->name);

    if (model && !model->parent && strcmp(model->card->fingerprint, card->fingerprint) == 0) {
        model->live = true;
        return;
    }
    if (model)
        models_remove(models, model);
    make_room(models);
    add(models, make_model(models, card));
}

/* Turn memory of its own: what an adapter wrote is no prefix of its base's chats. */
static struct served_model *make_adapter(struct models *models, struct served_model *parent,
                                         const struct links_adapter *adapter)
{
    struct served_model *model = mem_alloc(sizeof(*model));

    *model = *parent;
    model->refs = 1;
    model->parent = served_model_ref(parent);
    model->adapter = mem_strdup(adapter->name);
    model->adapter_key = mem_strdup(adapter->key);
    model->adapter_path = mem_strdup(adapter->path);
    model->created_s = clock_unix_s();
    model->maker.tokenizer_id = ++models->last_tokenizer_id;
    log_info("adapter", "model=\"%s\" parent=\"%s\" key=%s", adapter->name, adapter->base,
             adapter->key);
    return model;
}

void models_add_adapter(struct models *models, const struct links_adapter *adapter)
{
    struct served_model *parent = models_find(models, adapter->base);
    struct served_model *model = models_find(models, adapter->name);

    ASSERT(parent && !parent->parent && parent->live);
    if (model && model->parent == parent && strcmp(model->adapter_key, adapter->key) == 0) {
        model->live = true;
        return;
    }
    if (model)
        models_remove(models, model);
    make_room(models);
    add(models, make_adapter(models, parent, adapter));
}

void models_adapter_gone(struct models *models, const char *name, bool forgotten)
{
    struct served_model *model = models_find(models, name);

    if (!model || !model->parent)
        return;
    model->live = false;
    if (forgotten)
        models_remove(models, model);
}

void models_gone(struct models *models, const char *name)
{
    struct served_model *model = models_find(models, name);
    ASSERT(model && model->live);
    model->live = false;
    log_warn("model_gone", "model=\"%s\" why=\"its last worker is gone\"", name);
}

struct served_model *models_find(const struct models *models, const char *name)
{
    if (!name && models_live(models) != 1)
        return NULL;
    LIST_FOR(item, &models->list)
    {
        struct served_model *model = LIST_ENTRY(item, struct served_model, link);
        if (name ? strcmp(served_model_name(model), name) == 0 : model->live && !model->parent)
            return model;
    }
    return NULL;
}

int models_maker(struct models *models, const struct served_model *model,
                 const struct api_request *request, struct prompt_maker *ret_maker,
                 struct api_error *error)
{
    struct prompt_maker maker = model->maker;
    struct errmsg err;

    if (request->chat_template && !models->trust_request_templates)
        return api_error_bad(error, "chat_template",
                             "Chat template is passed with request, but "
                             "--trust-request-chat-template is not set. Refused request with "
                             "untrusted chat template.");
    if (request->chat_template_bytes > 0 &&
        template_cache_get(models->request_templates, request->chat_template,
                           request->chat_template_bytes, &maker.chat_template, &err) < 0)
        return api_error_bad(error, "chat_template", "'chat_template': %s.", err.text);
    if (request->chat_template_bytes > 0)
        maker.tool_template = NULL; /* the client's is for all its chats */
    *ret_maker = maker;
    return 0;
}

struct list *models_list(struct models *models)
{
    return &models->list;
}

size_t models_live(const struct models *models)
{
    size_t count = 0;
    LIST_FOR(item, &models->list)
    {
        const struct served_model *model = LIST_ENTRY(item, struct served_model, link);
        count += model->live && !model->parent;
    }
    return count;
}

void models_write_metrics(const struct models *models, struct buffer *out)
{
    struct buffer labels;

    buffer_init(&labels, LABELS_BYTES_MAX);
    for (size_t id = 0; id < VLLM_REQUEST_METRICS && models->count > 0; id++) {
        metrics_write_header(&vllm_request_specs[id], out);
        LIST_FOR(item, &models->list)
        {
            const struct served_model *model = LIST_ENTRY(item, struct served_model, link);
            if (model->parent)
                continue;
            buffer_clear(&labels);
            buffer_append_text(&labels, "model_name=\"");
            metrics_append_label(&labels, model->card->name);
            buffer_append_char(&labels, '"');
            ASSERT(buffer_finish(&labels) == 0); /* a card's name is bounded */
            metrics_write_samples(model->metrics, id, labels.data, out);
        }
    }
    buffer_done(&labels);
}
