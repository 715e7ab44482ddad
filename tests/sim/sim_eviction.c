/* sim_eviction.c - hit rates of each eviction policy beside LRU and Belady's optimum.
 *
 *   sim_eviction [--csv] [NAME...]    every workload, or those named: a table, or CSV
 *   sim_eviction --check              what must hold; the ctest
 *
 * A working set is what a pool that loses nothing holds in the end; each policy gets shares of it.
 * --check: the published counts of the Mooncake trace exactly (the list LRUs by a plain list, the
 * tail-first ones by that list and by the pool), and what the default policy promises. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/block_hash.h"
#include "tests/sim/belady.h"
#include "tests/sim/plain_lru.h"
#include "tests/sim/replay.h"

#define EXIT_SKIPPED 77
#define FOUR_CHATS_BLOCKS (4 * 62)      /* of 200 + 6 * 132 = 992 tokens each */
#define FOUR_CHATS_SHARED (12 + 4 * 50) /* the system prompt once */

static const struct block_hash root = {.low = 1, .high = 2};
static const double shares[] = {0.02, 0.05, 0.1, 0.25, 0.5, 0.75};

enum workload { MOONCAKE = 0, MTBENCH, THINKING, ROUND_ROBIN, MIXED, WORKLOADS };
static const char *const names[WORKLOADS] = {"mooncake", "mtbench", "thinking", "round_robin",
                                             "mixed"};

static bool load(enum workload which, struct sim_trace *ret_trace)
{
    switch (which) {
    case MOONCAKE:
        return sim_trace_mooncake(ret_trace);
    case MTBENCH:
        return sim_trace_mtbench(ret_trace, names[which], 64, 0);
    case THINKING:
        return sim_trace_mtbench(ret_trace, names[which], 64, 3);
    case ROUND_ROBIN:
        sim_trace_round_robin(ret_trace, 12, 6);
        return true;
    default:
        sim_trace_mixed(ret_trace, 60, 12, 5);
        return true;
    }
}

static double hit_rate(const struct sim_result *result)
{
    return (double)result->hit_tokens / (double)result->prompt_tokens;
}

struct printer {
    const struct sim_trace *trace;
    bool csv;
    uint32_t working_set;
};

static void print_line(const struct printer *printer, const char *policy, uint32_t blocks,
                       const struct sim_result *r)
{
    const uint64_t *lost = r->counts.lost;

    fprintf(stdout,
            printer->csv ? "%s,%u,%.4f,%s,%llu,%llu,%.6f,%llu,%llu,%llu\n"
                         : "%-12s %7u %6.3f  %-8s %11llu %11llu  %.6f %9llu %9llu %9llu\n",
            printer->trace->name, blocks, (double)blocks / printer->working_set, policy,
            (unsigned long long)r->prompt_tokens, (unsigned long long)r->computed_tokens,
            hit_rate(r), (unsigned long long)lost[BLOCK_LOST_CAPACITY],
            (unsigned long long)lost[BLOCK_LOST_ABANDONED],
            (unsigned long long)lost[BLOCK_LOST_ONE_SHOT]);
}

static void print_policies(const struct printer *printer, uint32_t blocks)
{
    struct sim_result result;

    for (uint32_t p = 0; eviction_policies[p] != NULL; p++) {
        sim_replay(printer->trace, eviction_policies[p], blocks, &result);
        print_line(printer, eviction_policies[p]->name, blocks, &result);
    }
    sim_replay(printer->trace, &eviction_belady, blocks, &result);
    print_line(printer, "belady", blocks, &result);
    (void)fflush(stdout);
}

