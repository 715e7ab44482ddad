/* test_bad_bodies.c - bodies that are broken inside (bytes that are no text) or hugely many or
 * long: each is answered with what and where, in bounded memory, and the router serves on. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness_bugs.h"

#define MODEL "llama-gguf-f32" /* 512 tokens of context, 320 token ids */
#define BODY_BYTES_MAX ((size_t)16 << 20)
#define MEMORY_MAX ((uint64_t)192 << 20) /* a body of 8 MiB as a tree of JSON values */

static struct cluster cluster;
static pid_t router_pid;
static char reference[512];

static void ask_reference(char *ret_text, size_t text_max)
{
    struct chat chat;
    chat_init(&chat, cluster.url, CHAT_PATH, chat_body(cluster.model, "the answers", 12));
    chat_send(&chat);
    assert_int_equal(chat.status, 200);
    (void)snprintf(ret_text, text_max, "%s", chat.text);
    chat_done(&chat);
}

static int setup(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "16MiB",
                                        "--log-level", "debug", NULL});
    router_pid = cluster_router_pid(&cluster);
    ask_reference(reference, sizeof(reference));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

/* The whole body; `status`, and words of the answer. */
static void post(const char *path, const struct buffer *body, int status, const char *param,
                 const char *words)
{
    const struct http_request request = {
        .path = path, .body = body->data, .body_bytes = body->bytes};
    struct http_answer answer;
    char text[sizeof(reference)];

    http_send(cluster.url, &request, &answer);
    const json_t *error = json_object_get(answer.json, "error");
    const char *got = json_string_value(json_object_get(error, "param"));
    if (answer.status != status || (status != 200 && strcmp(got ? got : "", param) != 0) ||
        !strstr(answer.body, words))
        fail_msg("%s %.80s... (%zu bytes)\nwanted %d '%s' '%s'\ngot %d %.400s%s", path, body->data,
                 body->bytes, status, param, words, answer.status, answer.body, answer.failure);
    http_answer_done(&answer);
    assert_true(proc_is_alive(router_pid));
    bugs_assert_memory(router_pid, MEMORY_MAX);
    ask_reference(text, sizeof(text));
    assert_string_equal(text, reference);
}

#define BEGIN "{\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":"

static void test_text_that_is_no_unicode_is_refused_at_its_byte(void **state)
{
    static const struct {
        const char *content;
        int status;
        const char *words;
    } rows[] = {
        {"\"a\\ud83db\"", 400, "byte"},
        {"\"\\ude00\\ud83d\"", 400, "byte"},
        {"\"\\ud800\\u0041\"", 400, "byte"},
        {"\"a\xc0\x80\"", 400, "0xc0 at byte"},
        {"\"a\xe0\x80\xaf\"", 400, "0xe0"},
        {"\"a\xf0\x80\x80\xaf\"", 400, "0xf0"},
        {"\"a\xed\xa0\x80\"", 400, "0xed"},
        {"\"a\xf4\x90\x80\x80\"", 400, "0xf4"},
        {"\"a\xff\"", 400, "0xff"},
        {"\"a\xe4\xbd\"", 400, "0xe4"},
        {"\"a\x01\"", 400, "0x1"},
        {"\"a\\x41\"", 400, "byte"},
        {"\"a\\u0000b\"", 200, "chat.completion"}, /* a character like any other */
        {"\"\\uffff\\ufeff\"", 200, "chat.completion"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer body;
        buffer_init(&body, 4096);
        buffer_printf(&body, BEGIN "%s}]}", rows[i].content);
        post(CHAT_PATH, &body, rows[i].status, "", rows[i].words);
        buffer_done(&body);
    }
    struct buffer body; /* a NUL byte */
    buffer_init(&body, 4096);
    buffer_append_text(&body, BEGIN "\"a");
    buffer_append_char(&body, '\0');
    buffer_append_text(&body, "b\"}]}");
    post(CHAT_PATH, &body, 400, "", "0x0 at byte");
    buffer_done(&body);
}

static void test_hugely_long_texts_are_refused_by_the_context(void **state)
{
    static const char *const pieces[] = {"a",   "a ",         " ", "\xf0\x9f\x98\x80",
                                         "\\n", "<|im_end|>", "9", "\xe4\xbd\xa0"};
    (void)state;

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct buffer body;
        buffer_init(&body, BODY_BYTES_MAX);
        buffer_append_text(&body, BEGIN "\"");
        while (body.bytes < (size_t)1 << 20)
            buffer_append_text(&body, pieces[i]);
        buffer_append_text(&body, "\"}]}");
        post(CHAT_PATH, &body, 400, "messages", "512");
        buffer_done(&body);
    }
}

/* `before`, the piece `count` times with commas, `after`. */
static struct buffer many(const char *before, const char *piece, size_t count, const char *after)
{
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    buffer_append_text(&body, before);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buffer_append_char(&body, ',');
        if (strchr(piece, '#')) { /* its number */
            const char *at = strchr(piece, '#');
            buffer_append(&body, piece, (size_t)(at - piece));
            buffer_printf(&body, "%zu%s", i, at + 1);
        } else {
            buffer_append_text(&body, piece);
        }
    }
    buffer_append_text(&body, after);
    return body;
}

