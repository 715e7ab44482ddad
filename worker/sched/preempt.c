/* preempt.c - taking a running sequence's blocks so that an earlier one can go on.
 *
 * The victim is the last in rank: lowest priority, then newest; `running` is kept in that order. It
 * is recomputed, not swapped: what it computed was published, head of its last block included, so
 * until those blocks are needed and evicted its return costs one admission and no forward pass.
 * It waits in front of its priority. Its ids stay, so its tokens do not change.
 * Why it always ends: the first in rank is never a victim of others, and a sequence is never longer
 * than the pool (scheduler_add), so alone, with leases on prefixes broken one by one, it fits. */
#define LOG_MODULE "sched"
#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "worker/sched/scheduler_internal.h"

static void preempt(struct scheduler *s, struct sequence *seq)
{
    ASSERT(!seq->in_step); /* decodes are planned in rank order: victims come later */
    log_debug("preempt", "req=%s computed=%u blocks=%u", seq->params.request_id, seq->computed,
              seq->table.count);
    sequence_let_go(seq, s->pool, s->scratch);
    list_remove(&seq->link);
    s->running_count--;
    sequence_set_state(seq, SEQ_WAITING, "preempt");
    seq->preemptions++;
    s->preemptions_total++;
    s->preempted = true;
    scheduler_enqueue_waiting(s, seq);
}

void preempt_last(struct scheduler *s)
{
    ASSERT(s->running_count > 0);
    if (s->running_count > 1 || !block_pool_break_pin(s->pool))
        preempt(s, LIST_ENTRY(s->running.prev, struct sequence, link));
}

/* Block and window block. */
static int grow(struct scheduler *s, struct sequence *seq)
{
    int r = block_table_grow(&seq->table, s->pool, seq->ids_count);

    if (r == 0 && s->window_tokens > 0)
        r = block_table_cover(&seq->table, s->pool, seq->table.count);
    return r;
}

bool preempt_make_room(struct scheduler *s, struct sequence *seq)
{
    while (grow(s, seq) == -ENOSPC) {
        struct sequence *victim = LIST_ENTRY(s->running.prev, struct sequence, link);
        ASSERT(s->running_count > 0);
        if (s->running_count == 1 && block_pool_break_pin(s->pool))
            continue; /* alone: only leases are in its way */
        preempt(s, victim);
        if (victim == seq)
            return false;
    }
    return true;
}
