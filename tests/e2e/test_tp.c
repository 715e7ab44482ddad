/* test_tp.c - 2, 3 and 8 ranks run (9 query and 3 KV heads: uneven and replicated splits) and give
 * the golden greedy text up to the first position whose margin is below the path's limit. */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define TINY "llama-gguf-f32"
#define PROMPT_TOKENS_MAX 512 /* the long one is golden/test_smollm2's */
/* Sums over ranks round differently, and int8 activations make much of it: on prompt "numbers" the
 * margin of 0.71 moved by as much between rank counts, while the float path stays exact. */
#define MARGIN_INT8 1.0
#define MARGIN_FLOAT 2e-3 /* golden/README.md, real models */
#define MARGIN_TINY 5e-4  /* and tiny ones */

static struct cluster cluster;
static json_t *golden;

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

/* How many greedy tokens every arithmetic within the limit must give. */
static size_t firm_tokens(const json_t *prompt, double margin)
{
    const json_t *margins = json_object_get(prompt, "margin");
    const char *stop = json_string_value(json_object_get(prompt, "stop"));
    size_t count = json_array_size(json_object_get(prompt, "greedy")), firm = 0;

    if (!margins)
        margins = json_object_get(prompt, "greedy_margin");
    if (stop && strcmp(stop, "eos") == 0)
        count--; /* the last is EOS, which is no text */
    while (firm < count && json_number_value(json_array_get(margins, firm)) >= margin)
        firm++;
    return firm;
}

/* The last firm token may end inside a character, which reads as U+FFFD. */
static size_t whole_bytes(const char *text)
{
    size_t bytes = strlen(text);
    while (bytes >= 3 && memcmp(text + bytes - 3, "\xef\xbf\xbd", 3) == 0)
        bytes -= 3;
    return bytes;
}

/* The text of the first `count` greedy tokens; NULL for none. */
static char *greedy_text(const json_t *prompt, size_t count)
{
    json_t *ids = json_array();
    struct http_answer answer;

    for (size_t i = 0; i < count; i++)
        json_array_append(ids, json_array_get(json_object_get(prompt, "greedy"), i));
    if (count == 0) {
        json_decref(ids);
        return NULL;
    }
    http_post_json(cluster.url, "/detokenize",
                   json_pack("{s:s, s:o}", "model", cluster.model, "tokens", ids), &answer);
    assert_int_equal(answer.status, 200);
    const char *text = json_string_value(json_object_get(answer.json, "prompt"));
    assert_non_null(text);
    char *copy = mem_strndup(text, whole_bytes(text));
    http_answer_done(&answer);
    return copy;
}

/* `input`: which of messages, text or ids is sent. Returns how many tokens were compared. */
static size_t check_prompt(const json_t *prompt, const char *input, double margin)
{
    size_t firm = firm_tokens(prompt, margin);
    char *expected = greedy_text(prompt, firm);
    bool is_chat = strcmp(input, "messages") == 0;
    struct chat chat;

    chat_init(&chat, cluster.url, is_chat ? CHAT_PATH : COMPLETION_PATH,
              json_pack("{s:s, s:O, s:i, s:i, s:b}", "model", cluster.model,
                        is_chat ? "messages" : "prompt", json_object_get(prompt, input),
                        "temperature", 0, "max_tokens", (int)(firm > 0 ? firm : 4), "ignore_eos",
                        !json_object_get(prompt, "stop")));
    chat_send(&chat);
    assert_int_equal(chat.status, 200);
    assert_int_equal(chat.prompt_tokens, json_array_size(json_object_get(prompt, "ids")));
    assert_in_range(chat.completion_tokens, 1, firm > 0 ? firm : 4);
    if (expected && strncmp(chat.text, expected, strlen(expected)) != 0)
        fail_msg("'%s': expected '%s', got '%s'",
                 json_string_value(json_object_get(prompt, "name")), expected, chat.text);
    mem_free(expected);
    chat_done(&chat);
    return firm;
}

