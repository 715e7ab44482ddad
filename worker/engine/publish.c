/* publish.c - what a step made, into output buffers, metrics and the status for other threads.
 *
 * Order within a step: changes of the block index first, then the tokens. The router then knows
 * which blocks an answer left behind before it hears that the answer ended. */
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#define LOG_MODULE "engine"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/worker_metrics.h"
#include "worker/engine/engine_private.h"

static const enum worker_metric_finish finish_labels[] = {
    [SEQ_FINISH_STOP] = WM_FINISH_STOP,           [SEQ_FINISH_LENGTH] = WM_FINISH_LENGTH,
    [SEQ_FINISH_CANCELLED] = WM_FINISH_CANCELLED, [SEQ_FINISH_DEADLINE] = WM_FINISH_DEADLINE,
    [SEQ_FINISH_ERROR] = WM_FINISH_ERROR,         [SEQ_FINISH_REPETITION] = WM_FINISH_REPETITION,
};
static const char *const finish_names[] = {"none",     "stop",  "length",    "cancelled",
                                           "deadline", "error", "repetition"};

static void push_items(struct engine *engine)
{
    struct output *output = engine->open;
    if (output == NULL)
        return;
    engine->open = NULL;
    output->step = engine->steps;
    outbox_push(engine->outbox, output);
}

struct output_item *engine_add_item(struct engine *engine, uint32_t router, const char *request_id)
{
    if (engine->open != NULL && engine->open->items_count == engine->open->items_max) {
        kv_events_flush(&engine->kv_events);
        push_items(engine);
    }
    if (engine->open == NULL)
        engine->open = outbox_take(engine->outbox, OUTPUT_STEP);
    struct output_item *item = &engine->open->items[engine->open->items_count++];
    *item = (struct output_item){.router = router, .logprobs = -1, .miss = ""};
    (void)snprintf(item->request_id, sizeof(item->request_id), "%s", request_id);
    return item;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns < from_ns ? 0 : (double)(to_ns - from_ns) * 1e-9;
}

static void tell_first(struct engine *engine, const struct sequence *seq, struct output_item *item,
                       uint64_t now_ns)
{
    struct metrics *metrics = engine->settings.metrics;
    uint64_t first_ns = seq->first_token_ns != 0 ? seq->first_token_ns : now_ns;
    item->first = true;
    item->cached_tokens = seq->cached_tokens;
    item->computed_tokens = seq->prompt_tokens - seq->cached_tokens;
    item->cached_host_tokens = seq->cached_host_tokens;
    item->cached_disk_tokens = seq->cached_disk_tokens;
    item->queue_seconds =
        seconds_between(seq->params.arrival_ns + seq->load_wait_ns, seq->scheduled_ns);
    item->load_seconds = (double)(seq->load_wait_ns + seq->load_copy_ns) * 1e-9;
    item->prefill_seconds = seconds_between(seq->scheduled_ns + seq->load_copy_ns, first_ns);
    if (seq->cached_host_tokens + seq->cached_disk_tokens > 0 || seq->load_wait_ns > 0)
        metrics_observe(metrics, WM_TIER_LOAD_SECONDS, 0, item->load_seconds);
    item->miss = seq->miss != NULL ? seq->miss : "";
    metrics_observe(metrics, WM_QUEUE_SECONDS, 0, item->queue_seconds);
    metrics_observe(metrics, WM_PREFILL_SECONDS, 0, item->prefill_seconds);
    metrics_observe(metrics, WM_TTFT_SECONDS, 0,
                    item->queue_seconds + item->load_seconds + item->prefill_seconds);
}

static void tell_token(struct engine *engine, const struct commit_item *commit,
                       struct output_item *item, uint64_t now_ns)
{
    struct output *output = engine->open;
    struct request *request = commit->sequence->params.owner;
    if (request->told_ns != 0)
        metrics_observe(engine->settings.metrics, WM_GAP_SECONDS, 0,
                        seconds_between(request->told_ns, now_ns));
    request->told_ns = now_ns;
    item->has_token = true;
    item->id = commit->token.id;
    if (commit->sequence->params.sampling.logprobs == 0)
        return;
    ASSERT(output->logprobs_count < output->logprobs_max);
    item->logprobs = (int32_t)output->logprobs_count;
    output->logprobs[output->logprobs_count++] = commit->token;
}

