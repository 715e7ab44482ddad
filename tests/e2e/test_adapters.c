/* test_adapters.c - LoRA adapters over HTTP: loaded at the start and at runtime, on every group;
 * chosen by name; KV reused within an adapter and never across; there again after a worker was
 * killed, and away for good once unloaded. */
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/mem.h"
#include "tests/adapter_files.h"
#include "tests/e2e/harness.h"

#define PROMPT_TOKENS 40
#define CACHED_TOKENS 39 /* of them: one is always computed */
#define ANSWER_TOKENS 8
#define GROUPS 2

static struct cluster cluster;
static int prompt_shift; /* another one, another prompt */
static char folder[] = "/tmp/refrain-adapters-XXXXXX";

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static void make_adapter(const char *name, uint64_t seed)
{
    struct stored_file base, adapter;
    char path[256];
    const struct adapter_spec spec = {.seed = seed,
                                      .rank = 8,
                                      .alpha = 16,
                                      .dtype = "F32",
                                      .targets = "[\"q_proj\",\"v_proj\",\"o_proj\",\"up_proj\"]"};
    stored_read(SHARED_DIR "/golden/tiny/llama/model.safetensors", &base);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    adapter_write(path, &spec, &base, &adapter);
    stored_free(&base);
    stored_free(&adapter);
}

static void start(const char *groups, const char *ranks)
{
    char path[64], conf[1024];
    (void)snprintf(path, sizeof(path), "%s/cluster.conf", folder);
    (void)snprintf(conf, sizeof(conf),
                   "[router]\nallow-runtime-lora-updating = true\n[worker]\nenable-lora = true\n"
                   "max-loras = 2\nmax-lora-rank = 8\nlora-modules = alpha=%s/alpha\n"
                   "[worker.0]\nkv-events-config = {\"enable_kv_cache_events\": true, "
                   "\"endpoint\": \"ipc://%s/events\"}\n",
                   folder, folder);
    file_write(path, conf);
    cluster_start(&cluster, e2e_tiny("llama-gguf-f32"),
                  (const char *const[]){"--config", path, "--groups", groups, "--tp", ranks,
                                        "--kv-cache-memory", "4MiB", NULL});
}

/* Status of a POST; what the error names is compared when it is not NULL. */
static int post(const char *path, const char *name, const char *adapter_folder, const char *param)
{
    struct http_answer answer;
    json_t *body = json_object();
    char whole[256];
    if (name)
        (void)json_object_set_new(body, "lora_name", json_string(name));
    if (adapter_folder) {
        (void)snprintf(whole, sizeof(whole), "%s/%s", folder, adapter_folder);
        (void)json_object_set_new(body, "lora_path", json_string(whole));
    }
    http_post_json(cluster.url, path, body, &answer);
    int status = answer.status;
    if (param) {
        const json_t *error = json_object_get(answer.json, "error");
        assert_non_null(error);
        assert_string_equal(json_string_value(json_object_get(error, "param")), param);
    }
    if (status != 200)
        print_message("%s\n", answer.body);
    http_answer_done(&answer);
    return status;
}

static int load(const char *name, const char *adapter_folder, const char *param)
{
    return post("/v1/load_lora_adapter", name, adapter_folder, param);
}

static int unload(const char *name, const char *param)
{
    return post("/v1/unload_lora_adapter", name, NULL, param);
}

/* Greedy ids of the same prompt for every model; *ret_cached: its tokens that were reused. */
static int complete(const char *model, char ret_ids[256], uint64_t *ret_cached)
{
    struct http_answer answer;
    json_t *ids = json_array();
    for (int i = 0; i < PROMPT_TOKENS; i++)
        json_array_append_new(ids, json_integer(10 + (i * 37 + prompt_shift) % 300));
    http_post_json(cluster.url, "/v1/completions",
                   json_pack("{s:s, s:o, s:i, s:i, s:b, s:b}", "model", model, "prompt", ids,
                             "max_tokens", ANSWER_TOKENS, "temperature", 0, "ignore_eos", 1,
                             "return_token_ids", 1),
                   &answer);
    int status = answer.status;
    if (status == 200) {
        const json_t *choice = json_array_get(json_object_get(answer.json, "choices"), 0);
        char *text = json_dumps(json_object_get(choice, "token_ids"), JSON_COMPACT);
        (void)snprintf(ret_ids, 256, "%s", text);
        free(text);
        assert_string_equal(json_string_value(json_object_get(answer.json, "model")), model);
        const json_t *details =
            json_object_get(json_object_get(answer.json, "usage"), "prompt_tokens_details");
        *ret_cached = (uint64_t)json_integer_value(json_object_get(details, "cached_tokens"));
    }
    http_answer_done(&answer);
    return status;
}

