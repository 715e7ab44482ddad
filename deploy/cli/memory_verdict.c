/* memory_verdict.c - the rule of the header. Tolerances: counted bytes are exact, so a page is
 * enough; resident memory moves with the allocator, whose arenas grow in steps of up to 4 MiB. */
#include "deploy/cli/memory_verdict.h"

#include "proto/base/assert.h"

#define HELD_TOLERANCE 4096.0
#define RESIDENT_TOLERANCE (8.0 * 1024 * 1024)

static double unexplained(const struct memory_row *row, size_t round)
{
    return row->values[round] - (row->kind == MEMORY_RESIDENT ? row->explained[round] : 0);
}

void memory_judge(struct memory_row *row, size_t rounds)
{
    size_t half = rounds / 2, rises = 0;
    double tolerance = row->kind == MEMORY_RESIDENT ? RESIDENT_TOLERANCE : HELD_TOLERANCE;
    double last = row->values[rounds - 1];

    ASSERT(rounds >= VERDICT_ROUNDS_MIN && rounds <= VERDICT_ROUNDS_MAX);
    for (size_t i = half; i < rounds; i++)
        rises += unexplained(row, i) > unexplained(row, i - 1);
    row->rise = unexplained(row, rounds - 1) - unexplained(row, half - 1);
    row->verdict = last > row->before ? VERDICT_GROWTH : VERDICT_STEADY;
    switch (row->kind) {
    case MEMORY_ZERO: /* one late Cancel may be on its way: twice in a row is no accident */
        row->rise = last;
        row->verdict = last > 0 && row->values[rounds - 2] > 0 ? VERDICT_LEAK : VERDICT_STEADY;
        break;
    case MEMORY_CACHE:
        break;
    case MEMORY_HELD:
    case MEMORY_RESIDENT:
        /* Most of the later rounds: all but a quarter of them. */
        if (row->rise > tolerance && rises * 4 >= (rounds - half) * 3)
            row->verdict = VERDICT_LEAK;
        break;
    }
}

const char *memory_verdict_name(const struct memory_row *row)
{
    switch (row->verdict) {
    case VERDICT_LEAK:
        return "LEAK";
    case VERDICT_GROWTH:
        return row->kind == MEMORY_CACHE ? "growth (reclaimable cache)" : "growth, has ended";
    default:
        return "steady";
    }
}
