/* test_config.c - one cluster.conf for all programs, flags above it; whatever is unknown or out of
 * range is refused with a sentence that names the flag, or the file and the line. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define USAGE_CODE 2
#define PROGRAM_DEADLINE_MS 20000u

static struct cluster cluster;
static char folder[64], conf_path[96];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/refrain-e2e-conf-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(conf_path, sizeof(conf_path), "%s/cluster.conf", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    folder_remove(folder);
    return 0;
}

static void expect(int code, const char *words, const char *const *argv)
{
    struct program program;

    program_run(&program, PROGRAM_DEADLINE_MS, argv);
    bool right = program.code == code && (strstr(program.err, words) || strstr(program.out, words));
    if (!right)
        fail_msg("%s %s %s: wanted code %d and '%s'\ngot %d\n%s%s", argv[0], argv[1],
                 argv[1] && argv[2] ? argv[2] : "", code, words, program.code, program.out,
                 program.err);
    if (code != 0)
        assert_string_equal(program.out, "");
    program_done(&program);
}

static void test_cluster_conf_reaches_all_three_programs_and_flags_win(void **state)
{
    struct worker_view worker;
    struct http_answer answer;
    char *text = mem_printf("[cluster]\nmodel = %s\ngroups = 2\ntensor-parallel-size = 2\n"
                            "served-model-name = from-conf\nkv-cache-memory = 16MiB\nport = 1\n\n"
                            "[router]\nmax-body-bytes = 2000\npolicy = round_robin\n\n"
                            "[worker]\nmax-num-seqs = 3\nmax-num-batched-tokens = 64\n\n"
                            "[worker.1]\nmax-num-seqs = 5\n\n[up]\nlog-level = error\n",
                            e2e_tiny(MODEL));
    (void)state;

    file_write(conf_path, text);
    mem_free(text);
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--config", conf_path, "--max-num-batched-tokens", "32",
                                        "--max-body-bytes", "2500", "--no-enable-auto-tool-choice",
                                        "--drain-timeout=5", "--no-explain", NULL});
    assert_int_not_equal(cluster.port, 1); /* --port 0 won */
    for (int group = 0; group < 2; group++) {
        assert_true(cluster_worker(&cluster, group, &worker));
        assert_int_equal(worker.ranks, 2);
        assert_string_equal(worker.model, "from-conf");
        json_t *info = admin_call(worker.admin_socket, "show info");
        assert_int_equal(json_integer_value(json_object_get(info, "max_num_seqs")),
                         group == 1 ? 5 : 3);
        assert_int_equal(json_integer_value(json_object_get(info, "max_num_batched_tokens")), 32);
        json_decref(info);
    }
    http_get(cluster.url, "/v1/refrain/status", &answer);
    const json_t *router = json_object_get(answer.json, "router");
    assert_string_equal(json_string_value(json_object_get(router, "policy")), "round_robin");
    http_answer_done(&answer);
    char *body = mem_zalloc(3001);
    memset(body, ' ', 3000);
    http_post_text(cluster.url, CHAT_PATH, body, &answer);
    assert_int_equal(answer.status, 413);
    assert_non_null(strstr(answer.body, "2500")); /* the router's flags, given to `up` */
    http_answer_done(&answer);
    mem_free(body);
    cluster_stop(&cluster);
}

static void test_a_folder_is_a_model_named_after_the_folder(void **state)
{
    struct worker_view worker;
    (void)state;

    (void)e2e_tiny(MODEL);
    cluster_start(&cluster, SHARED_DIR "/golden/tiny/" MODEL,
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "16MiB", NULL});
    assert_true(cluster_worker(&cluster, 0, &worker));
    assert_string_equal(worker.model, MODEL);
    cluster_stop(&cluster);
}

