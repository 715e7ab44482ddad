/* policy.h - how a worker is chosen: a pure function over a view, no I/O, no clock, no state, so
 * that the router and a simulator link the same object.
 *
 * Costs are in seconds, so no threshold stands between affinity and balance:
 *   cost(w) = queued(w) + slowdown(w) * own(w) + sharing(w) + kv_pressure(w) + eviction_damage(w)
 * own = predicted prefill of the tokens that w does not hold; the smallest cost wins, ties rotate.
 * One policy per file (policy_*.c); a new one is a file and a line in policy.c. */
#ifndef REFRAIN_ROUTER_ROUTE_POLICY_H
#define REFRAIN_ROUTER_ROUTE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define POLICY_WORKERS_MAX 64u

struct policy_worker {
    bool eligible;            /* serves the model, ready, not draining, not the one to avoid */
    uint32_t hit_tokens;      /* leading prompt tokens it holds; < prompt_tokens */
    double queued_seconds;    /* predicted prefill dispatched to it with no first token yet */
    double seconds_per_token; /* its prefill speed, learned */
    uint32_t running;         /* sequences decoding */
    uint32_t inflight;        /* requests of this router there */
    uint32_t sequences_max;
    uint32_t blocks_total, blocks_referenced, blocks_cached;
    uint32_t blocks_queued; /* blocks that dispatched, not yet started requests will take */
    uint64_t index_blocks;  /* how much it holds in all: the emptier one wins ties */
};

struct policy_view {
    const struct policy_worker *workers;
    uint32_t workers_count;
    uint32_t prompt_tokens;
    uint32_t block_tokens;
    uint32_t rotation;     /* rises with each decision: ties and round robin */
    uint64_t session_hash; /* of the session hint or the first block; 0: none */
};

struct policy_choice {
    uint32_t worker;
    double own_seconds; /* charged on the ticket */
    double cost_seconds;
    const char *why; /* static: "only", "prefix", "spill", "cold", or the policy's name */
};

struct policy {
    const char *name;
    /* 0, or -EAGAIN: no eligible worker. */
    int (*choose)(const struct policy_view *view, struct policy_choice *ret_choice);
};

/* NULL: no such policy. Names: policy_names (NULL-terminated). */
const struct policy *policy_find(const char *name);
extern const char *const policy_names[];

extern const struct policy policy_prefix;
extern const struct policy policy_round_robin;
extern const struct policy policy_least_loaded;
extern const struct policy policy_session;

/* Predicted prefill seconds on `worker`, and the eligible workers' count: shared by the policies.
 */
double policy_own_seconds(const struct policy_view *view, const struct policy_worker *worker);
uint32_t policy_eligible(const struct policy_view *view);

#endif
