/* test_bugs_http.c - cases/bugs.json about HTTP itself and about clients that go away. */
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness_bugs.h"

#define MODEL "llama-gguf-f32" /* 512 tokens of context */
#define ANSWER_MS 20000u

static struct bugs bugs;

static int setup(void **state)
{
    *state = &bugs;
    bugs_start(&bugs, e2e_tiny(MODEL),
               (const char *const[]){"--groups", "1", "--kv-cache-memory", "16MiB",
                                     "--max-num-seqs", "4", NULL});
    return 0;
}

/* Write, read until closed or `until`; mem_free() it. */
static char *exchange(const char *bytes, const char *until, bool *ret_closed)
{
    int fd = raw_connect(bugs.cluster.port);
    assert_true(fd >= 0);
    assert_true(raw_write(fd, bytes, strlen(bytes)));
    char *answer = raw_read(fd, until, ANSWER_MS, ret_closed);
    (void)close(fd);
    return answer;
}

static void test_b60_a_body_that_is_too_large_is_refused_before_it_comes(void **state)
{
    char *head = bugs_body(&bugs, "B60", 0);
    bool closed = false;
    (void)state;

    char *answer = exchange(head, NULL, &closed);
    assert_int_equal(raw_status(answer), 413);
    assert_true(closed);
    assert_null(strstr(answer, "100 Continue"));
    assert_non_null(strcasestr(answer, "connection: close"));
    mem_free(answer);
    mem_free(head);
}

static void test_b61_what_follows_a_refused_body_gets_its_own_answer(void **state)
{
    char *bytes = bugs_body(&bugs, "B61", 0);
    bool closed = false;
    (void)state;

    char *answer = exchange(bytes, "HTTP/1.1 200", &closed);
    assert_int_equal(raw_status(answer), 404);
    const char *second = strstr(answer + 1, "HTTP/1.1 ");
    if (second) /* the body was read and dropped; else the connection was closed */
        assert_int_equal(raw_status(second), 200);
    else
        assert_true(closed);
    mem_free(answer);
    mem_free(bytes);
}

static void test_b63_a_chunked_upload_is_answered(void **state)
{
    json_t *body = chat_body(bugs.cluster.model, "hi", 4);
    char *text = json_dumps(body, JSON_COMPACT);
    char *raw = bugs_body(&bugs, "B63", 0);
    struct buffer bytes;
    bool closed = false;
    (void)state;

    char *hex = strstr(raw, "<hex>"), *json = strstr(raw, "<json>");
    assert_true(hex && json);
    buffer_init(&bytes, 1 << 16);
    buffer_append(&bytes, raw, (size_t)(hex - raw));
    buffer_printf(&bytes, "%zx", strlen(text));
    buffer_append(&bytes, hex + 5, (size_t)(json - hex - 5));
    buffer_append_text(&bytes, text);
    buffer_append_text(&bytes, json + 6);
    char *answer = exchange(bytes.data, "\"usage\"", &closed);
    assert_int_equal(raw_status(answer), 200);
    assert_non_null(strstr(answer, "\"chat.completion\""));
    mem_free(answer);
    buffer_done(&bytes);
    mem_free(raw);
    free(text); /* jansson's */
    json_decref(body);
}

struct labelled {
    const char *url;
    char *body;
    struct http_answer answer;
};

static void *send_labelled(void *user)
{
    struct labelled *one = user;
    const struct http_request request = {.path = CHAT_PATH,
                                         .body = one->body,
                                         .headers =
                                             (const char *const[]){"X-Request-Id: id", NULL}};
    http_send(one->url, &request, &one->answer);
    return NULL;
}

