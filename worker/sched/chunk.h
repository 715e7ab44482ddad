/* chunk.h - how many tokens of a prompt the next step prefills. Pure. */
#ifndef REFRAIN_WORKER_SCHED_CHUNK_H
#define REFRAIN_WORKER_SCHED_CHUNK_H

#include <stdint.h>

struct chunk_limits {
    uint32_t step_tokens;  /* what is left of the step's budget */
    uint32_t block_tokens; /* cuts end on multiples of it */
};

/* Tokens to compute from `computed` on; 0: the budget does not reach the next block border. */
uint32_t chunk_next(const struct chunk_limits *limits, uint32_t computed, uint32_t total);

#endif