/* parent of a listed model, "" for none; false: it is not listed. */
static bool is_listed(const char *model, char *ret_parent, size_t bytes)
{
    struct http_answer answer;
    bool listed = false;
    size_t i;
    const json_t *entry;
    http_get(cluster.url, "/v1/models", &answer);
    json_array_foreach(json_object_get(answer.json, "data"), i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "id")), model) != 0)
            continue;
        const char *parent = json_string_value(json_object_get(entry, "parent"));
        listed = true;
        (void)snprintf(ret_parent, bytes, "%s", parent ? parent : "");
    }
    http_answer_done(&answer);
    return listed;
}

struct wanted {
    size_t groups;
    double adapters;
};

static bool have_adapters(void *user)
{
    const struct wanted *wanted = user;
    size_t samples = 0;
    double sum = cluster_metric(&cluster, "refrain_adapters_loaded", "rank=\"0\"", &samples);
    return samples == wanted->groups && sum == wanted->adapters;
}

static bool both_serve(void *user)
{
    char ids[256];
    uint64_t cached;
    (void)user;
    return complete("alpha", ids, &cached) == 200 && complete("beta", ids, &cached) == 200;
}

static void assert_adapters(size_t groups, double adapters)
{
    struct wanted wanted = {groups, adapters};
    assert_true(poll_until(have_adapters, &wanted, 20000));
}

static void check_reuse(void)
{
    static const char *const names[] = {TINY_NAME, "alpha", "beta"};
    char first[3][256], again[256];
    uint64_t cached = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(complete(names[i], first[i], &cached), 200);
        assert_int_equal(cached, 0); /* not of the others */
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(complete(names[i], again, &cached), 200);
        assert_int_equal(cached, CACHED_TOKENS);
        assert_string_equal(again, first[i]);
        assert_string_not_equal(first[i], first[(i + 1) % 3]);
    }
}

static void check_refusals(void)
{
    char ids[256];
    uint64_t cached;
    assert_int_equal(complete("gamma", ids, &cached), 404);
    assert_int_equal(load("alpha", "beta", "lora_name"), 400);
    assert_int_equal(load(TINY_NAME, "beta", "lora_name"), 400);
    assert_int_equal(load("a b", "gamma", "lora_name"), 400);
    assert_int_equal(load(NULL, "gamma", "lora_name"), 400);
    assert_int_equal(load("gamma", NULL, "lora_path"), 400);
    assert_int_equal(load("gamma", "gamma", "lora_name"), 400); /* two are all that fit */
    assert_int_equal(unload("gamma", "lora_name"), 404);
    assert_int_equal(complete("gamma", ids, &cached), 404);
}

/* A worker that starts anew has the adapter of --lora-modules; it is unloaded there, too. */
static void check_stays_away(void)
{
    struct worker_view worker;
    char parent[128], ids[256];
    uint64_t cached;
    assert_int_equal(unload("alpha", NULL), 200);
    assert_int_equal(unload("alpha", "lora_name"), 404);
    assert_int_equal(unload("gamma", NULL), 200);
    assert_adapters(GROUPS, 0);
    assert_true(cluster_worker(&cluster, 1, &worker));
    assert_int_equal(kill(worker.pids[0], SIGKILL), 0);
    assert_adapters(GROUPS - 1, 0);
    cluster_await_ready(&cluster, GROUPS, 30000);
    assert_adapters(GROUPS, 0);
    assert_false(is_listed("alpha", parent, sizeof(parent)));
    assert_int_equal(complete("alpha", ids, &cached), 404);
    assert_int_equal(load("alpha", "alpha", NULL), 200); /* until it is asked for again */
    assert_adapters(GROUPS, GROUPS);
    assert_int_equal(complete("alpha", ids, &cached), 200);
}

