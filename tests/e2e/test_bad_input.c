/* test_bad_input.c - every kind of bad input, one by one: the right status, an OpenAI error object
 * with type, param and numbers; after each the process lives and a reference request gives the same
 * text; after all nothing is held. (Broken bytes and slow clients: test_bad_bytes.c) */
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32" /* 512 tokens of context, 320 token ids */
#define INVALID "invalid_request_error"

static struct cluster cluster;
static pid_t router_pid;
static char reference[512];

struct bad_field {
    const char *json;  /* goes into a body that is fine without it */
    const char *param; /* of the answer; "" for null */
    const char *words; /* stand in its message; "" for any */
};

static const struct bad_field chat_fields[] = {
    {"\"temperature\":\"hot\"", "temperature", "must be a number, not a string"},
    {"\"temperature\":true", "temperature", "must be a number, not a boolean"},
    {"\"temperature\":[1]", "temperature", "must be a number, not a list"},
    {"\"temperature\":-0.5", "temperature", "-0.5"},
    {"\"temperature\":1e7", "temperature", "at most 1000000"},
    {"\"top_p\":0", "top_p", "above 0"},
    {"\"top_p\":1.5", "top_p", "1.5"},
    {"\"top_p\":{}", "top_p", "not an object"},
    {"\"min_p\":2", "min_p", "at most 1"},
    {"\"min_p\":\"a\"", "min_p", "a number"},
    {"\"top_k\":-2", "top_k", "-2"},
    {"\"top_k\":1.5", "top_k", "integer"},
    {"\"top_k\":\"1\"", "top_k", "integer"},
    {"\"seed\":9223372036854775808", "", ""},
    {"\"seed\":1.5", "seed", "integer"},
    {"\"seed\":\"x\"", "seed", "integer"},
    {"\"repetition_penalty\":0", "repetition_penalty", "at least 0.01"},
    {"\"repetition_penalty\":\"x\"", "repetition_penalty", "a number"},
    {"\"presence_penalty\":2.5", "presence_penalty", "2.5"},
    {"\"presence_penalty\":[]", "presence_penalty", "a number"},
    {"\"frequency_penalty\":-3", "frequency_penalty", "-3"},
    {"\"frequency_penalty\":false", "frequency_penalty", "a number"},
    {"\"max_tokens\":0", "max_tokens", "at least 1"},
    {"\"max_tokens\":-1", "max_tokens", "-1"},
    {"\"max_tokens\":1.5", "max_tokens", "integer"},
    {"\"max_tokens\":\"8\"", "max_tokens", "not a string"},
    {"\"max_tokens\":99999999999", "max_tokens", "at most 16777216"},
    {"\"max_completion_tokens\":0", "max_completion_tokens", "at least 1"},
    {"\"max_completion_tokens\":{}", "max_completion_tokens", "not an object"},
    {"\"min_tokens\":-1", "min_tokens", "-1"},
    {"\"min_tokens\":9", "min_tokens", "more than"},
    {"\"stop\":5", "stop", "string"},
    {"\"stop\":\"\"", "stop", "empty"},
    {"\"stop\":[\"a\",7]", "stop", "string"},
    {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\","
     "\"14\",\"15\",\"16\",\"17\"]",
     "stop", "17 strings; at most 16"},
    {"\"stop_token_ids\":\"x\"", "stop_token_ids", "list"},
    {"\"stop_token_ids\":[-1]", "stop_token_ids", "entry 0"},
    {"\"ignore_eos\":1", "ignore_eos", "true or false"},
    {"\"include_stop_str_in_output\":\"no\"", "include_stop_str_in_output", "true or false"},
    {"\"skip_special_tokens\":0", "skip_special_tokens", "true or false"},
    {"\"logprobs\":5", "logprobs", "true or false"},
    {"\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "at most 20"},
    {"\"top_logprobs\":2", "top_logprobs", "needs 'logprobs'"},
    {"\"n\":0", "n", "at least 1"},
    {"\"n\":129", "n", "at most 128"},
    {"\"n\":\"2\"", "n", "integer"},
    {"\"stream\":\"yes\"", "stream", "true or false"},
    {"\"stream\":1", "stream", "true or false"},
    {"\"stream_options\":{\"include_usage\":true}", "stream_options", "'stream'"},
    {"\"stream\":true,\"stream_options\":[]", "stream_options", "object"},
    {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage",
     "true or false"},
    {"\"priority\":\"high\"", "priority", "integer"},
    {"\"priority\":1e12", "priority", "integer"},
    {"\"cache_salt\":1", "cache_salt", "string"},
    {"\"session_id\":[]", "session_id", "string"},
    {"\"refrain\":7", "refrain", "object"},
    {"\"response_format\":\"json\"", "response_format", "object"},
    {"\"response_format\":{\"type\":\"yaml\"}", "response_format.type", "json_schema"},
    {"\"tool_choice\":3", "tool_choice", ""},
    {"\"tools\":{}", "tools", "list"},
    {"\"tools\":[{\"type\":\"magic\"}]", "tools[0]", "function"},
    {"\"documents\":1", "documents", "list"},
    {"\"chat_template_kwargs\":[]", "chat_template_kwargs", "object"},
    {"\"chat_template_kwargs\":{\"chat_template\":\"x\"}", "chat_template", "untrusted"},
    {"\"add_generation_prompt\":\"x\"", "add_generation_prompt", "true or false"},
    {"\"continue_final_message\":2", "continue_final_message", "true or false"},
    {"\"add_special_tokens\":2", "add_special_tokens", "true or false"},
    {"\"best_of\":4", "best_of", "must be equal"},
    {"\"logit_bias\":{\"5\":101}", "logit_bias", "at most 100"},
    {"\"logit_bias\":{\"320\":1}", "logit_bias", "320"},
    {"\"allowed_token_ids\":[320]", "allowed_token_ids", "320"},
    {"\"stop_token_ids\":[320]", "stop_token_ids", "320"},
    {"\"bad_words\":[\"\"]", "bad_words", "empty"},
    {"\"prompt_logprobs\":21", "prompt_logprobs", "at most 20"},
    {"\"truncate_prompt_tokens\":513", "truncate_prompt_tokens", "512"},
    {"\"allowed_token_ids\":[5],\"logit_bias\":{\"5\":-100},\"stop_token_ids\":[5],\"min_tokens\":"
     "1",
     "allowed_token_ids", "leave no token"},
    {"\"guided_choice\":[\"a\"],\"allowed_token_ids\":[5]", "guided_choice", "leave no token"},
    {"\"guided_regex\":\"((((((a{0,99}){0,99}){0,99}){0,99}){0,99}){0,99})\"", "guided_regex",
     "too ambiguous"},
    {"\"chat_template\":\"{{ 1 }}\"", "chat_template", "--trust-request-chat-template is not set"},
    {"\"model\":7", "model", "string"},
    {"\"messages\":{}", "messages", "list, not an object"},
    {"\"messages\":\"hi\"", "messages", "list, not a string"},
    {"\"messages\":[]", "messages", "empty"},
    {"\"messages\":[5]", "messages[0]", "object"},
    {"\"messages\":[{}]", "messages[0].role", "one of"},
    {"\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]", "messages[0].role", "one of"},
    {"\"messages\":[{\"role\":1,\"content\":\"a\"}]", "messages[0].role", "one of"},
    {"\"messages\":[{\"role\":\"user\"}]", "messages[0].content", "missing"},
    {"\"messages\":[{\"role\":\"user\",\"content\":null}]", "messages[0].content", "missing"},
    {"\"messages\":[{\"role\":\"user\",\"content\":5}]", "messages[0].content", "not an integer"},
    {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]",
     "messages[0].content[0]", "text"},
    {"\"messages\":[{\"role\":\"user\",\"content\":[7]}]", "messages[0].content[0]", "text"},
    {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"tool_calls\":"
     "5}]",
     "messages[1].tool_calls", "list"},
};

