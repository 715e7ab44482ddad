/* grammar_rows.h - an answer's grammar at the two moments that matter: before a token is sampled,
 * and after.
 *
 *   not complete            tokens of the mask
 *   complete, can go on     and the stop ids (not before tokens_min)
 *   complete, cannot        the stop ids and the model's end ids only, whatever tokens_min and
 *                           ignore_eos say: nothing else is left
 *
 * Thread: engine. */
#ifndef REFRAIN_WORKER_ENGINE_GRAMMAR_ROWS_H
#define REFRAIN_WORKER_ENGINE_GRAMMAR_ROWS_H

#include "worker/sample/mask.h"
#include "worker/sched/sequence.h"

struct grammar_row {
    struct sample_mask mask;
    uint32_t ends[SAMPLE_ENDS_MAX];
    bool over; /* only an end can come: it is not banned by tokens_min */
};

/* The sequence has a matcher. 0; -E2BIG, -ENOSPC as grammar_matcher_mask. ret_row->mask points into
 * the row and into the machine: sample before the next row is made. */
int grammar_row_make(struct sequence *seq, struct grammar_row *ret_row);
/* The token was sampled. Sets seq->answer_over when it is the end of the answer. 0; -EINVAL,
 * -E2BIG, -ENOSPC: the answer cannot go on. */
int grammar_row_take(struct sequence *seq, uint32_t id);

#endif
