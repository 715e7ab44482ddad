/* scheduler_internal.h - what scheduler.c, admission.c and preempt.c share. Not for other folders.
 */
#ifndef REFRAIN_WORKER_SCHED_SCHEDULER_INTERNAL_H
#define REFRAIN_WORKER_SCHED_SCHEDULER_INTERNAL_H

#include "proto/base/list.h"
#include "proto/base/map.h"
#include "worker/sched/scheduler.h"
#include "worker/sched/step_time.h"

struct scheduler {
    struct scheduler_settings settings;
    struct block_pool *pool;
    struct list waiting;  /* WAITING: by priority, preempted ones first, then by arrival */
    struct list running;  /* PREFILL, DECODE: by priority, then by arrival */
    struct list finished; /* FINISHED, to be reported by the next commit */
    struct list reported; /* FINISHED, to be released by the engine */
    uint32_t waiting_count, running_count, finished_count;
    uint32_t running_max; /* sequences_max, or less where steps are small */
    struct map *by_request_id;
    uint64_t next_number;
    uint32_t tokens_max;       /* of one sequence: the context, or the pool if that is smaller */
    uint32_t watermark_blocks; /* kept free of admissions, for the decodes of those that run */
    /* The same of window blocks (worker/kv/window_blocks.h); and how many a prefill holds at most.
     * 0, 0, 0: no layer slides. */
    uint32_t window_tokens, window_watermark, window_ahead_max;
    struct plan_entry *entries;
    struct plan_copy *copies; /* each holds a reference on `from` until commit */
    uint32_t entries_count, copies_count, rows, scored_rows;
    double work, work_max, decodes_work; /* of this step; the most of it, 0: no limit; of decodes */
    uint64_t planned_ns;                 /* when it was planned */
    struct step_time time;
    uint32_t *scratch; /* block ids of one sequence */
    uint32_t loading;  /* waiting requests of this plan whose prefix is on its way from a tier */
    bool planned;      /* between plan and commit */
    bool preempted;    /* in this plan: then nobody is admitted */
    uint64_t preemptions_total, admitted_total, finished_total;
    uint64_t prompt_tokens_total, cached_tokens_total, generated_tokens_total;
    uint64_t cached_host_tokens_total, cached_disk_tokens_total, tier_asked_tokens_total;
};

/* admission.c: fill what is left of the step with waiting requests. */
void admission_run(struct scheduler *scheduler, uint64_t now_ns);

/* preempt.c: give `seq` a slot for its newest token, at the cost of those behind it.
 * false: it was itself the last in rank and had to go. */
bool preempt_make_room(struct scheduler *scheduler, struct sequence *seq);

/* preempt.c: prefills have run out of window blocks and nobody is in the step: take the last one's.
 */
void preempt_last(struct scheduler *scheduler);

/* windows.c: 0; -EINVAL: too few window blocks to run at all. */
int scheduler_check_windows(const struct scheduler_settings *settings,
                            const struct block_pool *pool, struct errmsg *err);
void scheduler_set_windows(struct scheduler *scheduler);
/* Release a copy's source. */
void scheduler_release_copy(struct scheduler *scheduler, const struct plan_copy *copy);
/* These only where window_tokens > 0. */
/* Blocks that a prefill of which `computed` tokens are there has window blocks for: up to this one.
 */
uint32_t scheduler_window_end(const struct scheduler *s, const struct sequence *seq,
                              uint32_t computed);
/* Computed tokens have changed: give back what the window has passed, take what lies ahead. */
void scheduler_move_window(struct scheduler *scheduler, struct sequence *seq);

/* scheduler.c */
void scheduler_enqueue_waiting(struct scheduler *scheduler, struct sequence *seq);
void scheduler_enqueue_running(struct scheduler *scheduler, struct sequence *seq);
/* Rows of the next chunk of a sequence of which `computed` tokens are there; 0: the budgets of this
 * step have no room for it. */
uint32_t scheduler_chunk_rows(const struct scheduler *scheduler, const struct sequence *seq,
                              uint32_t computed);
/* The next chunk of a prefilling sequence, if the budgets have room. */
void scheduler_add_chunk(struct scheduler *scheduler, struct sequence *seq);

/* Prompt tokens that still have to be scored. */
static inline uint32_t scheduler_to_score(const struct sequence *seq)
{
    return seq->params.prompt_logprobs > 0 ? seq->prompt_tokens - 1 - seq->scored : 0;
}

static inline uint32_t scheduler_budget(const struct scheduler *scheduler)
{
    return scheduler->settings.step_tokens_max - scheduler->rows;
}

#endif
