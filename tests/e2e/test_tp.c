/* test_tp.c - 2, 3 and 8 ranks run (9 query and 3 KV heads: uneven and replicated splits) and give
 * the golden greedy text up to the first position whose margin is below the int8 path's limit. */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/e2e/harness.h"

#define PROMPT_TOKENS_MAX 512 /* the long one is golden/test_smollm2's */
#define MARGIN_MIN 0.5        /* golden/README.md: int8 activations */

static struct cluster cluster;
static json_t *golden;

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

/* How many greedy tokens every arithmetic within the limit must give. */
static size_t firm_tokens(const json_t *prompt)
{
    const json_t *margins = json_object_get(prompt, "margin");
    size_t count = json_array_size(json_object_get(prompt, "greedy")), firm = 0;

    if (strcmp(json_string_value(json_object_get(prompt, "stop")), "eos") == 0)
        count--; /* the last is EOS, which is no text */
    while (firm < count && json_number_value(json_array_get(margins, firm)) >= MARGIN_MIN)
        firm++;
    return firm;
}

static void check_prompt(const json_t *prompt, size_t *ret_firm)
{
    size_t firm = firm_tokens(prompt);
    json_t *ids = json_array(), *body;
    struct http_answer answer;
    struct chat chat;

    *ret_firm += firm;
    for (size_t i = 0; i < firm; i++)
        json_array_append(ids, json_array_get(json_object_get(prompt, "greedy"), i));
    body = json_pack("{s:s, s:o}", "model", cluster.model, "tokens", ids);
    if (firm > 0) {
        http_post_json(cluster.url, "/detokenize", body, &answer);
        assert_int_equal(answer.status, 200);
    } else {
        json_decref(body);
    }
    bool is_chat = json_object_get(prompt, "messages") != NULL;
    const char *input = is_chat ? "messages" : "text";
    body = json_pack("{s:s, s:O, s:i, s:i}", "model", cluster.model,
                     is_chat ? "messages" : "prompt", json_object_get(prompt, input), "temperature",
                     0, "max_tokens", (int)(firm > 16 ? firm : 16));
    chat_init(&chat, cluster.url, is_chat ? CHAT_PATH : COMPLETION_PATH, body);
    chat_send(&chat);
    assert_int_equal(chat.status, 200);
    assert_int_equal(chat.prompt_tokens, json_array_size(json_object_get(prompt, "ids")));
    assert_true(strlen(chat.text) > 0);
    if (firm > 0) {
        const char *text = json_string_value(json_object_get(answer.json, "prompt"));
        assert_non_null(text);
        if (strncmp(chat.text, text, strlen(text)) != 0)
            fail_msg("'%s': expected '%s', got '%s'",
                     json_string_value(json_object_get(prompt, "name")), text, chat.text);
        http_answer_done(&answer);
    }
    chat_done(&chat);
}

static void check_ranks(const char *ranks)
{
    size_t i, prompts = 0, firm = 0;
    json_t *prompt;
    struct worker_view worker;

    cluster_start(
        &cluster, e2e_smollm2(),
        (const char *const[]){"--groups", "1", "--tp", ranks, "--kv-cache-memory", "256MiB", NULL});
    assert_true(cluster_worker(&cluster, 0, &worker));
    assert_int_equal(worker.ranks, ranks[0] - '0');
    for (uint32_t rank = 0; rank < worker.ranks; rank++)
        assert_true(proc_is_alive(worker.pids[rank]));
    json_array_foreach(json_object_get(golden, "prompts"), i, prompt)
    {
        if (json_array_size(json_object_get(prompt, "ids")) > PROMPT_TOKENS_MAX)
            continue;
        check_prompt(prompt, &firm);
        prompts++;
    }
    print_message("tp=%s: ready after %.2f s; %zu golden prompts, all %zu firm tokens equal\n",
                  ranks, cluster.ready_s, prompts, firm);
    assert_true(prompts >= 15 && firm >= 60);
    cluster_stop(&cluster);
}

static void test_two_ranks_with_uneven_heads_give_the_golden_text(void **state)
{
    (void)state;
    check_ranks("2");
}

static void test_three_ranks_with_one_kv_head_each_give_the_golden_text(void **state)
{
    (void)state;
    check_ranks("3");
}

static void test_eight_ranks_with_replicated_kv_heads_give_the_golden_text(void **state)
{
    (void)state;
    check_ranks("8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_two_ranks_with_uneven_heads_give_the_golden_text, teardown),
        cmocka_unit_test_teardown(test_three_ranks_with_one_kv_head_each_give_the_golden_text,
                                  teardown),
        cmocka_unit_test_teardown(test_eight_ranks_with_replicated_kv_heads_give_the_golden_text,
                                  teardown),
    };
    e2e_begin();
    (void)e2e_smollm2();
    golden = e2e_json("golden/smollm2-135m-q4_1.json");
    if (!golden)
        e2e_skip("shared/golden/smollm2-135m-q4_1.json is absent");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    return e2e_finish(failed);
}
