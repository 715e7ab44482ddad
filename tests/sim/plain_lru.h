/* plain_lru.h - LRU over blocks as anybody would write it: the second opinion on a block trace. */
#ifndef REFRAIN_TESTS_SIM_PLAIN_LRU_H
#define REFRAIN_TESTS_SIM_PLAIN_LRU_H

#include "tests/sim/replay.h"

/* After each request its blocks become the newest, front to back or back to front; then the oldest
 * go until blocks_total remain. Not prefix-closed when front to back: heads go before tails. */
void plain_lru_replay(const struct sim_trace *trace, uint32_t blocks_total, bool tail_first,
                      struct sim_result *ret_result);

#endif
