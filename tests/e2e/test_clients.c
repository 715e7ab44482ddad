/* test_clients.c - clients that others wrote: the openai package and LangChain's client from PyPI
 * (harness_python.c), and the curl program. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define CLIENT_DEADLINE_MS 180000u
#define KEY "sk-e2e"

static struct cluster cluster, tools;

static int setup(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--kv-cache-memory", "256MiB", "--api-key", KEY, NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    cluster_abort(&tools);
    return 0;
}

static void test_the_openai_package_is_served(void **state)
{
    (void)state;
    python_assert_passes("openai_client.py", &cluster, KEY, CLIENT_DEADLINE_MS);
    cluster_assert_idle(&cluster);
}

/* The template renders tools and calls, and says by its tags how answers are read. */
static void test_tool_calls_and_reasoning_are_read_for_real_clients(void **state)
{
    (void)state;

    cluster_start(&tools, e2e_smollm2(),
                  (const char *const[]){"--kv-cache-memory", "256MiB", "--chat-template",
                                        SOURCE_DIR "/tests/e2e/clients/tools.jinja", NULL});
    python_assert_passes("openai_tools.py", &tools, "none", CLIENT_DEADLINE_MS);
    python_assert_passes("langchain_client.py", &tools, "none", CLIENT_DEADLINE_MS);
    cluster_stop(&tools);
}

static void test_curl_gets_a_whole_answer_and_a_stream(void **state)
{
    struct program program;
    char *url = mem_printf("%s" CHAT_PATH, cluster.url);
    (void)state;

    for (int stream = 0; stream < 2; stream++) {
        char *body =
            mem_printf("{\"messages\": [{\"role\": \"user\", \"content\": \"Say hello.\"}],"
                       " \"max_tokens\": 8, \"stream\": %s}",
                       stream ? "true" : "false");
        program_run(&program, 60000,
                    (const char *const[]){"/usr/bin/curl", "-sSN", "--noproxy", "*", url, "-H",
                                          "Content-Type: application/json", "-H", cluster.bearer,
                                          "-d", body, NULL});
        assert_int_equal(program.code, 0);
        assert_string_equal(program.err, "");
        if (stream) {
            assert_int_equal(strncmp(program.out, "data: {", 7), 0);
            assert_non_null(strstr(program.out, "\n\ndata: [DONE]\n\n"));
        } else {
            json_t *answer = json_loads(program.out, 0, NULL);
            assert_string_equal(json_string_value(json_object_get(answer, "object")),
                                "chat.completion");
            json_decref(answer);
        }
        program_done(&program);
        mem_free(body);
    }
    mem_free(url);
}

static void test_the_demo_of_quickstart_plays_its_four_turns(void **state)
{
    struct program program;
    struct cluster open;
    (void)state;

    cluster_start(&open, e2e_smollm2(), (const char *const[]){"--kv-cache-memory", "256MiB", NULL});
    program_run(&program, 120000,
                (const char *const[]){"/usr/bin/env", "python3", SOURCE_DIR "/deploy/demo.py",
                                      open.url, NULL});
    int code = program.code;
    char *out = mem_strdup(program.out);
    program_done(&program);
    if (code != 0)
        cluster_abort(&open);
    assert_int_equal(code, 0);
    for (int turn = 1; turn <= 4; turn++) {
        char words[32];
        (void)snprintf(words, sizeof(words), "turn %d: prompt ", turn);
        assert_non_null(strstr(out, words));
    }
    mem_free(out);
    cluster_stop(&open);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curl_gets_a_whole_answer_and_a_stream),
        cmocka_unit_test(test_the_openai_package_is_served),
        cmocka_unit_test(test_tool_calls_and_reasoning_are_read_for_real_clients),
        cmocka_unit_test(test_the_demo_of_quickstart_plays_its_four_turns),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    python_install_clients();
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
