/* test_bugs_cache.c - cases/bugs.json about the block cache and its bookkeeping, on a tiny model
 * with a pool that fills in no time. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness_bugs.h"

#define MODEL "llama-gguf-f32" /* 512 tokens of context, ids below 320 */
#define BLOCK 16
#define CHATS 10000
#define ROUND 1000
#define AT_ONCE 64
#define PROMPTS 4000

static struct bugs bugs;

static int setup(void **state)
{
    *state = &bugs;
    bugs_start(&bugs, e2e_tiny(MODEL),
               (const char *const[]){"--groups", "1", "--kv-cache-memory", "96KiB",
                                     "--max-model-len", "256", "--max-num-seqs", "8", NULL});
    return 0;
}

static int after(void **state)
{
    (void)state;
    bugs_assert_well(&bugs);
    cluster_assert_pool(&bugs.cluster, 0);
    return 0;
}

/* A prompt of `count` ids that no other `seed` shares a block with. */
static json_t *prompt_of(unsigned seed, unsigned count)
{
    json_t *ids = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(ids, json_integer((seed * 37 + i * 11 + i / 7 + seed * i) % 300 + 5));
    return ids;
}

struct told {
    char text[256];
    json_int_t cached;
};

static struct told complete(json_t *ids, const char *salt)
{
    struct told told;
    json_t *body = json_pack("{s:o, s:i, s:i, s:b, s:s*}", "prompt", ids, "max_tokens", 6,
                             "temperature", 0, "ignore_eos", true, "cache_salt", salt);
    json_t *answer = bugs_ask(&bugs, COMPLETION_PATH, body, 200);
    const json_t *details =
        json_object_get(json_object_get(answer, "usage"), "prompt_tokens_details");

    (void)snprintf(told.text, sizeof(told.text), "%s", bugs_text(answer));
    told.cached = json_integer_value(json_object_get(details, "cached_tokens"));
    json_decref(answer);
    return told;
}

static void send_round(unsigned round)
{
    static struct chat chats[ROUND];
    for (unsigned i = 0; i < ROUND; i++) {
        char text[48];
        (void)snprintf(text, sizeof(text), "%u %u", i % 200, round);
        chat_init(&chats[i], bugs.cluster.url, CHAT_PATH,
                  chat_body(bugs.cluster.model, text, 1 + i % 3));
    }
    chat_send_all(chats, ROUND, AT_ONCE);
    for (unsigned i = 0; i < ROUND; i++) {
        if (chats[i].status != 200)
            fail_msg("chat %u of round %u: %d %s%s", i, round, chats[i].status, chats[i].failure,
                     chats[i].error_message);
        chat_done(&chats[i]);
    }
}

static void test_b69_ten_thousand_chats_leave_no_block_and_no_memory(void **state)
{
    uint64_t router = 0, worker_bytes = 0;
    struct worker_view worker;
    (void)state;

    for (unsigned round = 0; round < CHATS / ROUND; round++) {
        send_round(round);
        cluster_assert_idle(&bugs.cluster); /* no block is held */
        assert_true(cluster_worker(&bugs.cluster, 0, &worker));
        if (round != 1)
            continue; /* warm from here on */
        router = proc_resident_bytes(bugs.router_pid);
        worker_bytes = proc_resident_bytes(worker.pids[0]);
    }
    print_message("resident: router %.1f -> %.1f MiB, worker %.1f -> %.1f MiB\n",
                  (double)router / 1048576, (double)proc_resident_bytes(bugs.router_pid) / 1048576,
                  (double)worker_bytes / 1048576,
                  (double)proc_resident_bytes(worker.pids[0]) / 1048576);
    bugs_assert_memory(bugs.router_pid, router + (8u << 20));
    bugs_assert_memory(worker.pids[0], worker_bytes + (8u << 20));
}

struct counted {
    double prompt, hits, queries, want_prompt;
};

static bool are_counted(void *user)
{
    struct counted *counted = user;
    counted->prompt = cluster_metric(&bugs.cluster, "refrain_prompt_tokens_total", "", NULL);
    counted->hits = cluster_metric(&bugs.cluster, "vllm:prefix_cache_hits_total", "", NULL);
    counted->queries = cluster_metric(&bugs.cluster, "vllm:prefix_cache_queries_total", "", NULL);
    return counted->prompt == counted->want_prompt;
}

static bool stands_still(void *user)
{
    struct counted *counted = user;
    double before = counted->prompt;
    (void)are_counted(counted);
    counted->want_prompt += counted->prompt == before;
    return counted->want_prompt > 300; /* polls: longer than metrics take to come */
}

/* Twelve that each need a third of the pool: most wait for blocks, and are tried again and again.
 */