struct bad_body {
    const char *path, *body;
    int status;
    const char *type, *param, *code;
    const char *words, *more_words;
};

#define CHAT_BODY(rest) "{\"model\":\"model\",\"messages\":[{\"role\":\"user\",\"content\":" rest

static const struct bad_body bodies[] = {
    {CHAT_PATH, "{", 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, "[]", 400, INVALID, "", "invalid_json", "object, not a list", ""},
    {CHAT_PATH, "null", 400, INVALID, "", "invalid_json", "object", ""},
    {CHAT_PATH, "\"text\"", 400, INVALID, "", "invalid_json", "object, not a string", ""},
    {CHAT_PATH, "{\"model\":\"model\",}", 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, "{\"model\":\"model\"} x", 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, "{'model':'model'}", 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"a\\sb\"}]}"), 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"\xff\xfe\"}]}"), 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"\xc3\"}]}"), 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"\xed\xa0\x80\"}]}"), 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"\\ud83d\"}]}"), 400, INVALID, "", "invalid_json", "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"a\"}],\"temperature\":NaN}"), 400, INVALID, "", "invalid_json", "JSON",
     ""},
    {CHAT_PATH, CHAT_BODY("\"a\"}],\"temperature\":Infinity}"), 400, INVALID, "", "invalid_json",
     "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"a\"}],\"temperature\":-Infinity}"), 400, INVALID, "", "invalid_json",
     "JSON", ""},
    {CHAT_PATH, CHAT_BODY("\"a\"}],\"temperature\":1e999}"), 400, INVALID, "", "", "", ""},
    {CHAT_PATH, CHAT_BODY("\"a\"}],\"temperature\":\"NaN\"}"), 400, INVALID, "temperature",
     "invalid_value", "not a string", ""},
    {CHAT_PATH, "{\"model\":\"model\"}", 400, INVALID, "messages", "invalid_value", "missing", ""},
    {CHAT_PATH, "{}", 400, INVALID, "messages", "invalid_value", "missing", ""},
    {CHAT_PATH, "{\"model\":\"nobody\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 404,
     "not_found_error", "model", "model_not_found", "'nobody'", ""},
    {CHAT_PATH, "{\"model\":\"\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 404,
     "not_found_error", "model", "model_not_found", "", ""},
    {CHAT_PATH,
     "{\"model\":\"evil\\\"} 1\\n# x \\\\\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
     404, "not_found_error", "model", "model_not_found", "", ""},
    {CHAT_PATH, CHAT_BODY("\"a\"}],\"max_tokens\":2000}"), 400, INVALID, "messages",
     "context_length_exceeded", "512", "2000"},
    {COMPLETION_PATH, "{\"model\":\"model\"}", 400, INVALID, "prompt", "invalid_value", "missing",
     ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":5}", 400, INVALID, "prompt", "invalid_value",
     "string", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":[]}", 400, INVALID, "prompt",
     "invalid_value", "empty", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":[[]]}", 400, INVALID, "prompt",
     "invalid_value", "no tokens", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":[1,\"a\"]}", 400, INVALID, "prompt",
     "invalid_value", "entry 1", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":[-1]}", 400, INVALID, "prompt",
     "invalid_value", "entry 0", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":[320]}", 400, INVALID, "prompt", "", "320",
     ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":[4294967295]}", 400, INVALID, "prompt", "",
     "", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":\"\"}", 400, INVALID, "prompt", "", "", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":\"a\",\"logprobs\":21}", 400, INVALID,
     "logprobs", "invalid_value", "at most 20", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":\"a\",\"logprobs\":-1}", 400, INVALID,
     "logprobs", "invalid_value", "-1", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":\"a\",\"echo\":\"x\"}", 400, INVALID, "echo",
     "invalid_value", "true or false", ""},
    {COMPLETION_PATH, "{\"model\":\"model\",\"prompt\":\"a\",\"suffix\":\"x\"}", 400, INVALID,
     "suffix", "unsupported_parameter", "not supported", ""},
    {"/tokenize", "{\"model\":\"model\"}", 400, INVALID, "prompt", "invalid_value", "needed", ""},
    {"/tokenize", "{\"model\":\"model\",\"prompt\":7}", 400, INVALID, "prompt", "invalid_value",
     "string", ""},
    {"/detokenize", "{\"model\":\"model\"}", 400, INVALID, "tokens", "invalid_value", "missing",
     ""},
    {"/detokenize", "{\"model\":\"model\",\"tokens\":[999]}", 400, INVALID, "tokens", "", "999",
     ""},
    {"/tokenize", "{\"content\":\"a\",\"prompt\":\"b\"}", 400, INVALID, "content", "",
     "exclude each other", ""},
    {"/tokenize", "{\"content\":[\"a\"]}", 400, INVALID, "content", "", "string, not a list", ""},
    {"/tokenize", "{\"content\":\"a\",\"with_pieces\":true}", 400, INVALID, "with_pieces",
     "unsupported_parameter", "return_token_strs", ""},
    {"/v1/nothing", "{}", 404, "not_found_error", "", "not_found", "'/v1/nothing' here", ""},
    {"/v1/chat/completions/", "{}", 404, "not_found_error", "", "not_found",
     "'/v1/chat/completions' is", ""},
    {"/chat/completions", "{}", 404, "not_found_error", "", "not_found",
     "'/v1/chat/completions' is", ""},
    {"/v1/embeddings", "{}", 404, "not_found_error", "", "unsupported_endpoint",
     "'/v1/embeddings' is not served", "/v1/completions"},
    {"/health", "{}", 405, "", "", "", "", ""},
    {"/v1/models", "{}", 405, "", "", "", "", ""},
};

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
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "16MiB", NULL});
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

