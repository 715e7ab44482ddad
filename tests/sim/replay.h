/* replay.h - a trace through the worker's own block pool and scheduler.
 *
 * One request at a time: what is measured is what stays cached between requests. */
#ifndef REFRAIN_TESTS_SIM_REPLAY_H
#define REFRAIN_TESTS_SIM_REPLAY_H

#include "tests/sim/trace.h"
#include "worker/kv/eviction.h"

struct sim_result {
    uint64_t prompt_tokens, computed_tokens; /* computed: prompt tokens that were not reused */
    uint64_t total_blocks, hit_blocks, hit_tokens; /* of a block trace */
    struct block_counts counts;                    /* at the end */
    uint32_t blocks_peak;                          /* used at once, cached ones included */
};

void sim_replay(const struct sim_trace *trace, const struct eviction_policy *policy,
                uint32_t blocks_total, struct sim_result *ret_result);
/* Blocks that suffice to lose nothing. */
uint32_t sim_blocks_enough(const struct sim_trace *trace);

#endif
