/* repetition.h - does an answer's tail say the same thing again and again?
 *
 * A tail repeats when its last count_min * n tokens are the same n tokens count_min times, for an n
 * from pattern_min to pattern_max. Kept per n: how many tokens in a row equal the token n places
 * before them; the tail repeats when that is (count_min - 1) * n. So a token costs one comparison
 * per n, whatever the answer looks like, and the state depends on the answer's own tokens only.
 *
 * Ownership: a sequence's. Thread: engine's. */
#ifndef REFRAIN_WORKER_SCHED_REPETITION_H
#define REFRAIN_WORKER_SCHED_REPETITION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

struct repetition_rule {
    uint32_t pattern_min, pattern_max; /* tokens */
    uint32_t count_min;                /* times */
};

struct repetition;

/* -EINVAL: a sentence with the numbers. */
int repetition_new(const struct repetition_rule *rule, struct repetition **ret_repetition,
                   struct errmsg *err);
void repetition_free(struct repetition *repetition); /* NULL is fine */
/* The answer has `count` tokens, the last one is new. Call it for each. True: the tail repeats. */
bool repetition_take(struct repetition *repetition, const uint32_t *ids, uint32_t count);

#endif