static void assert_still_well(void)
{
    char text[sizeof(reference)];
    assert_true(proc_is_alive(router_pid));
    ask_reference(text, sizeof(text));
    assert_string_equal(text, reference);
}

static const char *text_of(const json_t *error, const char *key)
{
    const char *text = json_string_value(json_object_get(error, key));
    return text ? text : "";
}

/* The answer is {"error": {message, type, param, code}} with what was expected. */
static void check_error(const struct bad_body *row, const struct http_answer *answer)
{
    const json_t *error = json_object_get(answer->json, "error");
    bool right = answer->status == row->status && json_is_object(error) &&
                 json_object_get(error, "param") && json_object_get(error, "code") &&
                 strlen(text_of(error, "message")) > 10 &&
                 (!row->type[0] || strcmp(text_of(error, "type"), row->type) == 0) &&
                 (!row->code[0] || strcmp(text_of(error, "code"), row->code) == 0) &&
                 strcmp(text_of(error, "param"), row->param) == 0 &&
                 strstr(text_of(error, "message"), row->words) &&
                 strstr(text_of(error, "message"), row->more_words);
    if (!right)
        fail_msg(
            "POST %s %.200s\nwanted %d %s param '%s' code '%s' with '%s' '%s'\ngot %d %.600s %s",
            row->path, row->body, row->status, row->type, row->param, row->code, row->words,
            row->more_words, answer->status, answer->body, answer->failure);
}

