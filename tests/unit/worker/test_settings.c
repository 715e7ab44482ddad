/* test_settings.c - flags of refrain-worker: defaults, refusals with sentences, paths. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "worker/kv/eviction.h"
#include "worker/settings.h"

static int parse(struct worker_settings *settings, const char *const *flags, struct errmsg *err)
{
    char *argv[16] = {(char *)"refrain-worker", (char *)"--model=m.gguf",
                      (char *)"--run-dir=/run/x"};
    int argc = 3;
    while (*flags != NULL)
        argv[argc++] = (char *)(uintptr_t)*flags++;
    return worker_settings_parse(settings, argc, argv, err);
}

static void test_defaults_are_vllms_where_it_has_them(void **state)
{
    static const char *const none[] = {NULL};
    struct worker_settings s;
    struct errmsg err = {""};
    char path[WORKER_PATH_MAX];
    (void)state;
    assert_int_equal(parse(&s, none, &err), 0);
    assert_int_equal(s.sequences_max, 256);
    assert_int_equal(s.step_tokens_max, 2048);
    assert_int_equal(s.context_tokens, 0);
    assert_int_equal(s.kv_bytes, 1u << 30);
    assert_int_equal(worker_backend_settings(&s).kv_dtype, KV_BFLOAT16);
    assert_string_equal(worker_kv_dtype(&s), "auto");
    assert_int_equal(s.ranks, 1);
    assert_true(s.threads >= 1);
    assert_true(s.prefix_caching);
    assert_ptr_equal(eviction_policies[s.eviction], &eviction_chat);
    assert_string_equal(s.router_endpoints, "ipc:///run/x/router.sock");
    worker_data_path(&s, path);
    assert_string_equal(path, "/run/x/worker-0.sock");
    worker_admin_path(&s, 0, path);
    assert_string_equal(path, "/run/x/worker-0.admin.sock");
    worker_admin_path(&s, 3, path);
    assert_string_equal(path, "/run/x/worker-0-rank-3.admin.sock");
    worker_settings_done(&s);
}

static void test_flags_in_vllms_spelling_are_taken(void **state)
{
    static const char *const flags[] = {"--max_num_seqs=8",
                                        "--no-enable-prefix-caching",
                                        "--kv-cache-memory",
                                        "2GiB",
                                        "--tensor-parallel-size=2",
                                        "--threads=3",
                                        "--reference",
                                        "--kv-cache-dtype=int8",
                                        NULL};
    struct worker_settings s;
    struct errmsg err = {""};
    (void)state;
    assert_int_equal(parse(&s, flags, &err), 0);
    assert_int_equal(s.sequences_max, 8);
    assert_false(s.prefix_caching);
    assert_int_equal(s.kv_bytes, 2ull << 30);
    assert_int_equal(s.ranks, 2);
    assert_int_equal(s.threads, 3);
    assert_int_equal(s.backend, WORKER_BACKEND_REF);
    assert_string_equal(worker_backend_settings(&s).name, "ref");
    assert_int_equal(worker_backend_settings(&s).kv_dtype, KV_INT8);
    worker_settings_done(&s);
}

static void test_what_cannot_be_is_refused_by_a_sentence(void **state)
{
    static const struct {
        const char *flag, *part;
    } cases[] = {
        {"--block-size=32", "blocks have 16 tokens"},
        {"--ids=x", "--check"},
        {"--router-endpoint=tcp://a:1", "--insecure-tcp"},
        {"--data-endpoint=http://a", "no ipc:// or tcp://"},
        {"--router-endpoint=ipc://a,tcp://b:1", "--insecure-tcp"},
        {"--data-endpoint=ipc://*", "no wildcard"},
        {"--tensor-parallel-size=0", "between 1 and 8"},
        {"--gpu-memory-utilization=0.5", "--kv-cache-memory"},
        {"--kv-cache-dtype=fp8", "--kv-cache-dtype: 'fp8' is none of: auto, bfloat16, int8"},
        {"--max-gpu-memory=1", "--kv-cache-memory"},
        {"--max-paddings=1", "--max-num-batched-tokens"},
        {"--enforce-eager", "graphs"},
        {"--disk-tier-path=/x", "--disk-tier-size"},
        {"--disk-tier-size=1GiB", "--disk-tier-path"},
        {"--no-such-flag", "--help"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const flags[] = {cases[i].flag, NULL};
        struct worker_settings s;
        struct errmsg err = {""};
        assert_true(parse(&s, flags, &err) < 0);
        if (strstr(err.text, cases[i].part) == NULL)
            fail_msg("%s: %s", cases[i].flag, err.text);
    }
}

static void test_disk_tier_has_a_folder_per_group_and_needs_what_it_keeps(void **state)
{
    static const char *const good[] = {"--disk-tier-path=/var/kv", "--disk-tier-size=1GiB",
                                       "--host-tier-memory=1MiB", "--group=7", NULL};
    static const char *const relative[] = {"--disk-tier-path=kv", "--disk-tier-size=1GiB", NULL};
    static const char *const no_cache[] = {"--disk-tier-path=/var/kv", "--disk-tier-size=1GiB",
                                           "--no-enable-prefix-caching", NULL};
    char path[WORKER_DISK_PATH_MAX];
    struct worker_settings s;
    struct errmsg err = {""};
    (void)state;
    assert_int_equal(parse(&s, good, &err), 0);
    worker_disk_path(&s, path);
    assert_string_equal(path, "/var/kv/worker-7");
    assert_int_equal(worker_settings_tier_bytes(&s), (1u << 20) + (256u << 20));
    assert_true(worker_whole_windows(&s));
    worker_settings_done(&s);
    assert_int_equal(parse(&s, relative, &err), -EINVAL);
    assert_non_null(strstr(err.text, "an absolute path"));
    assert_int_equal(parse(&s, no_cache, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--enable-prefix-caching"));
}

static void test_tcp_is_allowed_when_said_so(void **state)
{
    static const char *const flags[] = {"--data-endpoint=tcp://127.0.0.1:1", "--insecure-tcp",
                                        NULL};
    struct worker_settings s;
    struct errmsg err = {""};
    (void)state;
    assert_int_equal(parse(&s, flags, &err), 0);
    worker_settings_done(&s);
}

static void test_a_run_dir_too_long_for_a_socket_is_refused(void **state)
{
    char flag[160] = "--run-dir=/";
    const char *const flags[] = {flag, NULL};
    struct worker_settings s;
    struct errmsg err = {""};
    (void)state;
    memset(flag + 11, 'a', 120);
    assert_int_equal(parse(&s, flags, &err), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_vllms_where_it_has_them),
        cmocka_unit_test(test_flags_in_vllms_spelling_are_taken),
        cmocka_unit_test(test_what_cannot_be_is_refused_by_a_sentence),
        cmocka_unit_test(test_tcp_is_allowed_when_said_so),
        cmocka_unit_test(test_a_run_dir_too_long_for_a_socket_is_refused),
        cmocka_unit_test(test_disk_tier_has_a_folder_per_group_and_needs_what_it_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
