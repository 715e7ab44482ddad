/* counts.c - what happened in schedules, added up and printed. */
#include <inttypes.h>

#include "tests/exact/exact.h"

void exact_counts_add(struct exact_counts *to, const struct exact_counts *from)
{
    to->schedules += from->schedules;
    to->sequences += from->sequences;
    to->alone += from->alone;
    to->positions += from->positions;
    to->scored += from->scored;
    to->steps += from->steps;
    to->rows += from->rows;
    to->preemptions += from->preemptions;
    to->evictions += from->evictions;
    to->hits += from->hits;
    to->copies += from->copies;
    to->window_evictions += from->window_evictions;
    to->forks += from->forks;
    to->holds += from->holds;
    to->chunks += from->chunks;
    to->cancels += from->cancels;
    to->tier_stores += from->tier_stores;
    to->tier_loads += from->tier_loads;
    to->disk_stores += from->disk_stores;
    to->disk_loads += from->disk_loads;
}

void exact_counts_print(const struct exact_counts *c, uint32_t differ, FILE *out)
{
    (void)fprintf(out,
                  "%" PRIu64 " steps, %" PRIu64 " rows, %" PRIu64 " chunks; reused: %" PRIu64
                  " blocks, %" PRIu64 " heads of blocks (%" PRIu64 " of a block in use)\n",
                  c->steps, c->rows, c->chunks, c->hits, c->copies, c->forks);
    (void)fprintf(out,
                  "%" PRIu64 " preemptions, %" PRIu64 " evictions, %" PRIu64 " holds, %" PRIu64
                  " cancelled, %" PRIu64 " runs alone, %" PRIu64 " positions of prompts\n",
                  c->preemptions, c->evictions, c->holds, c->cancels, c->alone, c->scored);
    (void)fprintf(out,
                  "host tier: %" PRIu64 " blocks stored, %" PRIu64 " loaded; disk tier: %" PRIu64
                  ", %" PRIu64 "\n",
                  c->tier_stores, c->tier_loads, c->disk_stores, c->disk_loads);
    (void)fprintf(out,
                  "%" PRIu64 " schedules, %" PRIu64 " sequences, %" PRIu64
                  " positions compared, %u differ\n",
                  c->schedules, c->sequences, c->positions, differ);
    (void)fflush(out);
}