static void post(const struct bad_body *row)
{
    struct http_answer answer;
    http_post_text(cluster.url, row->path, row->body, &answer);
    check_error(row, &answer);
    http_answer_done(&answer);
    assert_still_well();
}

static void test_wrong_fields_of_a_chat_are_named_with_their_limits(void **state)
{
    size_t count = sizeof(chat_fields) / sizeof(chat_fields[0]);
    (void)state;

    for (size_t i = 0; i < count; i++) {
        const struct bad_field *field = &chat_fields[i];
        bool own_messages = strncmp(field->json, "\"messages\"", 10) == 0;
        bool own_limit = strncmp(field->json, "\"max_tokens\"", 12) == 0;
        char *body = mem_printf(
            "{%s%s%s%s}", strncmp(field->json, "\"model\"", 7) == 0 ? "" : "\"model\":\"model\",",
            own_messages ? "" : "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],",
            own_limit ? "" : "\"max_tokens\":4,", field->json);
        post(&(struct bad_body){CHAT_PATH, body, 400, INVALID, field->param, "", field->words, ""});
        mem_free(body);
    }
    print_message("%zu wrong fields refused by name\n", count);
}

static void test_wrong_bodies_and_paths_get_their_status_and_error_object(void **state)
{
    size_t count = sizeof(bodies) / sizeof(bodies[0]);
    (void)state;

    for (size_t i = 0; i < count; i++)
        post(&bodies[i]);
    print_message("%zu wrong bodies and paths refused\n", count);
}

