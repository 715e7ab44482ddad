/* prompt_trace.c - a bounded list of seams. */
#include "router/text/prompt_trace.h"

#include "proto/base/assert.h"
#include "proto/base/mem.h"

void prompt_trace_done(struct prompt_trace *trace)
{
    mem_free(trace->seams);
    mem_free(trace->tail);
    *trace = (struct prompt_trace){0};
}

void prompt_trace_add(struct prompt_trace *trace, const struct prompt_seam *seam)
{
    ASSERT(seam->text_end >= trace->end.text_end && seam->ids_count >= trace->end.ids_count);
    trace->end = *seam;
    trace->seams_total++;
    if (trace->seams_count == PROMPT_TRACE_SEAMS_MAX)
        return;
    if (trace->seams_count == trace->seams_capacity) {
        trace->seams_capacity = trace->seams_capacity ? trace->seams_capacity * 2 : 16;
        trace->seams = mem_realloc(trace->seams, trace->seams_capacity * sizeof(*trace->seams));
    }
    trace->seams[trace->seams_count++] = *seam;
}

void prompt_trace_set_tail(struct prompt_trace *trace, const char *text, size_t bytes, bool trim)
{
    ASSERT(!trace->tail);
    if (bytes > PROMPT_TRACE_TAIL_MAX)
        return;
    trace->tail = mem_strndup(text, bytes);
    trace->tail_bytes = (uint32_t)bytes;
    trace->tail_trim = trim;
}
