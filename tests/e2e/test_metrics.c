/* test_metrics.c - /metrics is well-formed, has group and rank labels, and its token counters equal
 * the sums of what clients were told, to the token. */
#include <cmocka.h>
#include <ctype.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "proto/vllm_metrics.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define LINES_MAX 20000

static struct cluster cluster;

static int setup(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--tp", "2", "--kv-cache-memory", "16MiB", NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static char *get_metrics(void)
{
    struct http_answer answer;
    char type[96];
    http_get(cluster.url, "/metrics", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_header(&answer, "content-type", type, sizeof(type));
    assert_int_equal(strncmp(type, "text/plain; version=0.0.4", 25), 0);
    char *text = mem_strdup(answer.body);
    http_answer_done(&answer);
    return text;
}

static size_t name_bytes(const char *line)
{
    size_t bytes = 0;
    while (isalnum((unsigned char)line[bytes]) || line[bytes] == '_' || line[bytes] == ':')
        bytes++;
    return bytes;
}

/* Bytes of {a="b",...} with escapes; 0: malformed. */
static size_t label_bytes(const char *at)
{
    const char *begin = at;

    for (at++; *at != '}'; at++) {
        size_t bytes = name_bytes(at);
        if (bytes == 0 || at[bytes] != '=' || at[bytes + 1] != '"')
            return 0;
        for (at += bytes + 2; *at != '"'; at++) {
            if (*at == '\0' || *at == '\n')
                return 0;
            at += *at == '\\';
        }
        if (at[1] == '}')
            continue;
        if (*++at != ',')
            return 0;
    }
    return (size_t)(at + 1 - begin);
}

/* The family of a sample: a histogram's suffix belongs to it. */
static bool belongs(const char *sample, size_t bytes, const char *family, bool histogram)
{
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    size_t family_bytes = strlen(family);

    if (!histogram)
        return bytes == family_bytes && strncmp(sample, family, bytes) == 0;
    for (size_t i = 0; i < 3; i++) {
        if (bytes == family_bytes + strlen(suffixes[i]) &&
            strncmp(sample, family, family_bytes) == 0 &&
            strncmp(sample + family_bytes, suffixes[i], strlen(suffixes[i])) == 0)
            return true;
    }
    return false;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One sample line under `family`; its name and labels, for the search for duplicates. */
static char *check_sample(const char *line, const char *family, const char *type)
{
    size_t bytes = name_bytes(line), labels = line[bytes] == '{' ? label_bytes(line + bytes) : 0;
    char *end;

    if (bytes == 0 || (line[bytes] == '{' && labels == 0) || line[bytes + labels] != ' ')
        fail_msg("no sample: %s", line);
    if (!belongs(line, bytes, family, strcmp(type, "histogram") == 0))
        fail_msg("a sample outside of its family '%s': %s", family, line);
    if (strcmp(type, "counter") == 0 && strncmp(line, "refrain_", 8) == 0)
        assert_memory_equal(line + bytes - 6, "_total", 6);
    double value = strtod(line + bytes + labels + 1, &end);
    if (*end != '\0' || value != value)
        fail_msg("no number: %s", line);
    return mem_strndup(line, bytes + labels);
}

static void test_every_sample_has_help_and_type_before_it_and_none_is_double(void **state)
{
    static char *seen[LINES_MAX];
    static char families[512][128];
    char *text = get_metrics(), *next = text, family[128] = "", type[16] = "", helped[128] = "";
    size_t count = 0, families_count = 0;
    (void)state;

    assert_true(text[strlen(text) - 1] == '\n');
    for (char *line = strsep(&next, "\n"); line && *line; line = strsep(&next, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            (void)snprintf(helped, sizeof(helped), "%.*s", (int)name_bytes(line + 7), line + 7);
            assert_true(strlen(line) > 7 + strlen(helped) + 3); /* it says something */
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(sscanf(line, "# TYPE %127s %15s", family, type), 2);
            assert_string_equal(family, helped);
            for (size_t i = 0; i < families_count; i++)
                assert_string_not_equal(families[i], family);
            assert_true(families_count < 512);
            memcpy(families[families_count++], family, sizeof(family));
        } else {
            assert_true(count < LINES_MAX);
            seen[count++] = check_sample(line, family, type);
        }
    }
    qsort(seen, count, sizeof(seen[0]), compare_lines);
    for (size_t i = 1; i < count; i++)
        assert_string_not_equal(seen[i - 1], seen[i]);
    print_message("%zu families, %zu samples\n", families_count, count);
    assert_true(families_count > 30 && count > 100);
    for (size_t i = 0; i < count; i++)
        mem_free(seen[i]);
    mem_free(text);
}

static const char *const rank_labels[] = {"group=\"0\",rank=\"0\"", "group=\"0\",rank=\"1\"",
                                          "group=\"1\",rank=\"0\"", "group=\"1\",rank=\"1\""};

/* Every fourth heartbeat brings a worker's numbers: a second after the start at most. */
static bool all_ranks_have_reported(void *user)
{
    char *text = get_metrics();
    bool all = true;
    (void)user;

    for (size_t i = 0; i < 4; i++) {
        size_t samples;
        double bytes = metric_sum(text, "refrain_process_resident_bytes", rank_labels[i], &samples);
        all = all && samples == 1 && bytes > 1e6;
    }
    mem_free(text);
    return all;
}

static void test_each_rank_of_each_group_has_its_labels(void **state)
{
    (void)state;
    assert_true(poll_until(all_ranks_have_reported, NULL, 5000));
    char *text = get_metrics();
    for (size_t i = 0; i < 4; i++) {
        size_t samples;
        assert_true(metric_sum(text, "refrain_weights_bytes", rank_labels[i], &samples) > 1000);
        assert_int_equal(samples, 1);
        assert_true(metric_sum(text, "refrain_kv_bytes", rank_labels[i], &samples) > 1000);
        assert_int_equal(samples, 1);
    }
    mem_free(text);
}

static void test_vllm_s_names_are_there_once_for_each_group(void **state)
{
    char *text = get_metrics();
    (void)state;

    for (size_t i = 0; i < VLLM_METRICS; i++) {
        const struct metric_spec *spec = &vllm_metric_specs[i];
        char name[128], labels[128];
        (void)snprintf(name, sizeof(name), "%s%s", spec->name,
                       spec->type == METRIC_HISTOGRAM ? "_count" : "");
        (void)snprintf(labels, sizeof(labels), "model_name=\"%s\",engine=\"", cluster.model);
        size_t samples, values = spec->label ? 0 : 1;
        while (spec->label && spec->label_values[values])
            values++;
        (void)metric_sum(text, name, labels, &samples);
        if (samples != 2 * values)
            fail_msg("%s has %zu samples", name, samples);
    }
    size_t samples;
    assert_true(metric_sum(text, "vllm:cache_config_info", "block_size=\"16\",cache_dtype=\"auto\"",
                           &samples) == 2);
    mem_free(text);
}

struct sums {
    double prompt, cached, generated;
};

static struct sums told, before;

static bool counters_agree(void *user)
{
    struct sums *now = user;
    char *text = get_metrics();
    now->prompt = metric_sum(text, "refrain_prompt_tokens_total", "rank=\"0\"", NULL);
    now->cached = metric_sum(text, "refrain_cached_tokens_total", "rank=\"0\"", NULL);
    now->generated = metric_sum(text, "refrain_generated_tokens_total", "rank=\"0\"", NULL);
    mem_free(text);
    return now->prompt - before.prompt == told.prompt &&
           now->cached - before.cached == told.cached &&
           now->generated - before.generated == told.generated;
}

static void test_token_counters_equal_the_sums_of_usage(void **state)
{
    struct chat chats[60];
    struct sums now;
    (void)state;

    (void)counters_agree(&before);
    for (size_t i = 0; i < 60; i++) {
        char text[96];
        (void)snprintf(text, sizeof(text), "%s %zu", "the answers are the same", i % 7);
        json_t *body = chat_body(cluster.model, text, 1 + (unsigned)i % 9);
        chat_init(&chats[i], cluster.url, CHAT_PATH, i % 2 ? streamed(body) : body);
    }
    chat_send_all(chats, 60, 8);
    for (size_t i = 0; i < 60; i++) {
        assert_int_equal(chats[i].status, 200);
        told.prompt += chats[i].prompt_tokens;
        told.cached += chats[i].cached_tokens;
        told.generated += chats[i].completion_tokens;
        chat_done(&chats[i]);
    }
    if (!poll_until(counters_agree, &now, 10000)) /* every fourth heartbeat brings them */
        fail_msg("told: prompt %.0f cached %.0f generated %.0f; counted: %.0f %.0f %.0f",
                 told.prompt, told.cached, told.generated, now.prompt - before.prompt,
                 now.cached - before.cached, now.generated - before.generated);
    char *text = get_metrics();
    assert_true(metric_sum(text, "vllm:prompt_tokens_total", "", NULL) == now.prompt);
    assert_true(metric_sum(text, "vllm:generation_tokens_total", "", NULL) == now.generated);
    assert_true(metric_sum(text, "vllm:prefix_cache_hits_total", "", NULL) == now.cached);
    assert_true(metric_sum(text, "vllm:request_success_total", "", NULL) == 60);
    assert_true(metric_sum(text, "vllm:e2e_request_latency_seconds_count", "", NULL) == 60);
    assert_true(metric_sum(text, "vllm:time_to_first_token_seconds_count", "", NULL) == 60);
    assert_true(metric_sum(text, "vllm:inter_token_latency_seconds_count", "", NULL) ==
                now.generated - 60);
    assert_true(metric_sum(text, "vllm:request_generation_tokens_sum", "", NULL) == now.generated);
    assert_true(metric_sum(text, "vllm:request_prompt_tokens_sum", "", NULL) == now.prompt);
    assert_true(metric_sum(text, "vllm:request_params_n_count", "", NULL) == 60);
    assert_true(metric_sum(text, "refrain_router_inflight", "", NULL) == 0);
    mem_free(text);
    print_message("60 requests: prompt %.0f, cached %.0f, generated %.0f tokens, told = counted\n",
                  told.prompt, told.cached, told.generated);
    assert_true(told.cached > 0);
}

static void send_long_ones(struct chat *chats, size_t count, unsigned drop_at)
{
    for (size_t i = 0; i < count; i++) {
        char text[96];
        (void)snprintf(text, sizeof(text), "%zu is a number like any other %u", i, drop_at);
        json_t *body = chat_body(cluster.model, text, 120);
        (void)json_object_set_new(body, "ignore_eos", json_true());
        chat_init(&chats[i], cluster.url, CHAT_PATH, i % 2 ? streamed(body) : body);
        chats[i].drop_at = i % 2 ? drop_at : 0;
    }
    chat_send_all(chats, count, 8);
}

/* The pool cannot hold what runs, so sequences are preempted and computed again. */
static void test_preemptions_count_nothing_twice(void **state)
{
    struct chat chats[16];
    struct sums now;
    (void)state;

    cluster_stop(&cluster);
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--kv-cache-memory", "96KiB", "--max-model-len", "256",
                                        "--max-num-seqs", "8", NULL});
    before = told = (struct sums){0};
    send_long_ones(chats, 16, 0);
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(chats[i].status, 200);
        told.prompt += chats[i].prompt_tokens;
        told.cached += chats[i].cached_tokens;
        told.generated += chats[i].completion_tokens;
        chat_done(&chats[i]);
    }
    if (!poll_until(counters_agree, &now, 10000))
        fail_msg("told: prompt %.0f cached %.0f generated %.0f; counted: %.0f %.0f %.0f",
                 told.prompt, told.cached, told.generated, now.prompt, now.cached, now.generated);
    char *text = get_metrics();
    double preemptions = metric_sum(text, "vllm:num_preemptions_total", "", NULL);
    print_message("%.0f preemptions, told = counted\n", preemptions);
    assert_true(preemptions > 0);
    mem_free(text);
}