static char *repeated(const char *before, const char *piece, size_t count, const char *after)
{
    struct buffer text;
    buffer_init(&text, (size_t)64 << 20);
    buffer_append_text(&text, before);
    for (size_t i = 0; i < count; i++)
        buffer_append_text(&text, piece);
    buffer_append_text(&text, after);
    return buffer_take(&text, NULL);
}

static void test_b18_too_long_prompts_are_refused_with_both_numbers(void **state)
{
    char *body = repeated("{\"model\":\"model\",\"max_tokens\":1,\"prompt\":[5", ",5", 599, "]}");
    (void)state;

    for (int i = 0; i < 20; i++)
        post(&(struct bad_body){COMPLETION_PATH, body, 400, INVALID, "prompt",
                                "context_length_exceeded", "512", "600"});
    mem_free(body);
    body = repeated(CHAT_BODY("\""), "zq", 1000, "\"}]}");
    post(&(struct bad_body){CHAT_PATH, body, 400, INVALID, "messages", "context_length_exceeded",
                            "more than 512", ""});
    mem_free(body);
}

/* Ids whose text is long: the answer to them all must not be made before they are counted. */
static void test_long_lists_of_ids_are_refused_by_their_lengths(void **state)
{
    char *list = repeated("[5", ",5", 30000, "],");
    char *body = repeated("{\"model\":\"model\",\"echo\":true,\"max_tokens\":1,\"prompt\":[", list,
                          34, "[5]]}");
    (void)state;

    post(&(struct bad_body){COMPLETION_PATH, body, 400, INVALID, "prompt",
                            "context_length_exceeded", "512", "30001"});
    mem_free(body);
    body = repeated("{\"model\":\"model\",\"max_tokens\":1,\"prompt\":[", list, 35, "[5]]}");
    post(&(struct bad_body){COMPLETION_PATH, body, 400, INVALID, "", "invalid_json",
                            "more than 1048576 values", ""});
    mem_free(list);
    mem_free(body);
}

static void test_as_many_stop_ids_as_are_taken_work_beside_the_model_s_own(void **state)
{
    struct buffer body;
    struct http_answer answer;
    (void)state;

    buffer_init(&body, 4096);
    buffer_append_text(&body, CHAT_BODY("\"a\"}],\"max_tokens\":1,\"stop_token_ids\":[200"));
    for (int id = 201; id < 264; id++)
        buffer_printf(&body, ",%d", id);
    buffer_append_text(&body, "]}");
    http_post_text(cluster.url, CHAT_PATH, body.data, &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    buffer_done(&body);
}

static void test_b19_the_context_s_last_token_counts(void **state)
{
    static const struct {
        size_t tokens;
        int status;
    } rows[] = {{513, 400}, {512, 400}, {511, 200}};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        char *body = repeated("{\"model\":\"model\",\"max_tokens\":1,\"prompt\":[5", ",5",
                              rows[i].tokens - 1, "]}");
        struct http_answer answer;
        http_post_text(cluster.url, COMPLETION_PATH, body, &answer);
        assert_int_equal(answer.status, rows[i].status);
        http_answer_done(&answer);
        mem_free(body);
    }
    assert_still_well();
}

static void test_b53_deep_nesting_is_refused_with_the_limit(void **state)
{
    static const size_t depths[] = {100, 1000, 10000, 1000000};
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        char *inner = repeated("", "[", depths[i], "");
        char *body = repeated(inner, "]", depths[i], "}");
        char *whole = mem_printf("%s%s", CHAT_BODY("\"a\"}],\"max_tokens\":1,\"x\":"), body);
        struct http_answer answer;
        http_post_text(cluster.url, CHAT_PATH, whole, &answer);
        assert_int_equal(answer.status, depths[i] == 100 ? 200 : 400);
        if (depths[i] > 100)
            assert_non_null(strstr(answer.body, "deeper than 128 levels"));
        print_message("%zu levels: %.0f ms\n", depths[i], answer.total_s * 1e3);
        http_answer_done(&answer);
        mem_free(inner);
        mem_free(body);
        mem_free(whole);
        assert_still_well();
    }
}

