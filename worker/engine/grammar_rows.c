/* grammar_rows.c - mask and ends of a row.
 *
 * The matcher goes on with each sampled token, before the commit that appends it: a sequence that
 * was cancelled in this step is not looked at again, and one that is preempted later keeps ids and
 * matcher, so both always stand at the same place. */
#include "worker/engine/grammar_rows.h"

#include <errno.h>

#include "proto/base/assert.h"

static void add_ends(struct grammar_row *row, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(row->mask.ends_count < SAMPLE_ENDS_MAX);
        row->ends[row->mask.ends_count++] = ids[i];
    }
}

int grammar_row_make(struct sequence *seq, struct grammar_row *ret_row)
{
    const struct sequence_params *params = &seq->params;
    struct grammar_mask mask;
    int r = grammar_matcher_mask(seq->matcher, &mask, NULL);

    if (r < 0)
        return r;
    ret_row->mask = (struct sample_mask){.bits = mask.bits, .ends = ret_row->ends};
    ret_row->over = mask.complete && !mask.any;
    if (mask.complete && (ret_row->over || sequence_output_tokens(seq) >= params->tokens_min))
        add_ends(ret_row, params->stop_ids, params->stop_ids_count);
    if (ret_row->over)
        add_ends(ret_row, params->end_ids, params->end_ids_count);
    return 0;
}

int grammar_row_take(struct sequence *seq, uint32_t id)
{
    bool complete = grammar_matcher_complete(seq->matcher);
    int r = grammar_matcher_take_token(seq->matcher, id);

    if ((r == -ENOENT || r == -EINVAL) && complete) {
        seq->answer_over = true;
        return 0;
    }
    return r == -ENOENT ? -EINVAL : r;
}
