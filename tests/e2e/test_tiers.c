/* test_tiers.c - KV that leaves the pool comes back from slower memory with the same bits: twelve
 * chats in a pool for four compute what the chats bring and nothing twice. Prompts are token ids,
 * so that every count is worked out by hand. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define SHARED_TOKENS 200 /* of all chats */
#define USER_TOKENS 100
#define ANSWER_TOKENS 8 /* of which the last one's KV is the next turn's to compute */
#define TURNS_MAX 6
#define CHATS_MAX 12
#define IDS_MAX (SHARED_TOKENS + TURNS_MAX * (USER_TOKENS + ANSWER_TOKENS))

struct chat_ids {
    uint32_t ids[IDS_MAX];
    size_t count;
};

/* What a run of all chats gave. */
struct run {
    struct chat_ids chats[CHATS_MAX];
    char *answers[CHATS_MAX][TURNS_MAX]; /* ids, texts and log-probabilities */
    size_t chats_count, turns;
    uint64_t prompt, computed[TURNS_MAX + 1]; /* tokens: all, and up to so many turns */
    uint64_t host, disk;                      /* of those that were not computed */
};

static struct cluster cluster;
static char folder[] = "/tmp/refrain-tiers-XXXXXX";

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

/* kv: memory of the pool; worker: lines of its section. */
static void start(const char *ranks, const char *kv, const char *worker)
{
    char path[64], conf[512];
    (void)snprintf(path, sizeof(path), "%s/cluster.conf", folder);
    (void)snprintf(conf, sizeof(conf), "[router]\nexplain = true\n[worker]\n%s", worker);
    file_write(path, conf);
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--config", path, "--groups", "1", "--tp", ranks,
                                        "--kv-cache-memory", kv, "--max-model-len", "1024", NULL});
}

static void append(struct chat_ids *chat, uint32_t id)
{
    assert_true(chat->count < IDS_MAX);
    chat->ids[chat->count++] = id;
}

static void begin(struct run *run, size_t chats, size_t turns)
{
    memset(run, 0, sizeof(*run));
    run->chats_count = chats;
    run->turns = turns;
    for (size_t c = 0; c < chats; c++)
        for (uint32_t i = 0; i < SHARED_TOKENS; i++)
            append(&run->chats[c], 1000 + i * 7 % 500);
}

/* One turn of one chat: 100 tokens of the user, 32 of the model. */
static void send_turn(struct run *run, size_t c, size_t turn)
{
    struct chat_ids *chat = &run->chats[c];
    struct http_answer answer;
    json_t *ids = json_array();
    for (uint32_t i = 0; i < USER_TOKENS; i++)
        append(chat, 2000 + (uint32_t)(c * 977 + turn * 131 + i * 17) % 20000);
    for (size_t i = 0; i < chat->count; i++)
        json_array_append_new(ids, json_integer(chat->ids[i]));
    http_post_json(cluster.url, "/v1/completions",
                   json_pack("{s:s, s:o, s:i, s:i, s:b, s:b, s:i}", "model", cluster.model,
                             "prompt", ids, "max_tokens", ANSWER_TOKENS, "temperature", 0,
                             "ignore_eos", 1, "return_token_ids", 1, "logprobs", 1),
                   &answer);
    if (answer.status != 200)
        fail_msg("status %d: %s", answer.status, answer.body);
    const json_t *usage = json_object_get(answer.json, "usage");
    const json_t *choice = json_array_get(json_object_get(answer.json, "choices"), 0);
    const json_t *tiers =
        json_object_get(json_object_get(answer.json, "refrain"), "cached_by_tier");
    const json_t *generated = json_object_get(choice, "token_ids");
    uint64_t prompt = json_count(usage, NULL, "prompt_tokens");
    uint64_t cached = json_count(usage, "prompt_tokens_details", "cached_tokens");
    assert_int_equal(prompt, chat->count);
    assert_int_equal(json_array_size(generated), ANSWER_TOKENS);
    assert_int_equal(cached, json_count(tiers, NULL, "pool") + json_count(tiers, NULL, "host") +
                                 json_count(tiers, NULL, "disk"));
    run->prompt += prompt;
    run->computed[turn + 1] += prompt - cached;
    run->host += json_count(tiers, NULL, "host");
    run->disk += json_count(tiers, NULL, "disk");
    for (size_t i = 0; i < ANSWER_TOKENS; i++)
        append(chat, (uint32_t)json_integer_value(json_array_get(generated, i)));
    char *text = json_dumps(choice, JSON_SORT_KEYS);
    run->answers[c][turn] = mem_strdup(text);
    free(text); /* jansson's */
    http_answer_done(&answer);
}

