/* windows.c - window blocks of running sequences: of the rows to come and of no more.
 *
 *   block   0 ........ first(computed) ........ computed / 16 .............. end ........ prompt
 *           given back | seen by rows to come                | next chunks   | not yet
 *
 * A prefill holds window_ahead_max of them at most: what its next row sees, and a step's rows. It
 * takes them at admission, and in commit as many as it gives back. What it gives back may be held
 * by others as well; then some are missing ahead, its chunk is the shorter, and when no prefill can
 * go on and nothing else runs, the last one gives way. A decode takes one when it begins a block,
 * and gives way as it does for blocks. */
#include <errno.h>

#include "proto/base/assert.h"
#include "worker/kv/window_blocks.h"
#include "worker/sched/scheduler_internal.h"

#define WATERMARK_PART 100 /* 1 % */

int scheduler_check_windows(const struct scheduler_settings *settings,
                            const struct block_pool *pool, struct errmsg *err)
{
    uint32_t tokens = window_tokens(pool), longest = settings->context_tokens_max;
    struct window_counts counts;

    if (tokens == 0)
        return 0;
    window_get_counts(pool, &counts);
    uint32_t need = window_blocks_of(tokens < longest ? tokens : longest) + 2;
    if (counts.total >= need)
        return 0;
    return errmsg_set(err, -EINVAL, "%u window blocks: a window of %u tokens needs at least %u",
                      counts.total, tokens, need);
}

void scheduler_set_windows(struct scheduler *s)
{
    struct window_counts counts;

    s->window_tokens = window_tokens(s->pool);
    if (s->window_tokens == 0)
        return;
    window_get_counts(s->pool, &counts);
    uint32_t step = (s->settings.step_tokens_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    uint64_t ahead = (uint64_t)window_blocks_of(s->window_tokens) + step;
    s->window_ahead_max = ahead < counts.total ? (uint32_t)ahead : counts.total - 1;
    s->window_watermark = counts.total / WATERMARK_PART > 1 ? counts.total / WATERMARK_PART : 1;
}

uint32_t scheduler_window_end(const struct scheduler *s, const struct sequence *seq,
                              uint32_t computed)
{
    uint32_t blocks = (seq->ids_count + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    uint32_t first = window_first_block(s->window_tokens, computed);

    return blocks - first < s->window_ahead_max ? blocks : first + s->window_ahead_max;
}

void scheduler_move_window(struct scheduler *s, struct sequence *seq)
{
    uint32_t first = window_first_block(s->window_tokens, seq->computed);

    block_table_slide(&seq->table, s->pool, first);
    if (seq->state == SEQ_PREFILL) /* what is missing is tried for again in the next plan */
        (void)block_table_cover(&seq->table, s->pool, scheduler_window_end(s, seq, seq->computed));
}

void scheduler_release_copy(struct scheduler *s, const struct plan_copy *copy)
{
    if (s->window_tokens > 0)
        window_release(s->pool, &copy->from, 1, false);
    block_pool_unref(s->pool, &copy->from, 1);
}