static void start(const char *model, const char *ranks, const char *more)
{
    struct worker_view worker;

    cluster_start(&cluster, model,
                  (const char *const[]){"--groups", "1", "--tp", ranks, "--kv-cache-memory",
                                        "128MiB", more, NULL});
    assert_true(cluster_worker(&cluster, 0, &worker));
    assert_int_equal(worker.ranks, ranks[0] - '0');
    for (uint32_t rank = 0; rank < worker.ranks; rank++)
        assert_true(proc_is_alive(worker.pids[rank]));
}

static void check_smollm2(const char *ranks)
{
    size_t i, prompts = 0, firm = 0;
    json_t *prompt;

    start(e2e_smollm2(), ranks, NULL);
    json_array_foreach(json_object_get(golden, "prompts"), i, prompt)
    {
        if (json_array_size(json_object_get(prompt, "ids")) > PROMPT_TOKENS_MAX)
            continue;
        firm += check_prompt(prompt, json_object_get(prompt, "messages") ? "messages" : "text",
                             MARGIN_INT8);
        prompts++;
    }
    print_message("tp=%s: ready after %.2f s; %zu golden prompts, all %zu firm tokens equal\n",
                  ranks, cluster.ready_s, prompts, firm);
    assert_true(prompts >= 15 && firm >= 40);
    cluster_stop(&cluster);
}

static void test_two_ranks_with_uneven_heads_give_the_golden_text(void **state)
{
    (void)state;
    check_smollm2("2");
}

static void test_three_ranks_with_one_kv_head_each_give_the_golden_text(void **state)
{
    (void)state;
    check_smollm2("3");
}

static void test_eight_ranks_with_replicated_kv_heads_give_the_golden_text(void **state)
{
    (void)state;
    check_smollm2("8");
}

static void test_eight_ranks_on_the_reference_path_follow_float32_to_the_end(void **state)
{
    size_t i, firm = 0;
    json_t *prompt;
    (void)state;

    start(e2e_smollm2(), "8", "--reference");
    json_array_foreach(json_object_get(golden, "prompts"), i, prompt)
    {
        if (strcmp(json_string_value(json_object_get(prompt, "name")), "short question") == 0)
            firm += check_prompt(prompt, "messages", MARGIN_FLOAT);
    }
    print_message("tp=8 --reference: %zu firm tokens equal\n", firm);
    assert_int_equal(firm, 7); /* all of it, but EOS */
    cluster_stop(&cluster);
}

static void test_every_rank_count_gives_the_tiny_model_s_float32_text(void **state)
{
    static const char *const ranks[] = {"1", "2", "3", "4", "8"};
    json_t *tiny = e2e_json("golden/tiny/" TINY "/golden.json"), *prompt;
    (void)state;

    assert_non_null(tiny);
    for (size_t r = 0; r < sizeof(ranks) / sizeof(ranks[0]); r++) {
        size_t i, firm = 0;
        start(e2e_tiny(TINY), ranks[r], NULL);
        json_array_foreach(json_object_get(tiny, "prompts"), i, prompt)
        {
            firm += check_prompt(prompt, "ids", MARGIN_TINY);
        }
        print_message("tiny, tp=%s: %zu firm tokens equal\n", ranks[r], firm);
        assert_true(firm >= 32);
        cluster_stop(&cluster);
    }
    json_decref(tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_every_rank_count_gives_the_tiny_model_s_float32_text,
                                  teardown),
        cmocka_unit_test_teardown(test_two_ranks_with_uneven_heads_give_the_golden_text, teardown),
        cmocka_unit_test_teardown(test_three_ranks_with_one_kv_head_each_give_the_golden_text,
                                  teardown),
        cmocka_unit_test_teardown(test_eight_ranks_with_replicated_kv_heads_give_the_golden_text,
                                  teardown),
        cmocka_unit_test_teardown(test_eight_ranks_on_the_reference_path_follow_float32_to_the_end,
                                  teardown),
    };
    e2e_begin();
    (void)e2e_smollm2();
    (void)e2e_tiny(TINY);
    golden = e2e_json("golden/smollm2-135m-q4_1.json");
    if (!golden)
        e2e_skip("shared/golden/smollm2-135m-q4_1.json is absent");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    return e2e_finish(failed);
}