static void test_ten_megabytes_are_refused_with_413(void **state)
{
    char *body = repeated(CHAT_BODY("\""), "0123456789abcdef", 655360, "\"}]}");
    struct http_answer answer;
    const struct http_request chunked = {
        .path = CHAT_PATH,
        .body = body,
        .headers = (const char *const[]){"Transfer-Encoding: chunked", NULL}};
    (void)state;

    http_post_text(cluster.url, CHAT_PATH, body, &answer);
    check_error(&(struct bad_body){CHAT_PATH, "10 MiB", 413, INVALID, "", "body_too_large",
                                   "8388608", "At most"},
                &answer);
    http_answer_done(&answer);
    assert_still_well();
    http_send(cluster.url, &chunked, &answer);
    assert_int_equal(answer.status, 413);
    http_answer_done(&answer);
    mem_free(body);
    assert_still_well();
}

static void test_wrong_methods_get_405_with_allow(void **state)
{
    static const struct {
        const char *method, *path, *allow;
    } rows[] = {{"GET", CHAT_PATH, "POST"},
                {"DELETE", "/v1/models", "GET"},
                {"PUT", COMPLETION_PATH, "POST"},
                {"OPTIONS", CHAT_PATH, "POST"},
                {"BREW", "/health", "GET"}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct http_request request = {.method = rows[i].method, .path = rows[i].path};
        struct http_answer answer;
        char allow[64];
        http_send(cluster.url, &request, &answer);
        assert_int_equal(answer.status, 405);
        http_answer_header(&answer, "allow", allow, sizeof(allow));
        assert_non_null(strstr(allow, rows[i].allow));
        assert_true(json_is_object(json_object_get(answer.json, "error")));
        http_answer_done(&answer);
    }
    assert_still_well();
}

static void test_a_body_that_is_not_json_by_its_type_gets_415(void **state)
{
    const struct http_request request = {
        .path = CHAT_PATH,
        .body = CHAT_BODY("\"a\"}]}"),
        .headers = (const char *const[]){"Content-Type: text/plain", NULL}};
    struct http_answer answer;
    (void)state;

    http_send(cluster.url, &request, &answer);
    assert_int_equal(answer.status, 415);
    http_answer_done(&answer);
    assert_still_well();
}

static void test_b24_null_counts_as_absent(void **state)
{
    struct http_answer answer;
    (void)state;

    http_post_text(cluster.url, CHAT_PATH,
                   CHAT_BODY("\"a\"}],\"max_tokens\":2,\"temperature\":null,\"top_p\":null,"
                             "\"n\":null,\"stop\":null,\"seed\":null,\"stream\":null,"
                             "\"stream_options\":null,\"tools\":null,\"logprobs\":null}"),
                   &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
}

static void test_afterwards_nothing_is_held_and_the_cluster_stops(void **state)
{
    (void)state;
    assert_still_well();
    assert_int_equal(cluster_router_pid(&cluster), router_pid);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_fields_of_a_chat_are_named_with_their_limits),
        cmocka_unit_test(test_wrong_bodies_and_paths_get_their_status_and_error_object),
        cmocka_unit_test(test_b18_too_long_prompts_are_refused_with_both_numbers),
        cmocka_unit_test(test_long_lists_of_ids_are_refused_by_their_lengths),
        cmocka_unit_test(test_as_many_stop_ids_as_are_taken_work_beside_the_model_s_own),
        cmocka_unit_test(test_b19_the_context_s_last_token_counts),
        cmocka_unit_test(test_b53_deep_nesting_is_refused_with_the_limit),
        cmocka_unit_test(test_ten_megabytes_are_refused_with_413),
        cmocka_unit_test(test_wrong_methods_get_405_with_allow),
        cmocka_unit_test(test_a_body_that_is_not_json_by_its_type_gets_415),
        cmocka_unit_test(test_b24_null_counts_as_absent),
        cmocka_unit_test(test_afterwards_nothing_is_held_and_the_cluster_stops),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