/* What is known of a request only when it ends. */
static void observe_end(struct engine *engine, const struct sequence *seq, uint64_t now_ns)
{
    struct metrics *metrics = engine->settings.metrics;
    uint32_t generated = sequence_output_tokens(seq);
    double decode = seconds_between(seq->first_token_ns, now_ns);

    metrics_observe(metrics, WM_REQUEST_SECONDS, 0,
                    seconds_between(seq->params.arrival_ns, now_ns));
    metrics_observe(metrics, WM_REQUEST_PROMPT_TOKENS, 0, seq->prompt_tokens);
    metrics_observe(metrics, WM_REQUEST_GENERATED_TOKENS, 0, generated);
    metrics_observe(metrics, WM_REQUEST_MAX_TOKENS, 0, seq->params.tokens_max);
    if (generated == 0) /* it never had a first token */
        return;
    metrics_observe(metrics, WM_REQUEST_COMPUTED_TOKENS, 0,
                    seq->prompt_tokens - seq->cached_tokens);
    metrics_observe(metrics, WM_INFERENCE_SECONDS, 0, seconds_between(seq->scheduled_ns, now_ns));
    metrics_observe(metrics, WM_DECODE_SECONDS, 0, decode);
    if (generated > 1)
        metrics_observe(metrics, WM_TOKEN_SECONDS, 0, decode / (generated - 1));
}

static void tell_finish(struct engine *engine, const struct commit_item *commit,
                        struct output_item *item, uint64_t now_ns)
{
    struct request *request = commit->sequence->params.owner;
    item->finish = commit->finish;
    if (commit->finish == SEQ_FINISH_ERROR) {
        item->error_code = request->error_code != 0 ? request->error_code : 500;
        (void)snprintf(item->error_text, sizeof(item->error_text), "%s",
                       request->error_text != NULL ? request->error_text : "internal error");
    }
    metrics_add(engine->settings.metrics, WM_REQUESTS, finish_labels[commit->finish], 1);
    observe_end(engine, commit->sequence, now_ns);
    log_debug("finished", "req=%s why=%s tokens=%u", request->id, finish_names[commit->finish],
              sequence_output_tokens(commit->sequence));
    requests_remove(engine->requests, request);
    scheduler_release(engine->scheduler, commit->sequence);
}

void engine_publish_scores(struct engine *engine, const struct step_plan *plan)
{
    const struct sample_result *scores = engine->scores;

    for (uint32_t s = 0; s < plan->entries_count; s++) {
        const struct plan_entry *entry = &plan->entries[s];
        const struct sequence *seq = entry->sequence;
        const struct request *request = seq->params.owner;
        uint32_t count = entry->score_rows;
        scores += count;
        if (count == 0 || seq->finish != SEQ_FINISH_NONE)
            continue;
        struct output_item *item = engine_add_item(engine, request->router, request->id);
        struct output *output = engine->open;
        ASSERT(output->logprobs_count + count <= output->logprobs_max);
        item->scores = output->logprobs_count;
        item->scores_count = count;
        item->scores_from = seq->scored + 1;
        memcpy(output->logprobs + output->logprobs_count, scores - count, count * sizeof(*scores));
        output->logprobs_count += count;
    }
}

void engine_publish_commit(struct engine *engine, uint32_t items_count, uint64_t now_ns)
{
    for (uint32_t i = 0; i < items_count; i++) {
        const struct commit_item *commit = &engine->commit_items[i];
        const struct request *request = commit->sequence->params.owner;
        struct output_item *item = engine_add_item(engine, request->router, request->id);
        if (commit->first)
            tell_first(engine, commit->sequence, item, now_ns);
        if (commit->has_token)
            tell_token(engine, commit, item, now_ns);
        if (commit->finish != SEQ_FINISH_NONE)
            tell_finish(engine, commit, item, now_ns);
    }
}

void engine_flush(struct engine *engine)
{
    kv_events_flush(&engine->kv_events);
    push_items(engine);
}

void engine_answer(struct engine *engine, uint32_t client, char *text)
{
    struct output *output = outbox_take(engine->outbox, OUTPUT_ANSWER);
    output->client = client;
    output->text = text;
    outbox_push(engine->outbox, output);
}

