/* belady.h - the eviction policy that knows the future: the bound for the real ones.
 *
 * Belady 1966: lose what is used again the latest. A use of a block is a later request whose prompt
 * holds the whole block, or that would copy its head (among the next 1000 that get that far).
 * Whoever uses a block uses the blocks before it, so the latest use is that of a block without
 * children: the bound respects prefix closure. For whole blocks and requests one at a time it is
 * the optimum; where heads are copied it is an estimate, off by less than a block per request. One
 * oracle at a time. */
#ifndef REFRAIN_TESTS_SIM_BELADY_H
#define REFRAIN_TESTS_SIM_BELADY_H

#include "tests/sim/trace.h"
#include "worker/kv/eviction.h"

extern const struct eviction_policy eviction_belady;

/* Index the trace; `root` is what its chains are hashed from. */
void belady_learn(const struct sim_trace *trace, struct block_hash root);
void belady_forget(void);
/* Request `index` is being replayed. Harmless for other policies. */
void belady_set_now(uint32_t index);

#endif