static bool all_are_counted(void *user)
{
    char *text = get_metrics();
    double ended = metric_sum(text, "vllm:request_success_total", "", NULL);
    mem_free(text);
    return ended == *(const double *)user;
}

/* What lost clients had is counted besides: the sums over ended requests are the counters. */
static void test_clients_that_went_away_are_counted_too(void **state)
{
    struct chat chats[16];
    double ended = 32;
    (void)state;

    send_long_ones(chats, 16, 3);
    for (size_t i = 0; i < 16; i++)
        chat_done(&chats[i]);
    assert_true(poll_until(all_are_counted, &ended, 10000));
    char *text = get_metrics();
    assert_true(metric_sum(text, "vllm:request_success_total", "\"abort\"", NULL) > 0);
    assert_true(metric_sum(text, "vllm:request_prompt_tokens_sum", "", NULL) ==
                metric_sum(text, "vllm:prompt_tokens_total", "", NULL));
    assert_true(metric_sum(text, "vllm:request_generation_tokens_sum", "", NULL) ==
                metric_sum(text, "vllm:generation_tokens_total", "", NULL));
    assert_true(metric_sum(text, "vllm:e2e_request_latency_seconds_count", "", NULL) == ended);
    mem_free(text);
}

static void test_b83_names_of_unknown_models_do_not_reach_the_page(void **state)
{
    struct chat chat;
    (void)state;

    chat_init(&chat, cluster.url, CHAT_PATH, chat_body("evil\"} 1\n# x \\ \xc3\xa9", "a", 1));
    chat_send(&chat);
    assert_int_equal(chat.status, 404);
    chat_done(&chat);
    char *text = get_metrics();
    assert_null(strstr(text, "evil"));
    mem_free(text);
}