static void test_keys_are_asked_for_and_compared(void **state)
{
    static const struct {
        const char *header;
        int status;
    } rows[] = {{"Authorization: Bearer second", 200}, {"Authorization: Bearer first", 200},
                {"Authorization: Bearer firs", 401},   {"Authorization: Bearer first ,", 401},
                {"Authorization: Basic first", 401},   {"X-Nothing: 1", 401}};
    struct http_answer answer;
    (void)state;

    file_write(conf_path, "[up]\napi-key = first,second\n");
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--config", conf_path, "--groups", "1", "--kv-cache-memory",
                                        "16MiB", NULL});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct http_request request = {
            .path = "/v1/models", .headers = (const char *const[]){rows[i].header, NULL}};
        http_send(cluster.url, &request, &answer);
        assert_int_equal(answer.status, rows[i].status);
        const json_t *error = json_object_get(answer.json, "error");
        if (rows[i].status == 401)
            assert_string_equal(json_string_value(json_object_get(error, "type")),
                                "authentication_error");
        http_answer_done(&answer);
    }
    http_get(cluster.url, "/health", &answer); /* probes have no key */
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    cluster_stop(&cluster);
}

static void test_bad_lines_of_the_file_are_refused_by_file_and_line(void **state)
{
    static const struct {
        const char *text, *where, *words, *program, *command;
    } rows[] = {
        {"[router]\nbogus = 1\n", ":2: ", "bogus", "refrain-router", NULL},
        {"[worker]\n\nmax-num-seqs = many\n", ":3: ", "max-num-seqs", "refrain-worker", NULL},
        {"[worker]\nmax-num-seqs = 0\n", ":2: ", "max-num-seqs", "refrain-worker", NULL},
        {"[worker]\nmax-gpu-memory = 4GiB\n", ":2: ", "FastChat", "refrain-worker", NULL},
        {"[cluster]\nbogus = 1\n", ":2: ", "bogus", "refrain-router", NULL},
        {"[cluster]\nbogus = 1\n", ":2: ", "bogus", "refrain-worker", NULL},
        {"[cluster]\nbogus = 1\n", ":2: ", "bogus", "refrain", "up"},
        {"[up]\ngroups = 1\ngroupz = 2\n", ":3: ", "groupz", "refrain", "up"},
        {"[nonsense]\na = 1\n", ":2: ", "nonsense", "refrain-router", NULL},
        {"[router]\nport 8000\n", ":2: ", "key = value", "refrain-router", NULL},
        {"port = 1\n", ":1: ", "[section]", "refrain-router", NULL},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *where = mem_printf("%s%s", conf_path, rows[i].where);
        file_write(conf_path, rows[i].text);
        for (int pass = 0; pass < 2; pass++) {
            const char *words = pass == 0 ? where : rows[i].words;
            if (rows[i].command)
                expect(USAGE_CODE, words,
                       (const char *const[]){rows[i].program, rows[i].command, "--config",
                                             conf_path, "--model", "x", NULL});
            else
                expect(USAGE_CODE, words,
                       (const char *const[]){rows[i].program, "--config", conf_path, NULL});
        }
        mem_free(where);
    }
    expect(USAGE_CODE, "/nowhere.conf",
           (const char *const[]){"refrain-router", "--config", "/nowhere.conf", NULL});
}

