/* batch.h - a step plan as the flat arrays that kernels and the step ring want.
 *
 * All arrays are allocated once for the largest step. Thread: engine only. */
#ifndef REFRAIN_WORKER_ENGINE_BATCH_H
#define REFRAIN_WORKER_ENGINE_BATCH_H

#include "kernels/ops.h"
#include "worker/sched/scheduler.h"
#include "worker/tp/step_ring.h"

struct batch {
    uint32_t *ids, *position, *row_first, *table, *window_table, *out_row, *adapters;
    struct step_copy *copies;
    /* Of the i-th row of logits: its entry's place in the plan, and whether it scores a prompt
     * token (else it is sampled). An entry's scored rows come before its sampled one. */
    uint32_t *out_entry;
    bool *out_score;
    uint32_t rows_max, sequences_max, table_max;
    const struct block_pool *windows; /* where window blocks are looked up; NULL: no layer slides */
    bool full;                        /* some layer sees everything */
    struct step_descriptor descriptor; /* points into the arrays above */
};

/* table_max: blocks of the longest sequence. Every layer sees everything. -ENOMEM. */
int batch_init(struct batch *batch, uint32_t rows_max, uint32_t sequences_max, uint32_t table_max,
               struct errmsg *err);
/* Layers slide: all of them, or not. The pool outlives the batch. -ENOMEM. */
int batch_add_windows(struct batch *batch, const struct block_pool *pool, bool all,
                      struct errmsg *err);
void batch_done(struct batch *batch);
/* Rows of prompts. An entry of one row counts as a decode, whichever it is: it costs the same. */
uint32_t batch_prefill_rows(const struct step_plan *plan);
/* Fill descriptor from the plan; number rises by one per call. */
void batch_build(struct batch *batch, const struct step_plan *plan);
/* One sequence of `rows` tokens of id 0 at positions 0.. in block 0..: touches weights and KV. */
void batch_build_warm_up(struct batch *batch, uint32_t rows);

#endif