static void print_workload(enum workload which, bool csv)
{
    struct sim_trace trace;
    struct sim_result infinite;

    if (!load(which, &trace)) {
        fprintf(stderr, "%s: no such file under %s\n", names[which], SHARED_DIR);
        return;
    }
    belady_learn(&trace, root);
    sim_replay(&trace, &eviction_lru, sim_blocks_enough(&trace), &infinite);
    const struct printer printer = {&trace, csv, infinite.blocks_peak};
    print_line(&printer, "infinite", infinite.blocks_peak, &infinite);
    if (which == ROUND_ROBIN) {
        print_policies(&printer, FOUR_CHATS_SHARED);
        print_policies(&printer, FOUR_CHATS_BLOCKS);
    }
    for (size_t i = 0; which != ROUND_ROBIN && i < sizeof(shares) / sizeof(shares[0]); i++)
        print_policies(&printer, (uint32_t)(shares[i] * infinite.blocks_peak));
    belady_forget();
    sim_trace_done(&trace);
}

/* --- what must hold --- */

static bool same(const char *what, const char *field, uint64_t got, const json_t *expected)
{
    uint64_t wanted = (uint64_t)json_integer_value(json_object_get(expected, field));

    if (got == wanted)
        return true;
    fprintf(stderr, "mooncake %s: %s is %llu, expected %llu\n", what, field,
            (unsigned long long)got, (unsigned long long)wanted);
    return false;
}

static bool same_counts(const char *what, const struct sim_result *r, uint64_t evictions,
                        const json_t *expected)
{
    bool ok = same(what, "hit_blocks", r->hit_blocks, expected);

    ok &= same(what, "total_blocks", r->total_blocks, expected);
    ok &= same(what, "hit_tokens", r->hit_tokens, expected);
    ok &= same(what, "total_tokens", r->prompt_tokens, expected);
    ok &= same(what, "evictions", evictions, expected);
    ok &= same(what, "peak_blocks", r->blocks_peak, expected);
    fprintf(stdout, "mooncake %-20s hit_blocks %llu of %llu, evictions %llu: %s\n", what,
            (unsigned long long)r->hit_blocks, (unsigned long long)r->total_blocks,
            (unsigned long long)evictions, ok ? "equal" : "NOT EQUAL");
    return ok;
}

/* One line of expected.json: "infinite", "lru_N" or "lru_tail_first_N". */
static bool check_line(const struct sim_trace *trace, const char *key, const json_t *expected)
{
    struct sim_result result;
    unsigned blocks = 0;
    bool ok = true;

    if (strcmp(key, "infinite") == 0) {
        sim_replay(trace, &eviction_lru, sim_blocks_enough(trace), &result);
        return same_counts(key, &result, result.counts.evictions_total, expected);
    }
    if (sscanf(key, "lru_tail_first_%u", &blocks) == 1) {
        sim_replay(trace, &eviction_lru, blocks, &result);
        ok = same_counts(key, &result, result.counts.evictions_total, expected);
    } else if (sscanf(key, "lru_%u", &blocks) != 1) {
        return true;
    }
    plain_lru_replay(trace, blocks, strstr(key, "tail_first") != NULL, &result);
    return same_counts(key, &result, result.counts.evictions_total, expected) && ok;
}

static bool check_mooncake(bool *ret_skipped)
{
    json_t *file = json_load_file(SHARED_DIR "/cases/traces/expected.json", 0, NULL);
    const json_t *expected =
        json_object_get(json_object_get(file, "traces"), "mooncake_conversation_trace");
    struct sim_trace trace = {.count = 0};
    bool ok = true;
    const char *key;
    json_t *value;

    *ret_skipped = expected == NULL || !sim_trace_mooncake(&trace);
    if (!*ret_skipped)
        json_object_foreach((json_t *)expected, key, value) ok &= check_line(&trace, key, value);
    sim_trace_done(&trace);
    json_decref(file);
    return ok;
}

/* By how much the default policy's hit rate has to be above that of LRU, at a share of the working
 * set; where little can be won, how little it may lose. */
