/* memory_verdict.h - numbers taken at idle, round after round -> expected growth, or a leak.
 *
 * A round is load, then a wait until nothing runs, then one value per row. What a row may do then
 * depends on its kind:
 *
 *   ZERO      held by requests (blocks, tickets, requests): 0 whenever nothing runs
 *   HELD      bytes of a purpose that keeps nothing between requests: may rise to a level
 *   CACHE     bytes of a bounded cache: may rise to its limit, all of it reclaimable
 *   RESIDENT  a process as the kernel sees it: may rise by what the rows of CACHE and HELD of that
 *             process rose and by KV blocks that were touched for the first time
 *
 * "Rises to a level" and "leaks" differ in the later rounds: a leak goes on with the load, growth
 * ends. So a row leaks when it rose in most of the later half of the rounds, and by more than its
 * tolerance. Pure. Thread: any. */
#ifndef REFRAIN_DEPLOY_CLI_MEMORY_VERDICT_H
#define REFRAIN_DEPLOY_CLI_MEMORY_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#define VERDICT_ROUNDS_MAX 64u
#define VERDICT_ROUNDS_MIN 4u
#define VERDICT_NAME_MAX 96u

enum memory_kind { MEMORY_ZERO = 0, MEMORY_HELD, MEMORY_CACHE, MEMORY_RESIDENT };
enum memory_verdict {
    VERDICT_STEADY = 0,
    VERDICT_GROWTH, /* expected */
    VERDICT_LEAK,
};

struct memory_row {
    char name[VERDICT_NAME_MAX];
    enum memory_kind kind;
    double before;                        /* before the first round */
    double values[VERDICT_ROUNDS_MAX];    /* after each round */
    double explained[VERDICT_ROUNDS_MAX]; /* RESIDENT: what may be there besides, in bytes */
    enum memory_verdict verdict;          /* out */
    double rise;                          /* out: over the later half, unexplained */
};

/* Judge one row after `rounds` (>= VERDICT_ROUNDS_MIN) rounds. */
void memory_judge(struct memory_row *row, size_t rounds);
const char *memory_verdict_name(const struct memory_row *row);

#endif