static void test_b71_a_request_that_waits_for_blocks_is_counted_once(void **state)
{
    struct chat chats[12];
    struct counted counted = {.want_prompt = 0};
    double told = 0;
    (void)state;

    assert_true(poll_until(stands_still, &counted, 30000));
    double before = counted.prompt, queries = counted.queries, hits = counted.hits;
    for (unsigned i = 0; i < 12; i++) {
        json_t *body = json_pack("{s:o, s:i, s:b}", "prompt", prompt_of(900 + i, 100), "max_tokens",
                                 30, "ignore_eos", true);
        chat_init(&chats[i], bugs.cluster.url, COMPLETION_PATH, body);
    }
    chat_send_all(chats, 12, 12);
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(chats[i].status, 200);
        told += chats[i].prompt_tokens;
        chat_done(&chats[i]);
    }
    assert_true(told == 1200);
    counted.want_prompt = before + told;
    if (!poll_until(are_counted, &counted, 10000))
        fail_msg("%.0f prompt tokens were told, %.0f counted", told, counted.prompt - before);
    assert_true(counted.queries - queries == told);
    assert_true(counted.hits - hits <= counted.queries - queries);
}

static void test_b73_a_full_hit_computes_a_token_and_says_the_same(void **state)
{
    (void)state;
    for (unsigned k = 1; k <= 3; k++) {
        for (int off = -1; off <= 1; off++) {
            unsigned count = k * BLOCK + (unsigned)off, seed = 100 + 10 * k + (unsigned)(off + 1);
            struct told cold = complete(prompt_of(seed, count), NULL);
            struct told warm = complete(prompt_of(seed, count), NULL);
            assert_int_equal(cold.cached, 0);
            assert_int_equal(warm.cached, count - 1); /* all but the token that must be computed */
            assert_string_equal(warm.text, cold.text);
        }
    }
}

static void test_b76_another_salt_hits_nothing(void **state)
{
    static const char *const salts[] = {NULL, "a", "b", "model", "ab"};
    struct told first = complete(prompt_of(300, 40), NULL);
    (void)state;

    for (size_t i = 1; i < 5; i++) {
        struct told cold = complete(prompt_of(300, 40), salts[i]);
        assert_int_equal(cold.cached, 0);
        assert_string_equal(cold.text, first.text);
        assert_int_equal(complete(prompt_of(300, 40), salts[i]).cached, 39);
    }
}

static void test_b77_an_evicted_prefix_is_a_miss_and_computed_right(void **state)
{
    struct told first = complete(prompt_of(400, 64), NULL);
    (void)state;

    assert_int_equal(complete(prompt_of(400, 64), NULL).cached, 63);
    for (unsigned i = 0; i < 40; i++) /* more than the pool holds */
        (void)complete(prompt_of(500 + i, 120), NULL);
    struct told again = complete(prompt_of(400, 64), NULL);
    assert_int_equal(again.cached, 0);
    assert_string_equal(again.text, first.text);
}

/* The router's index holds what workers hold, not what it ever saw. */
static void test_b78_thousands_of_prompts_leave_the_router_s_memory_flat(void **state)
{
    static struct chat chats[PROMPTS / 4];
    uint64_t warm = 0;
    (void)state;

    for (unsigned part = 0; part < 4; part++) {
        for (unsigned i = 0; i < PROMPTS / 4; i++) {
            json_t *body = json_pack("{s:o, s:i}", "prompt",
                                     prompt_of(1000 + part * PROMPTS + i, 60), "max_tokens", 1);
            chat_init(&chats[i], bugs.cluster.url, COMPLETION_PATH, body);
        }
        chat_send_all(chats, PROMPTS / 4, AT_ONCE);
        for (unsigned i = 0; i < PROMPTS / 4; i++) {
            assert_int_equal(chats[i].status, 200);
            chat_done(&chats[i]);
        }
        if (part == 0)
            warm = proc_resident_bytes(bugs.router_pid);
    }
    bugs_assert_memory(bugs.router_pid, warm + (8u << 20));
}

static void test_afterwards_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    bugs_stop(&bugs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_b69_ten_thousand_chats_leave_no_block_and_no_memory, after),
        cmocka_unit_test_teardown(test_b71_a_request_that_waits_for_blocks_is_counted_once, after),
        cmocka_unit_test_teardown(test_b73_a_full_hit_computes_a_token_and_says_the_same, after),
        cmocka_unit_test_teardown(test_b76_another_salt_hits_nothing, after),
        cmocka_unit_test_teardown(test_b77_an_evicted_prefix_is_a_miss_and_computed_right, after),
        cmocka_unit_test_teardown(test_b78_thousands_of_prompts_leave_the_router_s_memory_flat,
                                  after),
        cmocka_unit_test(test_afterwards_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, bugs_teardown));
}