static void test_adapters_when_loaded_by_http_serve_on_every_group(void **state)
{
    struct worker_view worker;
    char parent[128], ids[256];
    uint64_t cached;
    start("2", "1");
    assert_true(is_listed("alpha", parent, sizeof(parent)));
    assert_string_equal(parent, TINY_NAME);
    assert_true(is_listed(TINY_NAME, parent, sizeof(parent)));
    assert_string_equal(parent, "");
    assert_false(is_listed("beta", parent, sizeof(parent)));
    assert_int_equal(load("beta", "nothing", "lora_path"), 400);
    assert_int_equal(load("beta", "alpha/adapter_config.json", "lora_path"), 400);
    assert_false(is_listed("beta", parent, sizeof(parent)));
    assert_int_equal(load("beta", "beta", NULL), 200);
    assert_true(is_listed("beta", parent, sizeof(parent)));
    assert_adapters(GROUPS, 2 * GROUPS);
    check_reuse();
    check_refusals();

    assert_true(cluster_worker(&cluster, 0, &worker));
    assert_int_equal(kill(worker.pids[0], SIGKILL), 0);
    assert_true(poll_until(both_serve, NULL, 20000)); /* the other group has them */
    cluster_await_ready(&cluster, GROUPS, 30000);
    assert_adapters(GROUPS, 2 * GROUPS);

    assert_int_equal(unload("beta", NULL), 200);
    assert_false(is_listed("beta", parent, sizeof(parent)));
    assert_int_equal(complete("beta", ids, &cached), 404);
    assert_int_equal(complete("alpha", ids, &cached), 200);
    assert_int_equal(load("gamma", "gamma", NULL), 200); /* its slot is free again */
    assert_int_equal(complete("gamma", ids, &cached), 200);
    check_stays_away();
    cluster_stop(&cluster);
}

static void *subscribe(void *context)
{
    char endpoint[96];
    const int timeout_ms = 20000;
    void *socket = zmq_socket(context, ZMQ_SUB);
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s/events", folder);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms)), 0);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0), 0);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

/* Take a batch of KV events: are its blocks alpha's? Else they are the base model's. */
static bool next_is_of_alpha(void *socket)
{
    static char batch[65536];
    int more = 1, bytes = 0;
    size_t size = sizeof(more);
    while (more) {
        bytes = zmq_recv(socket, batch, sizeof(batch), 0);
        assert_true(bytes >= 0 && bytes <= (int)sizeof(batch));
        assert_int_equal(zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size), 0);
    }
    assert_non_null(memmem(batch, (size_t)bytes, "BlockStored", 11));
    const char *at = memmem(batch, (size_t)bytes, "lora_name", 9);
    if (at != NULL)
        assert_memory_equal(at + 10, "alpha", 5); /* a byte of length between */
    return at != NULL;
}

/* New prompts until one's events come: a subscription takes a moment. */
static void check_events(void)
{
    char ids[256];
    uint64_t cached;
    void *context = zmq_ctx_new(), *socket = subscribe(context);
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    do {
        assert_true(++prompt_shift < 300);
        assert_int_equal(complete("alpha", ids, &cached), 200);
    } while (zmq_poll(&item, 1, 20) == 0);
    assert_true(next_is_of_alpha(socket));
    assert_int_equal(complete(TINY_NAME, ids, &cached), 200);
    while (next_is_of_alpha(socket))
        continue; /* what was left of it */
    (void)zmq_close(socket);
    (void)zmq_ctx_term(context);
    prompt_shift = 0;
}

static void test_adapters_when_two_ranks_share_a_model_are_loaded_for_both(void **state)
{
    char base[256], alpha[256], beta[256], again[256];
    uint64_t cached;
    start("1", "2");
    check_events();
    assert_int_equal(complete("alpha", alpha, &cached), 200);
    assert_int_equal(complete(TINY_NAME, base, &cached), 200);
    assert_int_equal(load("beta", "beta", NULL), 200);
    assert_int_equal(complete("beta", beta, &cached), 200);
    assert_int_equal(cached, 0);
    assert_string_not_equal(alpha, base);
    assert_string_not_equal(beta, base);
    assert_string_not_equal(alpha, beta);
    assert_int_equal(complete("beta", again, &cached), 200);
    assert_int_equal(cached, CACHED_TOKENS);
    assert_string_equal(again, beta);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_adapters_when_loaded_by_http_serve_on_every_group, teardown),
        cmocka_unit_test_teardown(test_adapters_when_two_ranks_share_a_model_are_loaded_for_both,
                                  teardown),
    };
    e2e_begin();
    (void)e2e_tiny("llama-gguf-f32");
    if (mkdtemp(folder) == NULL)
        return 1;
    make_adapter("alpha", 1);
    make_adapter("beta", 2);
    make_adapter("gamma", 3);
    int failed = e2e_finish(cmocka_run_group_tests(tests, NULL, NULL));
    folder_remove(folder);
    return failed;
}
