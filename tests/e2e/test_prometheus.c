/* test_prometheus.c - the real Prometheus reads the page: promtool has nothing to say of our names,
 * and a server that scrapes it answers queries with the numbers that the page shows. */
#include <arpa/inet.h>
#include <cmocka.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define PROMETHEUS "/usr/bin/prometheus"
#define PROMTOOL "/usr/bin/promtool"
#define SCRAPE_DEADLINE_MS 30000u

static struct cluster cluster;
static char folder[] = "/tmp/refrain-e2e-prometheus-XXXXXX";
static char prometheus_url[64];
static pid_t prometheus = -1;

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--kv-cache-memory", "16MiB", NULL});
    return 0;
}

static void stop_prometheus(void)
{
    int status;
    if (prometheus < 0)
        return;
    (void)kill(prometheus, SIGKILL);
    assert_int_equal(waitpid(prometheus, &status, 0), prometheus);
    prometheus = -1;
}

static int teardown(void **state)
{
    (void)state;
    stop_prometheus();
    cluster_abort(&cluster);
    folder_remove(folder);
    return 0;
}

static void write_file(const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* promtool minds the colon in vLLM's names, which is theirs, and nothing else. */
static void test_promtool_has_nothing_to_say_of_our_names(void **state)
{
    struct http_answer answer;
    struct program program;
    char command[256];
    (void)state;

    http_get(cluster.url, "/metrics", &answer);
    write_file("page", answer.body);
    http_answer_done(&answer);
    (void)snprintf(command, sizeof(command), PROMTOOL " check metrics < %s/page 2>&1", folder);
    program_run(&program, 30000, (const char *const[]){"/bin/sh", "-c", command, NULL});
    assert_true(program.code == 0 || program.code == 3); /* 3: lint */
    char *next = program.out;
    for (char *line = strsep(&next, "\n"); line; line = strsep(&next, "\n")) {
        if (line[0] && strncmp(line, "vllm:", 5) != 0)
            fail_msg("promtool: %s", line);
    }
    program_done(&program);
}

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    (void)close(fd);
    return ntohs(address.sin_port);
}

static double query(const char *expression, bool *ret_known)
{
    struct http_answer answer;
    char path[256];
    double value = 0;

    (void)snprintf(path, sizeof(path), "/api/v1/query?query=%s", expression);
    *ret_known = false;
    http_get(prometheus_url, path, &answer);
    json_t *root = answer.status == 200 ? json_loads(answer.body, 0, NULL) : NULL;
    json_t *result = json_object_get(json_object_get(root, "data"), "result");
    json_t *pair = json_object_get(json_array_get(result, 0), "value");
    if (json_array_size(pair) == 2) {
        *ret_known = true;
        value = strtod(json_string_value(json_array_get(pair, 1)), NULL);
    }
    json_decref(root);
    http_answer_done(&answer);
    return value;
}

static bool has_scraped(void *user)
{
    bool known;
    (void)user;
    return query("sum(vllm:request_success_total)", &known) == 1 && known;
}

static void start_prometheus(void)
{
    char *config, config_path[128], data[128], address[64], log_path[128];
    struct errmsg err = {""};
    int port = free_port();

    config = mem_printf("scrape_configs:\n- job_name: refrain\n  scrape_interval: 1s\n"
                        "  static_configs:\n  - targets: ['%s']\n",
                        cluster.url + strlen("http://"));
    write_file("prometheus.yml", config);
    mem_free(config);
    (void)snprintf(config_path, sizeof(config_path), "--config.file=%s/prometheus.yml", folder);
    (void)snprintf(data, sizeof(data), "--storage.tsdb.path=%s/data", folder);
    (void)snprintf(address, sizeof(address), "--web.listen-address=127.0.0.1:%d", port);
    (void)snprintf(prometheus_url, sizeof(prometheus_url), "http://127.0.0.1:%d", port);
    (void)snprintf(log_path, sizeof(log_path), "%s/log", folder);
    int log = open(log_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(log >= 0);
    const char *argv[] = {PROMETHEUS, config_path, data, address, NULL};
    prometheus = process_spawn((char *const *)(uintptr_t)argv, NULL, 0, log, log, SIGKILL, &err);
    (void)close(log);
    assert_true(prometheus > 0);
}

static void test_a_prometheus_server_knows_what_the_page_says(void **state)
{
    struct chat chat;
    bool known;
    (void)state;

    chat_init(&chat, cluster.url, CHAT_PATH, chat_body(cluster.model, "count me", 5));
    chat_send(&chat);
    assert_int_equal(chat.status, 200);
    start_prometheus();
    assert_true(poll_until(has_scraped, NULL, SCRAPE_DEADLINE_MS));
    assert_true(query("up", &known) == 1 && known);
    assert_true(query("sum(vllm:prompt_tokens_total)", &known) == chat.prompt_tokens);
    assert_true(query("sum(vllm:generation_tokens_total)", &known) == chat.completion_tokens);
    assert_true(query("sum(refrain_generated_tokens_total)", &known) == chat.completion_tokens);
    /* The dashboards' usual question. */
    double p99 = query("histogram_quantile(0.99,sum(vllm:time_to_first_token_seconds_bucket)"
                       "by(le))",
                       &known);
    assert_true(known && p99 > 0);
    chat_done(&chat);
    stop_prometheus();
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promtool_has_nothing_to_say_of_our_names),
        cmocka_unit_test(test_a_prometheus_server_knows_what_the_page_says),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    if (access(PROMETHEUS, X_OK) != 0 || access(PROMTOOL, X_OK) != 0) {
        print_message("skipped: no prometheus here (Debian package prometheus)\n");
        return 77;
    }
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
