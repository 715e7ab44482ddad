/* test_grammar.c - answers of a form: alone, in a crowd and preempted they are the same text, which
 * has the form; and the openai package, jsonschema and re agree on the real model. */
#include <cmocka.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define CHATS 16
#define TOKENS 220
#define CLIENT_DEADLINE_MS 280000u

static struct cluster cluster;

/* Long ones, so that the pool runs out; POSIX's extended regular expressions judge. */
static const struct {
    const char *field, *value, *judge;
} wishes[] = {
    {"guided_regex", "\"([a-z]{4,9}[,;] ){12,16}end\"", "^([a-z]{4,9}[,;] ){12,16}end$"},
    {"guided_json", "{\"type\":\"string\",\"pattern\":\"^[a-z]{100,140}$\"}",
     "^\"[a-z]{100,140}\"$"},
    {"guided_grammar", "\"root ::= pair{20} \\\"!\\\"\\npair ::= \\\"(\\\" [0-9] [0-9] \\\")\\\"\"",
     "^(\\([0-9][0-9]\\)){20}!$"},
    {"guided_choice", "[\"red and green\", \"red and blue\", \"none of them\"]",
     "^(red and (green|blue)|none of them)$"},
};
#define WISHES (sizeof(wishes) / sizeof(wishes[0]))

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static json_t *body_of(size_t i)
{
    json_t *body = completion_body(cluster.model, "Once upon a time there was", TOKENS);
    json_object_set_new(body, wishes[i % WISHES].field,
                        json_loads(wishes[i % WISHES].value, JSON_DECODE_ANY, NULL));
    json_object_set_new(body, "temperature", json_real(i % 3 == 0 ? 0 : 1.2));
    json_object_set_new(body, "seed", json_integer((json_int_t)i));
    return i % 2 == 0 ? body : streamed(body);
}

static void check_form(size_t i, const struct chat *chat)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, wishes[i % WISHES].judge, REG_EXTENDED | REG_NOSUB), 0);
    bool good = regexec(&regex, chat->text, 0, NULL, 0) == 0;
    regfree(&regex);
    if (!good || strcmp(chat->finish, "stop") != 0)
        fail_msg("%s: '%s' (%s)", wishes[i % WISHES].value, chat->text, chat->finish);
}

static void answer_all(size_t threads, char *ret_texts[CHATS])
{
    struct chat chats[CHATS];
    for (size_t i = 0; i < CHATS; i++)
        chat_init(&chats[i], cluster.url, COMPLETION_PATH, body_of(i));
    chat_send_all(chats, CHATS, threads);
    for (size_t i = 0; i < CHATS; i++) {
        if (chats[i].status != 200)
            fail_msg("%zu: status %d %s%s", i, chats[i].status, chats[i].failure,
                     chats[i].error_message);
        check_form(i, &chats[i]);
        ret_texts[i] = mem_strdup(chats[i].text);
        chat_done(&chats[i]);
    }
}

static bool was_preempted(void *user)
{
    (void)user;
    return cluster_metric(&cluster, "refrain_preemptions_total", "", NULL) > 0 &&
           cluster_metric(&cluster, "refrain_grammar_masks_total", "how=\"warm\"", NULL) > 0;
}

static void test_crowds_and_preemptions_change_no_answer(void **state)
{
    char *alone[CHATS], *crowd[CHATS];
    (void)state;
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "96KiB",
                                        "--max-model-len", "256", "--max-num-seqs", "8", NULL});
    answer_all(1, alone);
    assert_true(cluster_metric(&cluster, "refrain_preemptions_total", "", NULL) == 0);
    answer_all(CHATS, crowd);
    assert_true(poll_until(was_preempted, NULL, 10000)); /* metrics come with heartbeats */
    for (size_t i = 0; i < CHATS; i++) {
        assert_string_equal(crowd[i], alone[i]);
        mem_free(alone[i]);
        mem_free(crowd[i]);
    }
    cluster_stop(&cluster);
}

static void test_real_clients_get_what_they_validate(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "256MiB", NULL});
    python_assert_passes("openai_grammar.py", &cluster, "none", CLIENT_DEADLINE_MS);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowds_and_preemptions_change_no_answer),
        cmocka_unit_test(test_real_clients_get_what_they_validate),
    };
    e2e_begin();
    (void)e2e_smollm2();
    python_install_clients();
    return e2e_finish(cmocka_run_group_tests(tests, NULL, teardown));
}