/* Totals of scheduler and pool into counters, by what they rose. */
static void count_up(struct engine *engine, const struct scheduler_counts *now,
                     const struct block_counts *blocks)
{
    struct metrics *metrics = engine->settings.metrics;
    const struct scheduler_counts *then = &engine->counted;
    const struct block_counts *blocks_then = &engine->counted_blocks;
    uint64_t prompt = now->prompt_tokens_total - then->prompt_tokens_total;
    uint64_t cached = now->cached_tokens_total - then->cached_tokens_total;
    ASSERT(cached <= prompt);
    metrics_add(metrics, WM_PROMPT_TOKENS, 0, (double)prompt);
    metrics_add(metrics, WM_CACHED_TOKENS, 0, (double)cached);
    engine_count_cached(engine, now, then);
    metrics_add(metrics, WM_COMPUTED_TOKENS, 0, (double)(prompt - cached));
    metrics_add(metrics, WM_GENERATED_TOKENS, 0,
                (double)(now->generated_tokens_total - then->generated_tokens_total));
    metrics_add(metrics, WM_PREEMPTIONS, 0,
                (double)(now->preemptions_total - then->preemptions_total));
    for (uint32_t why = 0; why < BLOCK_LOSSES; why++)
        metrics_add(metrics, WM_EVICTIONS, why,
                    (double)(blocks->lost[why] - blocks_then->lost[why]));
    metrics_add(metrics, WM_LOOKUP_BLOCKS, 0,
                (double)(blocks->lookups_total - blocks_then->lookups_total));
    metrics_add(metrics, WM_HIT_BLOCKS, 0, (double)(blocks->hits_total - blocks_then->hits_total));
    engine->counted = *now;
    engine->counted_blocks = *blocks;
}

static void count_masks(struct engine *engine)
{
    struct metrics *metrics = engine->settings.metrics;
    const struct grammar_machine_counts then = engine->counted_grammars;
    struct grammar_machine_counts *now = &engine->counted_grammars;
    if (engine->grammars == NULL)
        return;
    grammar_machine_counts(engine->grammars, now);
    uint64_t cold = now->masks_cold_total - then.masks_cold_total;
    uint64_t masks = now->masks_total - then.masks_total;
    metrics_add(metrics, WM_GRAMMAR_MASKS, WM_MASK_COLD, (double)cold);
    metrics_add(metrics, WM_GRAMMAR_MASKS, WM_MASK_WARM, (double)(masks > cold ? masks - cold : 0));
}

void engine_update_status(struct engine *engine)
{
    struct metrics *metrics = engine->settings.metrics;
    struct engine_status status = {.steps = engine->steps,
                                   .step_rows = engine->step_rows,
                                   .draining = engine->draining,
                                   .step_seconds = engine->step_seconds,
                                   .prefill_seconds_per_token = engine->prefill_seconds_per_token};
    scheduler_counts(engine->scheduler, &status.counts);
    engine_kv_counts(engine, &status.blocks, &status.windows);
    count_up(engine, &status.counts, &status.blocks);
    engine_count_tiers(engine, &status, &status.tiers);
    engine_set_kv_gauges(engine, &status.blocks, &status.windows);
    count_masks(engine);
    metrics_set(metrics, WM_RUNNING, 0, status.counts.running);
    metrics_set(metrics, WM_WAITING, 0, status.counts.waiting);
    metrics_set(metrics, WM_WAITING_BY_REASON, WM_WAIT_CAPACITY,
                status.counts.waiting - status.counts.waiting_deferred);
    metrics_set(metrics, WM_WAITING_BY_REASON, WM_WAIT_DEFERRED, status.counts.waiting_deferred);
    metrics_set(metrics, WM_PENDING_PREFILL_TOKENS, 0,
                (double)status.counts.pending_prefill_tokens);
    metrics_set(metrics, WM_PINNED_BLOCKS, 0, status.blocks.pinned);
    metrics_set(metrics, WM_DRAINING, 0, status.draining);
    (void)pthread_mutex_lock(&engine->status_lock);
    engine->status = status;
    (void)pthread_mutex_unlock(&engine->status_lock);
}