#define USER "{\"role\":\"user\",\"content\":\"a\"}"
#define CHAT "{\"max_tokens\":2,\"messages\":[" USER "],"

static void test_hugely_many_of_anything_are_refused_with_their_number(void **state)
{
    static const struct {
        const char *path, *before, *piece;
        size_t count;
        const char *after;
        int status;
        const char *param, *words;
    } rows[] = {
        {CHAT_PATH, "{\"messages\":[", USER, 10001, "]}", 400, "messages", "10001"},
        {CHAT_PATH, "{\"messages\":[", USER, 9999, "]}", 400, "messages", "512"},
        {CHAT_PATH, "{\"messages\":[", "[]", 500000, "]}", 400, "messages", "500000"},
        {CHAT_PATH, "{\"messages\":[{\"role\":\"user\",\"content\":[",
         "{\"type\":\"text\",\"text\":\"x\"}", 50000, "]}]}", 400, "messages", "512"},
        {CHAT_PATH, CHAT "\"tools\":[", "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
         20000, "]}", 400, "tools", "20000"},
        {CHAT_PATH, CHAT "\"stop\":[", "\"x\"", 500000, "]}", 400, "stop", "500000"},
        {CHAT_PATH, CHAT "\"stop_token_ids\":[", "5", 500000, "]}", 400, "stop_token_ids",
         "500000"},
        {CHAT_PATH, CHAT "\"logit_bias\":{", "\"#\":1", 100000, "}}", 400, "logit_bias", "100000"},
        {CHAT_PATH, CHAT "\"allowed_token_ids\":[", "5", 500000, "]}", 400, "allowed_token_ids",
         "500000"},
        {CHAT_PATH, CHAT "\"bad_words\":[", "\"x#\"", 100000, "]}", 400, "bad_words", "100000"},
        {CHAT_PATH, CHAT "\"bad_words\":[", "\"x#\"", 256, "]}", 200, "", "chat.completion"},
        {COMPLETION_PATH, "{\"prompt\":[", "5", 1000000, "]}", 400, "prompt", "1000000"},
        {COMPLETION_PATH, "{\"prompt\":[", "\"x\"", 100000, "]}", 400, "prompt", "100000"},
        {CHAT_PATH, CHAT, "\"k#\":1", 200000, "}", 200, "", "chat.completion"},
        {CHAT_PATH, CHAT "\"unknown\":{", "\"#\":[]", 200000, "}}", 200, "", "chat.completion"},
        {CHAT_PATH, CHAT "\"user\":\"", "a", 1000000, "\"}", 200, "", "chat.completion"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer body = many(rows[i].before, rows[i].piece, rows[i].count, rows[i].after);
        post(rows[i].path, &body, rows[i].status, rows[i].param, rows[i].words);
        buffer_done(&body);
    }
}

static void test_hugely_long_numbers_are_numbers_or_refused(void **state)
{
    static const struct {
        const char *before, *digits, *param, *words;
        int status;
    } rows[] = {{CHAT "\"temperature\":", "1", "", "JSON", 400},
                {CHAT "\"temperature\":0.", "1", "", "chat.completion", 200},
                {CHAT "\"temperature\":1e", "9", "", "JSON", 400},
                {CHAT "\"max_completion_tokens\":", "9", "", "JSON", 400}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer body;
        buffer_init(&body, BODY_BYTES_MAX);
        buffer_append_text(&body, rows[i].before);
        for (int digit = 0; digit < 1000000; digit++)
            buffer_append_text(&body, rows[i].digits);
        buffer_append_text(&body, "}");
        post(CHAT_PATH, &body, rows[i].status, rows[i].param, rows[i].words);
        buffer_done(&body);
    }
}

/* Names of unknown fields only, and only those that look like one; never a value. */
static void test_unknown_fields_are_named_in_the_debug_log_without_their_values(void **state)
{
    struct buffer body;
    (void)state;

    buffer_init(&body, 4096);
    buffer_append_text(&body, CHAT "\"a_field_of_tomorrow\":\"seventeen secrets\","
                                   "\"with\\nline event=forged\":\"eighteen secrets\"}");
    post(CHAT_PATH, &body, 200, "", "chat.completion");
    buffer_done(&body);
    char *log = file_read(cluster.log_path, NULL);
    assert_non_null(log);
    assert_non_null(strstr(log, "event=fields_ignored count=2 names=a_field_of_tomorrow"));
    assert_null(strstr(log, "secrets"));
    assert_null(strstr(log, "forged"));
    mem_free(log);
}

static void test_afterwards_nothing_is_held_and_the_cluster_stops(void **state)
{
    (void)state;
    assert_int_equal(cluster_router_pid(&cluster), router_pid);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_that_is_no_unicode_is_refused_at_its_byte),
        cmocka_unit_test(test_hugely_long_texts_are_refused_by_the_context),
        cmocka_unit_test(test_hugely_many_of_anything_are_refused_with_their_number),
        cmocka_unit_test(test_hugely_long_numbers_are_numbers_or_refused),
        cmocka_unit_test(test_unknown_fields_are_named_in_the_debug_log_without_their_values),
        cmocka_unit_test(test_afterwards_nothing_is_held_and_the_cluster_stops),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
