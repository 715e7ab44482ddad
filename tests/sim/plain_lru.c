/* plain_lru.c - see the header. A doubly linked list over the trace's own block numbers. */
#include "tests/sim/plain_lru.h"

#include "proto/base/mem.h"

#define TRACE_BLOCK_TOKENS 512u

struct node {
    uint32_t prev, next; /* number 0 is the list's head; block n is node n + 1 */
    bool resident;
};

struct plain_lru {
    struct node *nodes;
    uint32_t count;
};

static void leave(struct plain_lru *lru, uint32_t n)
{
    lru->nodes[lru->nodes[n].prev].next = lru->nodes[n].next;
    lru->nodes[lru->nodes[n].next].prev = lru->nodes[n].prev;
    lru->nodes[n].resident = false;
    lru->count--;
}

static void touch(struct plain_lru *lru, uint32_t n)
{
    uint32_t newest;

    if (lru->nodes[n].resident)
        leave(lru, n);
    newest = lru->nodes[0].prev;
    lru->nodes[n] = (struct node){.prev = newest, .next = 0, .resident = true};
    lru->nodes[newest].next = n;
    lru->nodes[0].prev = n;
    lru->count++;
}

static void replay_one(struct plain_lru *lru, const struct sim_request *request,
                       uint32_t blocks_total, bool tail_first, struct sim_result *result)
{
    uint32_t count = request->prompt_tokens / BLOCK_TOKENS, hits = 0;

    while (hits < count && lru->nodes[request->ids[hits * BLOCK_TOKENS] + 1].resident)
        hits++;
    uint64_t hit_tokens = (uint64_t)hits * TRACE_BLOCK_TOKENS;
    result->total_blocks += count;
    result->hit_blocks += hits;
    result->hit_tokens += hit_tokens < request->trace_tokens ? hit_tokens : request->trace_tokens;
    result->prompt_tokens += request->trace_tokens;
    for (uint32_t i = 0; i < count; i++)
        touch(lru, request->ids[(tail_first ? count - 1 - i : i) * BLOCK_TOKENS] + 1);
    while (lru->count > blocks_total) {
        leave(lru, lru->nodes[0].next);
        result->counts.evictions_total++;
    }
    if (lru->count > result->blocks_peak)
        result->blocks_peak = lru->count;
}

void plain_lru_replay(const struct sim_trace *trace, uint32_t blocks_total, bool tail_first,
                      struct sim_result *ret_result)
{
    struct sim_result result = {.prompt_tokens = 0};
    uint32_t numbers = 0;

    for (uint32_t i = 0; i < trace->count; i++)
        for (uint32_t b = 0; b < trace->requests[i].prompt_tokens / BLOCK_TOKENS; b++)
            if (trace->requests[i].ids[b * BLOCK_TOKENS] >= numbers)
                numbers = trace->requests[i].ids[b * BLOCK_TOKENS] + 1;
    struct plain_lru lru = {.nodes = mem_calloc(numbers + 1, sizeof(*lru.nodes))};
    for (uint32_t i = 0; i < trace->count; i++)
        replay_one(&lru, &trace->requests[i], blocks_total, tail_first, &result);
    mem_free(lru.nodes);
    *ret_result = result;
}
