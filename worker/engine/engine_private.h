/* engine_private.h - struct engine, shared by engine.c, commands.c, publish.c and inspect.c. */
#ifndef REFRAIN_WORKER_ENGINE_ENGINE_PRIVATE_H
#define REFRAIN_WORKER_ENGINE_ENGINE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/base/buffer.h"
#include "proto/base/queue.h"
#include "worker/engine/batch.h"
#include "worker/engine/engine.h"
#include "worker/engine/kv_events.h"
#include "worker/engine/requests.h"

/* Rows of logits looked at side by side: each has scratch of 24 bytes per token of the vocabulary.
 */
#define ENGINE_SAMPLERS_MAX 8u

struct output_row; /* look.c */

struct engine {
    struct engine_settings settings;

    /* Shared with other threads. */
    struct queue *commands;
    struct outbox *outbox;
    int fd;
    _Atomic int state; /* enum engine_state */
    _Atomic bool stop_asked;
    _Atomic uint64_t busy_since_ms; /* 0: waiting for commands */
    pthread_mutex_t status_lock;
    struct engine_status status;
    struct errmsg failure; /* before state FAILED is stored */

    /* Of the thread that starts and joins. */
    pthread_t thread;
    bool started;

    /* The engine thread's own. */
    struct block_pool *pool;
    struct tier *tier; /* NULL: none */
    struct scheduler *scheduler;
    struct requests *requests;
    struct sampler *samplers[ENGINE_SAMPLERS_MAX]; /* one for each piece of the looking */
    uint32_t samplers_count;
    struct output_row *output_rows; /* [sequences_max + SCORED_ROWS_MAX] */
    struct kv_events kv_events;
    struct batch batch;
    float *logits; /* [sequences_max + SCORED_ROWS_MAX, vocab_size] */
    size_t logits_bytes;
    struct sample_result *results; /* [sequences_max] */
    struct sample_result *scores;  /* [SCORED_ROWS_MAX]: of prompt tokens, in order of the plan */
    struct commit_item *commit_items;
    struct output *open;             /* STEP being filled, NULL: no items yet */
    struct scheduler_counts counted; /* what the metrics already hold */
    struct block_counts counted_blocks;
    uint64_t counted_windows_lost;
    const struct grammar_machine *grammars; /* NULL: no guided answer yet */
    struct grammar_machine_counts counted_grammars;
    struct tier_counts counted_tiers;
    uint32_t scan_refused; /* files at start */
    uint64_t steps, step_rows, renamed;
    double step_seconds, prefill_seconds_per_token;
    uint32_t prefill_samples; /* steps that the latter was learnt from */
    bool draining, stopping;
};

/* engine.c: plan to publish. *ret_idle: there was nothing to compute and nothing to tell. 0, or why
 * the group has ended. Of the engine thread, or of a test that drives an engine never started. */
int engine_turn(struct engine *engine, bool *ret_idle);

/* look.c: every row of logits of the step becomes a token (results, in the order of the plan's
 * wanted ones) or the score of a prompt token (scores). A sequence that no token can be had for is
 * cancelled, its client told why. */
void engine_look_at_logits(struct engine *engine, const struct step_plan *plan);
void engine_make_samplers(struct engine *engine);
void engine_free_samplers(struct engine *engine);

/* commands.c: take what is queued, at most ENGINE_COMMANDS_PER_TURN. */
void engine_take_commands(struct engine *engine);
/* Every request ends with an error item at the next commit. */
void engine_refuse_all(struct engine *engine, int code, const char *text);

/* publish.c: an item of this step's output, zeroed but for router and id. */
struct output_item *engine_add_item(struct engine *engine, uint32_t router, const char *request_id);
/* The step's scores of prompt tokens, before its commit. */
void engine_publish_scores(struct engine *engine, const struct step_plan *plan);
void engine_publish_commit(struct engine *engine, uint32_t items_count, uint64_t now_ns);
/* Events first, then the items. */
void engine_flush(struct engine *engine);
void engine_answer(struct engine *engine, uint32_t client, char *text);
void engine_update_status(struct engine *engine);

/* kv_counts.c: what lies in KV memory. ret_blocks->total.. are window blocks where every layer
 * slides. */
void engine_kv_counts(const struct engine *engine, struct block_counts *ret_blocks,
                      struct window_counts *ret_windows);
/* Bytes of this rank in blocks that are not EMPTY; from engine_kv_counts. */
double engine_kv_bytes(const struct engine *engine, const struct block_counts *blocks,
                       const struct window_counts *windows);
void engine_set_kv_gauges(struct engine *engine, const struct block_counts *blocks,
                          const struct window_counts *windows);
/* Fields of an open JSON object; none where no layer slides. */
void engine_append_windows(const struct engine *engine, struct buffer *out);

/* tiers.c: what the plan wants copied between pool and tiers goes with the step. */
bool engine_add_tier_ops(struct engine *engine); /* false: nothing */
/* Before the plan. */
void engine_tier_begin(struct engine *engine, uint64_t now_ns);
/* What files an earlier worker has left, while the others load. */
int engine_scan_tiers(struct engine *engine, struct errmsg *err);
/* After the forward pass, before the commit. */
void engine_tier_step_done(struct engine *engine, const struct step_plan *plan);
void engine_count_cached(struct engine *engine, const struct scheduler_counts *now,
                         const struct scheduler_counts *then);
void engine_count_tiers(struct engine *engine, const struct engine_status *status,
                        struct tier_counts *ret_counts);
void engine_append_tiers(struct engine *engine, struct buffer *out);

/* pins.c: the answers to `pin`, `unpin` (by mem_alloc) and `show pins`. */
char *engine_pin(struct engine *engine, const struct command *command);
void engine_append_pins(struct engine *engine, struct buffer *out);

/* inspect.c: one line of JSON, by mem_alloc. */
char *engine_inspect(struct engine *engine, enum inspect_what what);

#endif
