/* scheduler.h - who runs in the next step, with how many tokens, and who gives blocks back.
 *
 * Pure: no I/O, no clock of its own (now_ns comes in), no kernels; engine and simulator link the
 * same object. One turn of the engine:
 *
 *   scheduler_plan(now) -> rows to compute   ... forward, sample ...   scheduler_commit(ids)
 *
 * Plan: decodes first (one row each), then prefill chunks in order of arrival within the token
 * budget, chunk ends on block borders except a prompt's last; admission reserves the whole uncached
 * prompt; a running decode that needs a block when none is left preempts the newest. A sequence's
 * blocks are sealed in commit, once computed. A prompt that is scored (prompt_logprobs) computes
 * all of its tokens, in chunks of SCORED_ROWS_MAX. Thread: engine only. */
#ifndef REFRAIN_WORKER_SCHED_SCHEDULER_H
#define REFRAIN_WORKER_SCHED_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "worker/kv/block_pool.h"
#include "worker/sched/sequence.h"
#include "worker/sched/tier_lookup.h"

struct scheduler;

struct scheduler_settings {
    uint32_t sequences_max;      /* running at once: --max-num-seqs */
    uint32_t step_tokens_max;    /* --max-num-batched-tokens */
    uint32_t context_tokens_max; /* --max-model-len */
    uint32_t step_ms_max;        /* --max-step-ms: of a step that gives tokens; 0: no limit */
    uint32_t row_positions;      /* for step_time.h */
    uint32_t waiting_max;        /* queued at most */
    uint32_t vocab_size;
    struct tier_lookup tiers; /* .find NULL: none */
};

/* Prompt rows whose logits are scored in one step at most: bounds the memory of a step's logits
 * and what it costs the others. A prompt with log probabilities is cut into chunks of so many. */
#define SCORED_ROWS_MAX 64u

/* Rows [first_position, first_position + rows) of one sequence in this step. */
struct plan_entry {
    struct sequence *sequence;
    uint32_t first_position;
    uint32_t rows;
    bool want_token; /* the last row's logits are sampled */
    /* Rows [score_first, score_first + score_rows) of the entry: each one's logits say how likely
     * the prompt token behind it was. */
    uint32_t score_first, score_rows;
};
struct plan_copy {
    uint32_t from, to, tokens;
    uint32_t window_from, window_to; /* window blocks of the two; BLOCK_NONE: no layer slides */
};
struct step_plan {
    struct plan_entry *entries; /* capacity sequences_max; owned by the scheduler */
    uint32_t entries_count;
    struct plan_copy *copies; /* before the forward pass; capacity sequences_max */
    uint32_t copies_count;
    uint32_t rows;        /* sum of entries' rows, <= step_tokens_max */
    uint32_t scored_rows; /* sum of entries' score_rows, <= SCORED_ROWS_MAX */
};

struct scheduler_counts {
    uint32_t running, waiting;
    uint32_t waiting_deferred;       /* of those: for a prefix that is being computed or loaded */
    uint64_t pending_prefill_tokens; /* prompt tokens of waiting and prefilling not yet computed */
    uint64_t preemptions_total, admitted_total, finished_total;
    uint64_t prompt_tokens_total, cached_tokens_total, generated_tokens_total;
    /* Of cached_tokens_total; and what the pool did not have, so that tiers were asked. */
    uint64_t cached_host_tokens_total, cached_disk_tokens_total, tier_asked_tokens_total;
};

/* What commit tells the engine of one sequence; texts are static. */
struct commit_item {
    struct sequence *sequence;
    bool first; /* first token of this request */
    bool has_token;
    struct sample_result token;
    enum sequence_finish finish; /* != NONE: call scheduler_release after reporting it */
};

int scheduler_new(const struct scheduler_settings *settings, struct block_pool *pool,
                  struct scheduler **ret_scheduler, struct errmsg *err);
void scheduler_free(struct scheduler *scheduler); /* cancels what is left */

/* Queue a request; params->rules is the sequence's after success. 0; -EINVAL: empty prompt, id out
 * of vocabulary, tokens_max 0, bad sampling, duplicate request id; -E2BIG: can never fit (context
 * length or pool; *err has the numbers); -EAGAIN: queue full. */
int scheduler_add(struct scheduler *scheduler, const struct sequence_params *params,
                  struct sequence **ret_sequence, struct errmsg *err);
struct sequence *scheduler_find(struct scheduler *scheduler, const char *request_id); /* or NULL */
/* From any state: the next commit reports it as finished with `why`. Its blocks go back at once
 * unless it is in the step being computed (then at commit, and its result is not looked at). With
 * SEQ_FINISH_ERROR nothing of that step is published: it may be what is broken. */
void scheduler_cancel(struct scheduler *s, struct sequence *seq, enum sequence_finish why);
/* The next step. *ret_plan stays valid until commit. rows 0: nothing runs or waits (commit still
 * has to be called: it reports cancelled and expired requests). */
void scheduler_plan(struct scheduler *scheduler, uint64_t now_ns, struct step_plan *ret_plan);
/* results[i] belongs to the i-th entry with want_token. Fills items (capacity sequences_max +
 * waiting_max), returns their count. */
uint32_t scheduler_commit(struct scheduler *scheduler, const struct step_plan *plan,
                          const struct sample_result *results, uint64_t now_ns,
                          struct commit_item *ret_items);
/* Free a finished sequence. */
void scheduler_release(struct scheduler *scheduler, struct sequence *sequence);

bool scheduler_idle(const struct scheduler *scheduler); /* nothing running, waiting or to report */
void scheduler_counts(const struct scheduler *scheduler, struct scheduler_counts *ret_counts);
/* Walk: waiting first, then running. For `show sequences`. Stop when the callback returns false. */
void scheduler_each(struct scheduler *scheduler,
                    bool (*fn)(const struct sequence *sequence, void *user), void *user);
void scheduler_check(const struct scheduler *scheduler); /* asserts all invariants, pool's too */

#endif