static void test_bad_flags_are_refused_with_code_two_and_a_sentence(void **state)
{
    static const struct {
        const char *words, *argv[6];
    } rows[] = {
        {"unknown flag '--bogus'", {"refrain-router", "--bogus"}},
        {"unknown flag '--bogus'", {"refrain-worker", "--bogus"}},
        {"unknown flag '--bogus'", {"refrain", "status", "--bogus"}},
        {"no command 'bogus'", {"refrain", "bogus"}},
        {"usage: refrain", {"refrain"}},
        {"--model is missing", {"refrain", "up"}},
        {"--model is missing", {"refrain-worker"}},
        {"--groups: 0", {"refrain", "up", "--groups", "0"}},
        {"--tp: 9", {"refrain", "up", "--tp", "9"}},
        {"--port: ", {"refrain", "up", "--port", "65536"}},
        {"--port: ", {"refrain-router", "--port", "http"}},
        {"--port needs a value", {"refrain-router", "--port"}},
        {"--header-timeout", {"refrain-router", "--header-timeout", "nan"}},
        {"--tensor-parallel-size", {"refrain-worker", "--tensor-parallel-size", "9"}},
        {"16 tokens", {"refrain-worker", "--model", "x", "--block-size", "32"}},
        {"--kv-cache-memory", {"refrain-worker", "--kv-cache-memory", "lots"}},
        {"--insecure-tcp",
         {"refrain-worker", "--model", "x", "--data-endpoint", "tcp://0.0.0.0:1"}},
        {"unexpected argument 'word'", {"refrain-router", "word"}},
        {"policy", {"refrain-router", "--policy", "magic"}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect(USAGE_CODE, rows[i].words, rows[i].argv);
}

static void test_flags_of_fastchat_and_vllm_get_a_sentence_that_names_ours(void **state)
{
    static const struct {
        const char *program, *flag, *words;
    } rows[] = {
        {"refrain-worker", "--max-gpu-memory", "--kv-cache-memory"},
        {"refrain-worker", "--max-paddings", "--max-num-batched-tokens"},
        {"refrain-worker", "--num-gpus", "--tensor-parallel-size"},
        {"refrain-worker", "--gpu-memory-utilization", "--kv-cache-memory"},
        {"refrain-worker", "--enforce-eager", "CPU"},
        {"refrain-worker", "--controller-address", "--router-endpoint"},
        {"refrain-router", "--controller-address", "--registration-endpoint"},
        {"refrain-router", "--model", "refrain-worker --model"},
        {"refrain-router", "--ssl-keyfile", "proxy"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect(USAGE_CODE, rows[i].words,
               (const char *const[]){rows[i].program, rows[i].flag, "1", NULL});
    /* Through `refrain up` too: the worker says it, refrain names the worker. */
    expect(1, "--kv-cache-memory",
           (const char *const[]){"refrain", "up", "--model", e2e_tiny(MODEL), "--port", "0",
                                 "--run-dir", folder, "--max-gpu-memory", "4GiB", NULL});
}

/* What no single flag can know; each row of them is in unit/worker/test_start_checks. */
static void test_settings_that_do_not_fit_together_are_refused_before_loading(void **state)
{
    static const struct {
        const char *flag, *value, *words;
    } rows[] = {
        {"--max-num-batched-tokens", "32", "max_num_seqs (256)"},
        {"--kv-cache-memory", "1KiB", "No available memory for the cache blocks"},
        {"--max-model-len", "9000", "derived max_model_len"},
        {"--host-tier-memory", "900000GiB", "Too large KV cache"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect(1, rows[i].words,
               (const char *const[]){"refrain-worker", "--model", e2e_tiny(MODEL), "--run-dir",
                                     folder, rows[i].flag, rows[i].value, NULL});
    expect(1, rows[0].words,
           (const char *const[]){"refrain", "up", "--model", e2e_tiny(MODEL), "--port", "0",
                                 "--run-dir", folder, rows[0].flag, rows[0].value, NULL});
}

static void test_help_and_version_of_every_program(void **state)
{
    static const char *const helps[][2] = {{"refrain-router", "--header-timeout"},
                                           {"refrain-worker", "enable-prefix-caching"},
                                           {"refrain-worker", "--max-num-batched-tokens"},
                                           {"refrain-worker", "--tensor-parallel-size"},
                                           {"refrain-worker", "--kv-cache-memory"},
                                           {"refrain-worker", "--max-model-len"}};
    static const char *const programs[] = {"refrain", "refrain-router", "refrain-worker"};
    (void)state;

    for (size_t i = 0; i < sizeof(helps) / sizeof(helps[0]); i++)
        expect(0, helps[i][1], (const char *const[]){helps[i][0], "--help", NULL});
    for (size_t i = 0; i < 3; i++)
        expect(0, programs[i], (const char *const[]){programs[i], "--version", NULL});
    expect(0, "commands", (const char *const[]){"refrain", "--help", NULL});
    expect(0, "--groups", (const char *const[]){"refrain", "up", "--help", NULL});
    expect(0, "json", (const char *const[]){"refrain", "status", "--help", NULL});
}

/* Each flag of the router is one of `refrain up`, but for those by which `up` starts it. */
static void test_up_takes_every_flag_of_the_router(void **state)
{
    static const char own[] = " insecure-tcp ready-fd registration-endpoint ";
    struct program router, up;
    uint32_t flags = 0;
    (void)state;

    program_run(&router, PROGRAM_DEADLINE_MS,
                (const char *const[]){"refrain-router", "--help", NULL});
    program_run(&up, PROGRAM_DEADLINE_MS, (const char *const[]){"refrain", "up", "--help", NULL});
    for (const char *at = router.out; (at = strstr(at, "\n  --")) != NULL; flags++) {
        char line[96], name[64];
        at += 3;
        (void)snprintf(line, sizeof(line), "\n  %.*s", (int)strcspn(at, " \n"), at);
        const char *from = strchr(line, ']') ? strchr(line, ']') + 1 : strstr(line, "--") + 2;
        (void)snprintf(name, sizeof(name), " %s ", from);
        if (!strstr(own, name) && !strstr(up.out, line))
            fail_msg("refrain up does not take '%s'", line);
    }
    assert_true(flags > 25);
    program_done(&router);
    program_done(&up);
}

static void test_a_busy_port_and_absent_files_are_named(void **state)
{
    char *other = mem_printf("%s/other", folder), port[16];
    (void)state;

    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "16MiB", NULL});
    (void)snprintf(port, sizeof(port), "%u", cluster.port);
    expect(1, port,
           (const char *const[]){"refrain", "up", "--model", e2e_tiny(MODEL), "--port", port,
                                 "--run-dir", other, "--kv-cache-memory", "16MiB", NULL});
    assert_false(file_exists(other));
    cluster_stop(&cluster);
    expect(1, "/nowhere.gguf",
           (const char *const[]){"refrain", "up", "--model", "/nowhere.gguf", NULL});
    expect(1, "nobody answers",
           (const char *const[]){"refrain", "status", "--url", "http://127.0.0.1:1", NULL});
    mem_free(other);
}

static void test_the_shipped_cluster_conf_is_read_by_every_program(void **state)
{
    static const char *const conf = SOURCE_DIR "/deploy/config/cluster.conf";
    (void)state;

    /* Its model is not on this machine, which is as far as a good file lets them come. */
    expect(1, "SmolLM2-135M-Instruct.Q4_1.gguf",
           (const char *const[]){"refrain", "up", "--config", conf, NULL});
    expect(1, "SmolLM2-135M-Instruct.Q4_1.gguf",
           (const char *const[]){"refrain-worker", "--config", conf, "--run-dir", folder, NULL});
    /* A router needs no model: an endpoint that cannot be bound shows that the file was taken. */
    expect(1, "/nowhere/router.sock",
           (const char *const[]){"refrain-router", "--config", conf, "--port", "0", "--run-dir",
                                 folder, "--registration-endpoint", "ipc:///nowhere/router.sock",
                                 NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster_conf_reaches_all_three_programs_and_flags_win),
        cmocka_unit_test(test_a_folder_is_a_model_named_after_the_folder),
        cmocka_unit_test(test_keys_are_asked_for_and_compared),
        cmocka_unit_test(test_bad_lines_of_the_file_are_refused_by_file_and_line),
        cmocka_unit_test(test_bad_flags_are_refused_with_code_two_and_a_sentence),
        cmocka_unit_test(test_flags_of_fastchat_and_vllm_get_a_sentence_that_names_ours),
        cmocka_unit_test(test_settings_that_do_not_fit_together_are_refused_before_loading),
        cmocka_unit_test(test_help_and_version_of_every_program),
        cmocka_unit_test(test_up_takes_every_flag_of_the_router),
        cmocka_unit_test(test_a_busy_port_and_absent_files_are_named),
        cmocka_unit_test(test_the_shipped_cluster_conf_is_read_by_every_program),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