static void test_b64_two_requests_of_one_id_get_an_answer_each(void **state)
{
    struct labelled two[2];
    pthread_t threads[2];
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        json_t *body = bugs_json(&bugs, "B64", 0);
        json_object_set_new(body, "ignore_eos", json_true());
        json_object_set_new(body, "seed", json_integer((int)i));
        char *text = json_dumps(body, JSON_COMPACT);
        two[i] = (struct labelled){.url = bugs.cluster.url, .body = mem_strdup(text)};
        free(text); /* jansson's */
        json_decref(body);
        assert_int_equal(pthread_create(&threads[i], NULL, send_labelled, &two[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(two[i].answer.status, 200);
        assert_int_equal(bugs_usage(two[i].answer.json, "completion_tokens"), 64);
        assert_string_equal(bugs_finish(two[i].answer.json), "length");
    }
    assert_string_not_equal(bugs_text(two[0].answer.json), bugs_text(two[1].answer.json));
    for (size_t i = 0; i < 2; i++) {
        http_answer_done(&two[i].answer);
        mem_free(two[i].body);
    }
}

static void test_b64_an_id_of_a_megabyte_is_refused(void **state)
{
    struct buffer bytes;
    bool closed = false;
    (void)state;

    buffer_init(&bytes, (size_t)2 << 20);
    buffer_append_text(&bytes, "POST " CHAT_PATH " HTTP/1.1\r\nHost: x\r\nX-Request-Id: ");
    for (int i = 0; i < 1 << 17; i++)
        buffer_append_text(&bytes, "abcdefgh");
    buffer_append_text(&bytes, "\r\n\r\n");
    int fd = raw_connect(bugs.cluster.port);
    (void)raw_write(fd, bytes.data, bytes.bytes); /* the server may have closed by then */
    char *answer = raw_read(fd, NULL, ANSWER_MS, &closed);
    assert_true(closed && (answer[0] == '\0' || raw_status(answer) == 431));
    (void)close(fd);
    mem_free(answer);
    buffer_done(&bytes);
}

static void test_b65_three_gigabytes_are_refused_by_their_length(void **state)
{
    uint64_t before = proc_resident_bytes(bugs.router_pid);
    bool closed = false;
    (void)state;

    for (int i = 0; i < 20; i++) {
        char *answer = exchange("POST " COMPLETION_PATH " HTTP/1.1\r\nHost: x\r\n"
                                "Content-Type: application/json\r\nContent-Length: 3000000000\r\n"
                                "\r\n{\"prompt\":\"\\n\\n",
                                NULL, &closed);
        assert_int_equal(raw_status(answer), 413);
        assert_true(closed);
        mem_free(answer);
    }
    bugs_assert_memory(bugs.router_pid, before + (16u << 20));
}

static int send_stream(const char *prompt, int max_tokens)
{
    json_t *body = streamed(completion_body(bugs.cluster.model, prompt, (unsigned)max_tokens));
    char *text, *head;
    int fd = raw_connect(bugs.cluster.port);

    json_object_set_new(body, "ignore_eos", json_true());
    text = json_dumps(body, JSON_COMPACT);
    head = mem_printf("POST " COMPLETION_PATH " HTTP/1.1\r\nHost: a\r\nContent-Type: "
                      "application/json\r\nContent-Length: %zu\r\n\r\n",
                      strlen(text));
    assert_true(fd >= 0);
    assert_true(raw_write(fd, head, strlen(head)) && raw_write(fd, text, strlen(text)));
    free(text); /* jansson's */
    mem_free(head);
    json_decref(body);
    return fd;
}

/* Closed at once (prefill, and the queue behind four), after some tokens, after the last one. */
static void test_b67_wherever_a_client_goes_the_blocks_add_up(void **state)
{
    static const char *const until[] = {"", "data: {", "data: [DONE]"};
    bool closed = false;
    (void)state;

    for (int round = 0; round < 20; round++) {
        int fds[12];
        for (int i = 0; i < 12; i++) {
            char prompt[64];
            (void)snprintf(prompt, sizeof(prompt), "%d the answers are the same %d", i / 2, round);
            fds[i] = send_stream(prompt, 40);
        }
        for (int i = 0; i < 12; i++) {
            const char *words = until[(i + round) % 3];
            if (words[0])
                mem_free(raw_read(fds[i], words, ANSWER_MS, &closed));
            (void)close(fds[i]);
        }
    }
    cluster_assert_idle(&bugs.cluster); /* free + cached + used = total, and used is 0 */
    cluster_assert_pool(&bugs.cluster, 0);
}

static bool gauges_are_zero(void *user)
{
    static const char *const names[] = {"refrain_requests_running",  "refrain_requests_waiting",
                                        "refrain_kv_usage_ratio",    "vllm:num_requests_running",
                                        "vllm:num_requests_waiting", "refrain_router_inflight"};
    (void)user;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t samples = 0;
        if (cluster_metric(&bugs.cluster, names[i], "", &samples) != 0 || samples == 0)
            return false;
    }
    return true;
}

static void test_b68_gauges_are_zero_after_a_load_of_aborted_and_refused_requests(void **state)
{
    struct chat chats[60];
    struct buffer text;
    (void)state;

    buffer_init(&text, 1 << 16);
    for (int i = 0; i < 600; i++)
        buffer_append_text(&text, "zq");
    for (size_t i = 0; i < 60; i++) {
        bool too_long = i % 3 == 0;
        json_t *body =
            streamed(chat_body(bugs.cluster.model, too_long ? text.data : "the answers", 200));
        json_object_set_new(body, "ignore_eos", json_true());
        chat_init(&chats[i], bugs.cluster.url, CHAT_PATH, body);
        chats[i].drop_at = 1 + (unsigned)i % 5;
    }
    chat_send_all(chats, 60, 15);
    for (size_t i = 0; i < 60; i++) {
        assert_int_equal(chats[i].status, i % 3 == 0 ? 400 : 200);
        chat_done(&chats[i]);
    }
    buffer_done(&text);
    assert_true(poll_until(gauges_are_zero, NULL, ANSWER_MS));
}

static void test_afterwards_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    bugs_stop(&bugs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_b60_a_body_that_is_too_large_is_refused_before_it_comes,
                                  bugs_after),
        cmocka_unit_test_teardown(test_b61_what_follows_a_refused_body_gets_its_own_answer,
                                  bugs_after),
        cmocka_unit_test_teardown(test_b63_a_chunked_upload_is_answered, bugs_after),
        cmocka_unit_test_teardown(test_b64_two_requests_of_one_id_get_an_answer_each, bugs_after),
        cmocka_unit_test_teardown(test_b64_an_id_of_a_megabyte_is_refused, bugs_after),
        cmocka_unit_test_teardown(test_b65_three_gigabytes_are_refused_by_their_length, bugs_after),
        cmocka_unit_test_teardown(test_b67_wherever_a_client_goes_the_blocks_add_up, bugs_after),
        cmocka_unit_test_teardown(
            test_b68_gauges_are_zero_after_a_load_of_aborted_and_refused_requests, bugs_after),
        cmocka_unit_test(test_afterwards_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, bugs_teardown));
}