struct promise {
    enum workload workload;
    double share, above_lru;
};
static const struct promise promises[] = {
    {MOONCAKE, 0.02, 0.03}, {MOONCAKE, 0.1, 0.005}, {MOONCAKE, 0.25, -0.001},
    {MTBENCH, 0.02, -0.01}, {MTBENCH, 0.05, 0.002}, {MTBENCH, 0.25, -0.001},
    {THINKING, 0.02, 0.06}, {THINKING, 0.05, 0.01}, {THINKING, 0.25, -0.001},
    {MIXED, 0.02, 0.005},   {MIXED, 0.05, 0.02},    {MIXED, 0.1, 0.015},
};

static bool check_promise(const struct sim_trace *trace, const struct promise *promise)
{
    struct sim_result infinite, lru, own;

    sim_replay(trace, &eviction_lru, sim_blocks_enough(trace), &infinite);
    uint32_t blocks = (uint32_t)(promise->share * infinite.blocks_peak);
    sim_replay(trace, &eviction_lru, blocks, &lru);
    sim_replay(trace, eviction_policies[0], blocks, &own);
    double above = hit_rate(&own) - hit_rate(&lru);
    bool ok = above >= promise->above_lru;
    fprintf(stdout, "%-11s %.2f  %s %.4f, lru %.4f: %+.4f, promised %+.4f: %s\n", trace->name,
            promise->share, eviction_policies[0]->name, hit_rate(&own), hit_rate(&lru), above,
            promise->above_lru, ok ? "kept" : "NOT KEPT");
    return ok;
}

static bool check_promises(void)
{
    bool ok = true;

    for (int w = 0; w < WORKLOADS; w++) {
        struct sim_trace trace;
        if (w == ROUND_ROBIN || !load((enum workload)w, &trace))
            continue;
        for (size_t i = 0; i < sizeof(promises) / sizeof(promises[0]); i++)
            if (promises[i].workload == (enum workload)w)
                ok &= check_promise(&trace, &promises[i]);
        sim_trace_done(&trace);
    }
    return ok;
}

/* Twelve chats in turn, memory for four: within 2 % of what the optimum computes. */
static bool check_round_robin(void)
{
    struct sim_trace trace;
    struct sim_result best, own;

    (void)load(ROUND_ROBIN, &trace);
    belady_learn(&trace, root);
    sim_replay(&trace, &eviction_belady, FOUR_CHATS_BLOCKS, &best);
    sim_replay(&trace, eviction_policies[0], FOUR_CHATS_BLOCKS, &own);
    double ratio = (double)own.computed_tokens / (double)best.computed_tokens;
    fprintf(stdout, "round_robin: %llu tokens computed, belady %llu: %.4f\n",
            (unsigned long long)own.computed_tokens, (unsigned long long)best.computed_tokens,
            ratio);
    belady_forget();
    sim_trace_done(&trace);
    return ratio <= 1.02;
}

static int check(void)
{
    bool skipped;
    bool ok = check_mooncake(&skipped);

    ok &= check_promises();
    ok &= check_round_robin();

    if (skipped)
        fprintf(stdout, "no case files under %s: skipped\n", SHARED_DIR);
    if (!ok)
        return 1;
    return skipped ? EXIT_SKIPPED : 0;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    bool any = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
        any |= argv[i][0] != '-';
    }
    return !any;
}

int main(int argc, char **argv)
{
    bool csv = argc > 1 && strcmp(argv[1], "--csv") == 0;

    if (argc > 1 && strcmp(argv[1], "--check") == 0)
        return check();
    fprintf(stdout, csv ? "workload,blocks,share,policy,prompt_tokens,computed_tokens,hit_rate,"
                          "evicted_capacity,evicted_abandoned,evicted_one_shot\n"
                        : "workload      blocks  share  policy        prompt    computed  hit rate "
                          " capacity abandoned  one shot\n");
    for (int w = 0; w < WORKLOADS; w++)
        if (is_wanted(names[w], argc, argv))
            print_workload((enum workload)w, csv);
    return 0;
}
