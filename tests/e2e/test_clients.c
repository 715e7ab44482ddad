/* test_clients.c - clients that others wrote: the openai package from PyPI (in an environment made
 * once, in the build folder) and the curl program. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define OPENAI "openai==3.57.0"
#define VENV BUILD_DIR "/e2e-venv"
#define PYTHON VENV "/bin/python"
#define INSTALL_DEADLINE_MS 300000u
#define CLIENT_DEADLINE_MS 180000u
#define KEY "sk-e2e"

static struct cluster cluster;

/* 0, or what failed. */
static int run_quietly(const char *const *argv, uint32_t deadline_ms)
{
    struct program program;
    program_run(&program, deadline_ms, argv);
    if (program.code != 0)
        print_message("%s\n", program.err);
    int code = program.code;
    program_done(&program);
    return code;
}

static bool has_openai(void)
{
    return file_exists(PYTHON) &&
           run_quietly((const char *const[]){PYTHON, "-c",
                                             "import importlib.metadata as m, sys;"
                                             "sys.exit(m.version('openai') != '3.57.0')",
                                             NULL},
                       30000) == 0;
}

static void install_openai(void)
{
    if (has_openai())
        return;
    if (run_quietly(
            (const char *const[]){"/usr/bin/env", "python3", "-m", "venv", "--clear", VENV, NULL},
            INSTALL_DEADLINE_MS) != 0 ||
        run_quietly((const char *const[]){PYTHON, "-m", "pip", "install", "--quiet",
                                          "--disable-pip-version-check", OPENAI, NULL},
                    INSTALL_DEADLINE_MS) != 0)
        e2e_skip(OPENAI " cannot be installed into " VENV ": is PyPI reachable?");
}

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
    return 0;
}

static void test_the_openai_package_is_served(void **state)
{
    struct program program;
    (void)state;

    program_run(&program, CLIENT_DEADLINE_MS,
                (const char *const[]){PYTHON, SOURCE_DIR "/tests/e2e/clients/openai_client.py",
                                      cluster.url, cluster.model, KEY, NULL});
    (void)fprintf(stdout, "%s%s", program.out, program.err);
    assert_int_equal(program.code, 0);
    assert_non_null(strstr(program.out, "all passed"));
    program_done(&program);
    cluster_assert_idle(&cluster);
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
        cmocka_unit_test(test_the_demo_of_quickstart_plays_its_four_turns),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    install_openai();
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
