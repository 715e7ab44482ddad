/* bench_step.c - what a step costs outside the forward pass: plan and commit, pool included.
 *
 *   bench_step [SEQUENCES...]    CSV; default 8 32 128
 *
 * decode   all sequences decode, contexts of 500 to 4,600 tokens
 * turnover each step one ends and the next turn of a chat takes its place: look-up of 400 tokens of
 *          history, 100 new ones, evictions all the time
 * CPU time of the thread. The tokens are the step's number, so chats are found again: the answer
 * that is checked first is that of the hit counts. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/eviction.h"
#include "worker/sched/scheduler.h"

#define STEPS 4000u
#define HISTORY 400u
#define NEW_TOKENS 100u
#define CHATS 512u

struct bench {
    struct block_pool *pool;
    struct scheduler *scheduler;
    struct commit_item *items;
    struct sample_result *results;
    uint32_t *ids;
    uint64_t *times_ns;
    uint32_t sequences, added;
};

static void begin(struct bench *bench, uint32_t sequences, bool turnover,
                  const struct eviction_policy *policy)
{
    const struct block_pool_settings pool = {.blocks_total =
                                                 sequences * (turnover ? 80 : 300) + 2560,
                                             .prefix_caching = true,
                                             .eviction = policy,
                                             .pinned_blocks_max = 100};
    const struct scheduler_settings settings = {
        .sequences_max = sequences,
        .step_tokens_max = 4096,
        .context_tokens_max = 8192,
        .waiting_max = sequences,
        .vocab_size = UINT32_MAX,
    };

    *bench = (struct bench){.sequences = sequences};
    int r = block_pool_new(&pool, &bench->pool, NULL);
    ASSERT(r == 0);
    r = scheduler_new(&settings, bench->pool, &bench->scheduler, NULL);
    ASSERT(r == 0);
    bench->items = mem_calloc(2 * (size_t)sequences, sizeof(*bench->items));
    bench->results = mem_calloc(sequences, sizeof(*bench->results));
    bench->ids = mem_calloc(HISTORY + NEW_TOKENS, sizeof(*bench->ids));
    bench->times_ns = mem_calloc(STEPS, sizeof(*bench->times_ns));
}

static void end(struct bench *bench)
{
    scheduler_free(bench->scheduler);
    block_pool_free(bench->pool);
    mem_free(bench->items);
    mem_free(bench->results);
    mem_free(bench->ids);
    mem_free(bench->times_ns);
}

/* A turn of one of CHATS chats: its history is the same each time, what is new is new. */
static void add(struct bench *bench, uint32_t answer_tokens)
{
    struct sequence_params params = {
        .prompt = bench->ids,
        .prompt_tokens = HISTORY + NEW_TOKENS,
        .sampling = {.top_p = 1, .repetition_penalty = 1},
        .tokens_max = answer_tokens,
        .root = {1, 2},
    };
    struct sequence *seq;
    uint32_t number = bench->added++;

    for (uint32_t i = 0; i < HISTORY; i++)
        bench->ids[i] = i < 200 ? i : number % CHATS * 1000 + i;
    for (uint32_t i = 0; i < NEW_TOKENS; i++)
        bench->ids[HISTORY + i] = CHATS * 1000 + number * NEW_TOKENS + i;
    (void)snprintf(params.request_id, sizeof(params.request_id), "r%u", number);
    int r = scheduler_add(bench->scheduler, &params, &seq, NULL);
    ASSERT(r == 0);
}

/* This thread's own time: others share the machine. */
static uint64_t cpu_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One step; the time of plan and commit alone. How many ended. */
static uint32_t step(struct bench *bench, uint64_t *ret_ns)
{
    struct step_plan plan;
    uint32_t finished = 0;

    uint64_t before = cpu_ns();
    scheduler_plan(bench->scheduler, 1, &plan);
    uint64_t planned = cpu_ns();
    for (uint32_t i = 0; i < bench->sequences; i++)
        bench->results[i].id = bench->added * 7 + i;
    uint64_t after = cpu_ns();
    uint32_t count = scheduler_commit(bench->scheduler, &plan, bench->results, 1, bench->items);
    *ret_ns = planned - before + cpu_ns() - after;
    for (uint32_t i = 0; i < count; i++) {
        if (bench->items[i].finish == SEQ_FINISH_NONE)
            continue;
        scheduler_release(bench->scheduler, bench->items[i].sequence);
        finished++;
    }
    return finished;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static void print(struct bench *bench, const char *what, const char *policy)
{
    struct scheduler_counts counts;
    uint64_t sum = 0;

    scheduler_counts(bench->scheduler, &counts);
    for (uint32_t i = 0; i < STEPS; i++)
        sum += bench->times_ns[i];
    qsort(bench->times_ns, STEPS, sizeof(*bench->times_ns), compare);
    fprintf(stdout, "%s,%s,%u,%.2f,%.2f,%.2f,%.3f\n", what, policy, bench->sequences,
            (double)sum / STEPS / 1e3, (double)bench->times_ns[STEPS / 2] / 1e3,
            (double)bench->times_ns[STEPS - STEPS / 100] / 1e3,
            (double)counts.cached_tokens_total / (double)counts.prompt_tokens_total);
}

static void run(uint32_t sequences, bool turnover, uint32_t policy)
{
    struct bench bench;
    struct block_counts counts;
    uint64_t ns;

    begin(&bench, sequences, turnover, eviction_policies[policy]);
    uint32_t answer_tokens = turnover ? sequences : STEPS + 100;
    for (uint32_t i = 0; i < sequences; i++) {
        add(&bench, answer_tokens);
        (void)step(&bench, &ns);
    }
    for (uint32_t i = 0; turnover && i < 2000; i++) /* until it evicts */
        for (uint32_t ended = step(&bench, &ns); ended > 0; ended--)
            add(&bench, answer_tokens);
    for (uint32_t i = 0; i < STEPS; i++)
        for (uint32_t ended = step(&bench, &bench.times_ns[i]); ended > 0; ended--)
            add(&bench, answer_tokens);
    block_pool_counts(bench.pool, &counts);
    ASSERT(!turnover || (counts.evictions_total > 0 && counts.hits_total > 0));
    print(&bench, turnover ? "turnover" : "decode", eviction_policy_names[policy]);
    end(&bench);
}

int main(int argc, char **argv)
{
    static const uint32_t usual[] = {8, 32, 128};
    uint32_t count = argc > 1 ? (uint32_t)argc - 1 : 3;

    fprintf(stdout, "case,eviction,sequences,mean_us,median_us,p99_us,reused\n");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sequences = argc > 1 ? (uint32_t)strtoul(argv[i + 1], NULL, 10) : usual[i];
        for (uint32_t policy = 0; eviction_policies[policy] != NULL; policy++) {
            run(sequences, false, policy);
            run(sequences, true, policy);
        }
    }
    return 0;
}
