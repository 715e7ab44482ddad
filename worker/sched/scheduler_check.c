/* scheduler_check.c - every invariant of the queues, asserted; the pool's too. O(all it holds).
 *
 * The strongest one: the references in the pool are exactly those of the tables, of the step's
 * copies and of leases, so a leak of a single block is seen at the next check. */
#include "proto/base/assert.h"
#include "worker/kv/window_blocks.h"
#include "worker/sched/scheduler_internal.h"

static uint64_t check_list(const struct scheduler *s, const struct list *list, uint32_t count)
{
    uint64_t references = 0;
    uint32_t seen = 0;

    LIST_FOR(item, list)
    {
        const struct sequence *seq = LIST_ENTRY(item, struct sequence, link);
        sequence_check(seq, s->pool);
        ASSERT((list == &s->waiting) == (seq->state == SEQ_WAITING));
        ASSERT((list == &s->running) == (seq->state == SEQ_PREFILL || seq->state == SEQ_DECODE));
        ASSERT((list == &s->reported) == seq->reported);
        ASSERT(!seq->in_step || s->planned);
        ASSERT(seq->state != SEQ_FINISHED || seq->finish != SEQ_FINISH_NONE);
        references += seq->table.count;
        seen++;
    }
    ASSERT(seen == count || list == &s->reported);
    return references;
}

static uint64_t windows_in(const struct list *list)
{
    uint64_t windows = 0;

    LIST_FOR(item, list)
    {
        const struct block_table *table = &LIST_ENTRY(item, struct sequence, link)->table;
        windows += table->window_end - table->window_first;
    }
    return windows;
}

/* Holders of window blocks: running sequences, copies of the step, leases. */
static void check_windows(const struct scheduler *s)
{
    uint64_t holders = windows_in(&s->waiting) + windows_in(&s->running) + s->copies_count;

    if (s->window_tokens > 0)
        ASSERT(holders + window_pinned(s->pool) == window_holders(s->pool));
}

static void check_order(const struct list *list)
{
    LIST_FOR(item, list)
    {
        if (item->next == list)
            return;
        const struct sequence *a = LIST_ENTRY(item, struct sequence, link);
        const struct sequence *b = LIST_ENTRY(item->next, struct sequence, link);
        ASSERT(a->params.priority <= b->params.priority);
        if (a->params.priority == b->params.priority &&
            (a->preemptions > 0) == (b->preemptions > 0))
            ASSERT(a->number < b->number || a->state != SEQ_WAITING);
        if (a->params.priority == b->params.priority && a->state != SEQ_WAITING)
            ASSERT(a->number < b->number);
    }
}

void scheduler_check(const struct scheduler *s)
{
    struct block_counts counts;
    uint64_t references = 0, held = 0;
    uint32_t rows = 0;

    block_pool_check(s->pool);
    references += check_list(s, &s->waiting, s->waiting_count);
    references += check_list(s, &s->running, s->running_count);
    references += check_list(s, &s->finished, s->finished_count);
    references += check_list(s, &s->reported, 0);
    references += s->copies_count;
    check_order(&s->waiting);
    check_order(&s->running);
    block_pool_counts(s->pool, &counts);
    references += counts.pins;
    for (uint32_t id = 0; id < counts.total; id++)
        held += block_pool_refs(s->pool, id);
    ASSERT(held == references);
    check_windows(s);
    for (uint32_t i = 0; i < s->entries_count; i++)
        rows += s->entries[i].rows;
    ASSERT(!s->planned || (rows == s->rows && rows <= s->settings.step_tokens_max));
    ASSERT(s->running_count <= s->running_max);
}