/* Turns [from, to) of every chat, round robin. */
static void send_turns(struct run *run, size_t from, size_t to)
{
    for (size_t turn = from; turn < to; turn++) {
        run->computed[turn + 1] = run->computed[turn];
        for (size_t c = 0; c < run->chats_count; c++)
            send_turn(run, c, turn);
    }
    cluster_assert_pool(&cluster, 0);
}

static void assert_same(const struct run *a, const struct run *b)
{
    for (size_t c = 0; c < a->chats_count; c++)
        for (size_t turn = 0; turn < a->turns; turn++)
            assert_string_equal(a->answers[c][turn], b->answers[c][turn]);
}

static void done(struct run *run)
{
    for (size_t c = 0; c < run->chats_count; c++)
        for (size_t turn = 0; turn < run->turns; turn++)
            mem_free(run->answers[c][turn]);
}

/* 200 once, 100 per chat, then per turn 100 and the token that the turn before only sampled. */
static uint64_t least(size_t chats, size_t turns)
{
    return SHARED_TOKENS + chats * USER_TOKENS + chats * (turns - 1) * (USER_TOKENS + 1);
}

static void test_twelve_chats_in_a_pool_for_four_compute_nothing_twice(void **state)
{
    struct run untouched, tiered;
    (void)state;
    start("1", "400MiB", "");
    begin(&untouched, 12, 3);
    send_turns(&untouched, 0, 3);
    cluster_stop(&cluster);
    start("1", "62MiB", "host-tier-memory = 320MiB\n");
    begin(&tiered, 12, TURNS_MAX);
    send_turns(&tiered, 0, TURNS_MAX);
    json_t *tiers = cluster_admin(&cluster, 0, "show tiers");
    uint64_t host_blocks = json_count(tiers, "host", "blocks");
    uint64_t blocks_max = json_count(tiers, "host", "blocks_max");
    assert_int_equal(json_count(tiers, "host", "cached_tokens"), tiered.host);
    assert_int_equal(json_count(tiers, "host", "drops"), 0);
    json_decref(tiers);
    assert_true(host_blocks > 0 && host_blocks <= blocks_max);
    assert_true(blocks_max * 368640 <= 320u << 20);
    cluster_stop(&cluster);
    print_message("12 chats: computed tokens after 5 turns %llu (least %llu), after 6 turns %llu "
                  "(least %llu); %llu from the host tier\n",
                  (unsigned long long)tiered.computed[5], (unsigned long long)least(12, 5),
                  (unsigned long long)tiered.computed[6], (unsigned long long)least(12, 6),
                  (unsigned long long)tiered.host);
    assert_int_equal(least(12, 5), 6248);
    assert_true(tiered.computed[5] <= 6248 * 102 / 100);
    assert_true(tiered.computed[6] <= least(12, 6) * 102 / 100);
    assert_true(tiered.host > 7000); /* else nothing was evicted */
    assert_same(&untouched, &tiered);
    done(&untouched);
    done(&tiered);
}

static void test_two_ranks_get_back_the_bits_of_their_own_heads(void **state)
{
    struct run untouched, tiered;
    (void)state;
    start("2", "200MiB", "");
    begin(&untouched, 5, 3);
    send_turns(&untouched, 0, 3);
    cluster_stop(&cluster);
    start("2", "16MiB", "host-tier-memory = 128MiB\n"); /* 68 blocks; the chats need 117 */
    begin(&tiered, 5, 3);
    send_turns(&tiered, 0, 3);
    cluster_stop(&cluster);
    print_message("2 ranks: %llu tokens from the host tier\n", (unsigned long long)tiered.host);
    assert_true(tiered.host > 300);
    assert_true(tiered.computed[3] <= least(5, 3) * 102 / 100);
    assert_same(&untouched, &tiered);
    done(&untouched);
    done(&tiered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_twelve_chats_in_a_pool_for_four_compute_nothing_twice,
                                  teardown),
        cmocka_unit_test_teardown(test_two_ranks_get_back_the_bits_of_their_own_heads, teardown),
    };
    e2e_begin();
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    folder_remove(folder);
    return e2e_finish(failed);
}