static bool both_groups_0_have_reported(void *user)
{
    char *text = get_metrics();
    size_t samples;
    (void)user;
    (void)metric_sum(text, "refrain_kv_bytes", "group=\"0\",rank=\"0\",endpoint=\"ipc:", &samples);
    mem_free(text);
    return samples == 2;
}

/* As from another machine: a run folder of its own. */
static void test_two_groups_of_one_number_do_not_share_a_series(void **state)
{
    char program[PATH_MAX], *flags[7] = {NULL};
    struct errmsg err = {""};
    size_t samples;
    int status;
    (void)snprintf(program, sizeof(program), "%s/refrain-worker", BUILD_DIR);
    flags[0] = program;
    flags[1] = mem_printf("--model=%s", e2e_tiny(MODEL));
    flags[2] = mem_printf("--run-dir=%s/other", cluster.folder);
    flags[3] = mem_printf("--router-endpoint=ipc://%s/router.sock", cluster.run_dir);
    flags[4] = mem_strdup("--kv-cache-memory=16MiB");
    flags[5] = mem_strdup("--log-level=error");
    pid_t pid = process_spawn(flags, NULL, 0, -1, -1, SIGKILL, &err);
    if (pid < 0)
        fail_msg("%s", err.text);
    if (!poll_until(both_groups_0_have_reported, NULL, 10000))
        fail_msg("%s", get_metrics());
    char *text = get_metrics();
    (void)metric_sum(text, "refrain_kv_bytes", "group=\"1\",rank=\"0\"}", &samples);
    assert_int_equal(samples, 1); /* nobody else has this number */
    mem_free(text);
    test_every_sample_has_help_and_type_before_it_and_none_is_double(state);
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (size_t i = 1; i < 6; i++)
        mem_free(flags[i]);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sample_has_help_and_type_before_it_and_none_is_double),
        cmocka_unit_test(test_each_rank_of_each_group_has_its_labels),
        cmocka_unit_test(test_vllm_s_names_are_there_once_for_each_group),
        cmocka_unit_test(test_token_counters_equal_the_sums_of_usage),
        cmocka_unit_test(test_b83_names_of_unknown_models_do_not_reach_the_page),
        cmocka_unit_test(test_preemptions_count_nothing_twice),
        cmocka_unit_test(test_clients_that_went_away_are_counted_too),
        cmocka_unit_test(test_every_sample_has_help_and_type_before_it_and_none_is_double),
        cmocka_unit_test(test_two_groups_of_one_number_do_not_share_a_series),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
