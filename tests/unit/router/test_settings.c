/* settings.c of the router: defaults, and what is refused before anything is opened. */
#include <cmocka.h>

#include <string.h>

#include "router/settings.h"

static int parse(struct router_settings *settings, struct errmsg *err, const char *a, const char *b,
                 const char *c, const char *d)
{
    char *argv[] = {(char *)"refrain-router", (char *)a, (char *)b, (char *)c, (char *)d, NULL};
    int argc = 1;
    while (argv[argc])
        argc++;
    return router_settings_parse(settings, argc, argv, err);
}

static void test_defaults_name_the_socket_by_the_folder(void **state)
{
    struct router_settings settings;
    struct errmsg err = {""};
    (void)state;
    assert_int_equal(parse(&settings, &err, "--run-dir", "/tmp/x", NULL, NULL), SETTINGS_RUN);
    assert_string_equal(settings.registration_endpoint, "ipc:///tmp/x/router.sock");
    assert_string_equal(settings.host, "127.0.0.1");
    assert_int_equal(settings.port, 8000);
    assert_int_equal(settings.body_bytes_max, 8 << 20);
    assert_string_equal(router_policy_name(&settings), "prefix");
    assert_int_equal(settings.history.kind, HISTORY_FULL);
    assert_int_equal(settings.session_turns_max, 0);
    assert_int_equal(settings.text_cache_bytes, 64 << 20);
    assert_int_equal(settings.turn_memory, 1);
    router_settings_done(&settings);
    assert_int_equal(parse(&settings, &err, "--run-dir", "/tmp/x", "--turn-memory", "off"),
                     SETTINGS_RUN);
    assert_int_equal(settings.turn_memory, 0);
    router_settings_done(&settings);
}

static void refuse(const char *flag, const char *value, const char *words)
{
    struct router_settings settings;
    struct errmsg err = {""};
    int r = parse(&settings, &err, "--run-dir", "/tmp/x", flag, value);
    if (r >= 0 || !strstr(err.text, words))
        print_message("%s %s: %d %s\n", flag, value, r, err.text);
    assert_true(r < 0);
    assert_non_null(strstr(err.text, words));
}

static void test_values_that_cannot_work_are_refused(void **state)
{
    (void)state;
    refuse("--registration-endpoint", "tcp://0.0.0.0:9000", "insecure-tcp");
    refuse("--registration-endpoint", "http://x", "no ipc:// or tcp://");
    refuse("--api-key", ", ,", "holds no key");
    refuse("--ready-fd", "2", "standard streams");
    refuse("--port", "70000", "65535");
    refuse("--turn-memory", "sometimes", "on");
    refuse("--policy", "best", "prefix");
    refuse("--max-body-bytes", "2GiB", "1 GiB");
    refuse("--history", "last_messages", "last_messages=N");
    refuse("--history", "token_budget=0", "from 1 to");
    refuse("--history-low-water", "0", "1");
    refuse("--model", "x.gguf", "refrain-worker");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_name_the_socket_by_the_folder),
        cmocka_unit_test(test_values_that_cannot_work_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
