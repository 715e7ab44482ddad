/* test_kv_events.c - a consumer written for vLLM's KV events (pyzmq, msgspec) follows a worker. */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define VENV BUILD_DIR "/e2e-venv-events"
#define PYTHON VENV "/bin/python"
#define INSTALL_DEADLINE_MS 240000u
#define CLIENT_DEADLINE_MS 120000u

static struct cluster cluster;
static char folder[] = "/tmp/refrain-e2e-events-XXXXXX";
static char events[96], replay[96];

static int run_quietly(const char *const *argv)
{
    struct program program;
    program_run(&program, INSTALL_DEADLINE_MS, argv);
    int code = program.code;
    program_done(&program);
    return code;
}

static void install(void)
{
    if (file_exists(PYTHON) &&
        run_quietly((const char *const[]){PYTHON, "-c", "import zmq, msgspec", NULL}) == 0)
        return;
    if (run_quietly((const char *const[]){"/usr/bin/env", "python3", "-m", "venv", "--clear", VENV,
                                          NULL}) != 0 ||
        run_quietly((const char *const[]){PYTHON, "-m", "pip", "install", "--quiet",
                                          "--disable-pip-version-check", "pyzmq", "msgspec",
                                          NULL}) != 0)
        e2e_skip("pyzmq and msgspec cannot be installed into " VENV ": is PyPI reachable?");
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(events, sizeof(events), "ipc://%s/events", folder);
    (void)snprintf(replay, sizeof(replay), "ipc://%s/replay", folder);
    char *config = mem_printf("{\"enable_kv_cache_events\": true, \"endpoint\": \"%s\", "
                              "\"replay_endpoint\": \"%s\", \"topic\": \"kv-events\"}",
                              events, replay);
    cluster_start(&cluster, e2e_tiny("llama-gguf-f32"),
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "4MiB",
                                        "--kv-events-config", config, NULL});
    mem_free(config);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    folder_remove(folder);
    return 0;
}

static void test_a_consumer_of_vllm_s_format_follows_the_index(void **state)
{
    struct program program;
    (void)state;

    program_run(&program, CLIENT_DEADLINE_MS,
                (const char *const[]){PYTHON, SOURCE_DIR "/tests/e2e/clients/kv_events_client.py",
                                      cluster.url, cluster.model, events, replay, NULL});
    (void)fprintf(stdout, "%s%s", program.out, program.err);
    assert_int_equal(program.code, 0);
    assert_non_null(strstr(program.out, "all passed"));
    program_done(&program);
    cluster_assert_idle(&cluster);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_consumer_of_vllm_s_format_follows_the_index),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_tiny("llama-gguf-f32");
    install();
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
