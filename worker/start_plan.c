/* start_plan.c - flags and files to facts, facts to a plan, the plan to words.
 *
 * Why bytes as the files store them stand for the weights: they are known before anything is read,
 * and what is packed of them differs by some percent (K-quants: a tenth more). A mapped file, a
 * folder of shards and a split GGUF count alike. */
#include "worker/start_plan.h"

#include <stdio.h>

#include "proto/base/assert.h"
#include "worker/engine/engine.h"
#include "worker/info.h"

static uint64_t weights_bytes(const struct model_source *source)
{
    char plain[MODEL_NAME_MAX];
    uint64_t bytes = 0;

    for (size_t i = 0; i < model_source_count(source); i++) {
        const struct model_entry entry = model_source_at(source, i);
        bool other = false;
        (void)model_source_plain_name(source, entry.name, plain, &other);
        bytes += other ? 0 : entry.bytes; /* images' part is not loaded */
    }
    return bytes;
}

struct start_facts start_facts_of(const struct worker_settings *settings,
                                  const struct rank_model *model)
{
    return (struct start_facts){
        .pool = {settings->kv_bytes, rank_model_block_bytes(model), settings->context_tokens,
                 model->config.context_tokens, settings->sequences_max,
                 rank_model_window_block_bytes(model), model->groups.window,
                 settings->step_tokens_max},
        .step_tokens_max = settings->step_tokens_max,
        .ranks = model->shard.ranks,
        .tier_bytes = worker_settings_tier_bytes(settings),
        .weights_bytes = weights_bytes(model->source),
        .logits_bytes = engine_logits_bytes(settings->sequences_max, &model->config) +
                        engine_samplers_bytes(model),
        .adapter_bytes =
            settings->lora ? rank_model_adapter_bytes(model, worker_lora_limits(settings)) : 0,
    };
}

int start_plan_make(const struct worker_settings *settings, const struct rank_model *model,
                    const struct start_facts *facts, struct start_plan *ret_plan,
                    struct errmsg *err)
{
    struct start_plan plan;
    int r = start_checks_run(facts, &plan, err);

    if (r == 0 && settings->disk_tier_path != NULL) {
        struct worker_info info = {.settings = settings,
                                   .model = model,
                                   .pool = plan.pool,
                                   .step_tokens_max = plan.step_tokens_max};
        worker_disk_path(settings, info.disk_path);
        const struct rank_limits limits = worker_info_limits(&info);
        r = rank_model_check_disk(model, &limits, err);
    }
    if (r == 0)
        *ret_plan = plan;
    return r;
}

void start_plan_text(const struct start_facts *facts, const struct start_plan *plan,
                     char ret_text[START_PLAN_TEXT_MAX])
{
    uint64_t blocks = facts->pool.block_bytes > 0 ? plan->pool.blocks : 0;
    uint64_t pool = blocks * facts->pool.block_bytes +
                    (uint64_t)plan->pool.window_blocks * facts->pool.window_block_bytes;
    int length =
        snprintf(ret_text, START_PLAN_TEXT_MAX,
                 "blocks=%llu window_blocks=%u max_model_len=%u sequences_at_full_length=%u "
                 "step_tokens=%u ranks=%u kv_bytes=%llu tier_bytes=%llu weights_bytes=%llu "
                 "logits_bytes=%llu adapter_bytes=%llu group_bytes=%llu",
                 (unsigned long long)blocks, plan->pool.window_blocks, plan->pool.context_tokens,
                 plan->pool.sequences_at_full_context, plan->step_tokens_max, facts->ranks,
                 (unsigned long long)pool * facts->ranks,
                 (unsigned long long)facts->tier_bytes * facts->ranks,
                 (unsigned long long)facts->weights_bytes, (unsigned long long)facts->logits_bytes,
                 (unsigned long long)facts->adapter_bytes, (unsigned long long)plan->bytes);

    ASSERT(length > 0 && (unsigned)length < START_PLAN_TEXT_MAX);
}
