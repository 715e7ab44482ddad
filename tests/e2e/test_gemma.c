/* test_gemma.c - Gemma 3 270M end to end: a prefix that is longer than the window of the sliding
 * layers is reused with the same bits, and bos stands once in front of what a user sends. The model
 * is the base one: it has no template, so the makers' one is given by --chat-template. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define BOS 2
#define TURN_END 106
#define LONG_PROMPT 7 /* of the golden prompts: 1482 ids, the window is 512 */

/* What the makers' template does with plain chats: bos, roles of its own, the system text in front
 * of the first user's. */
#define TEMPLATE                                                                             \
    "{{ bos_token }}{% if messages[0].role == 'system' %}"                                   \
    "{% set first = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}{% else %}"  \
    "{% set first = '' %}{% set rest = messages %}{% endif %}"                               \
    "{% for m in rest %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n" \
    "{{ (first if loop.first else '') + m.content | trim }}<end_of_turn>\n{% endfor %}"      \
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"

static struct cluster cluster;
static char folder[] = "/tmp/refrain-gemma-XXXXXX", template_path[64];
static json_t *golden;

static int setup(void **state)
{
    (void)state;
    (void)snprintf(template_path, sizeof(template_path), "%s/chat.jinja", folder);
    file_write(template_path, TEMPLATE);
    cluster_start(&cluster, e2e_gemma3(),
                  (const char *const[]){"--groups", "1", "--chat-template", template_path,
                                        "--max-model-len", "2048", "--kv-cache-memory", "128MiB",
                                        NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    folder_remove(folder);
    json_decref(golden);
    return 0;
}

static json_t *post(const char *path, json_t *body)
{
    return cluster_post(&cluster, path, body, 200);
}

static json_int_t usage(const json_t *answer, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(answer, "usage"), key));
}

static json_int_t cached(const json_t *answer)
{
    const json_t *details =
        json_object_get(json_object_get(answer, "usage"), "prompt_tokens_details");
    return json_integer_value(json_object_get(details, "cached_tokens"));
}

static json_t *complete(json_t *prompt, const char *salt)
{
    return post(COMPLETION_PATH, json_pack("{s:s, s:o, s:i, s:i, s:i, s:s}", "model", cluster.model,
                                           "prompt", prompt, "max_tokens", 12, "temperature", 0,
                                           "logprobs", 5, "cache_salt", salt));
}

/* The three prompts had 279 blocks; a window lies in 33 at most, and nobody runs any more. */
static void assert_windows_are_idle(void)
{
    json_t *blocks = cluster_admin(&cluster, 0, "show blocks");
    assert_int_equal(json_integer_value(json_object_get(blocks, "window_tokens")), 512);
    assert_int_equal(json_integer_value(json_object_get(blocks, "window_private")), 0);
    assert_int_equal(json_integer_value(json_object_get(blocks, "window_shared")), 0);
    assert_true(json_integer_value(json_object_get(blocks, "window_cached")) >= 33);
    json_decref(blocks);
}

static void test_a_prefix_longer_than_the_window_is_reused_with_the_same_bits(void **state)
{
    json_t *ids =
        json_object_get(json_array_get(json_object_get(golden, "prompts"), LONG_PROMPT), "ids");
    (void)state;
    json_t *first = complete(json_incref(ids), "one");
    json_t *again = complete(json_incref(ids), "one");
    json_t *salted = complete(json_incref(ids), "two");
    assert_windows_are_idle();
    assert_int_equal(usage(first, "prompt_tokens"), 1482);
    assert_int_equal(cached(first), 0);
    assert_true(cached(again) >= 1472); /* all whole blocks */
    assert_int_equal(cached(salted), 0);
    assert_true(json_equal(json_object_get(first, "choices"), json_object_get(again, "choices")));
    assert_true(json_equal(json_object_get(first, "choices"), json_object_get(salted, "choices")));
    json_decref(first);
    json_decref(again);
    json_decref(salted);
}

static void test_a_plain_text_gets_bos_and_the_golden_ids(void **state)
{
    const json_t *prompt = json_array_get(json_object_get(golden, "prompts"), 0);
    const char *text = json_string_value(json_object_get(prompt, "text"));
    (void)state;
    assert_int_equal(strncmp(text, "<bos>", 5), 0);
    json_t *answer =
        post("/tokenize", json_pack("{s:s, s:s}", "model", cluster.model, "prompt", text + 5));
    assert_true(json_equal(json_object_get(answer, "tokens"), json_object_get(prompt, "ids")));
    json_decref(answer);
    answer = complete(json_string(text + 5), "plain");
    assert_int_equal(usage(answer, "prompt_tokens"),
                     json_array_size(json_object_get(prompt, "ids")));
    json_decref(answer);
}

static void test_a_chat_has_one_bos_and_ends_turns(void **state)
{
    (void)state;
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "system", "content", "Brief.",
                                 "role", "user", "content", "Hello");
    json_t *answer =
        post("/tokenize", json_pack("{s:s, s:O}", "model", cluster.model, "messages", messages));
    const json_t *tokens = json_object_get(answer, "tokens"), *id = NULL;
    size_t i = 0, bos = 0, ends = 0;
    json_array_foreach(tokens, i, id)
    {
        bos += json_integer_value(id) == BOS;
        ends += json_integer_value(id) == TURN_END;
    }
    assert_int_equal(json_integer_value(json_array_get(tokens, 0)), BOS);
    assert_int_equal(bos, 1);
    assert_int_equal(ends, 1);
    json_t *chat =
        post(CHAT_PATH, json_pack("{s:s, s:o, s:i, s:i}", "model", cluster.model, "messages",
                                  messages, "max_tokens", 4, "temperature", 0));
    assert_int_equal(usage(chat, "prompt_tokens"), json_array_size(tokens));
    json_decref(answer);
    json_decref(chat);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prefix_longer_than_the_window_is_reused_with_the_same_bits),
        cmocka_unit_test(test_a_plain_text_gets_bos_and_the_golden_ids),
        cmocka_unit_test(test_a_chat_has_one_bos_and_ends_turns),
    };
    e2e_begin();
    (void)e2e_gemma3();
    golden = e2e_json("golden/gemma3-270m-q4_k_m.json");
    if (golden == NULL)
        e2e_skip("%s/golden is absent", SHARED_DIR);
    assert_non_null(mkdtemp(folder));
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
