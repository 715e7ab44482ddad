/* test_session.c - what the turns of a chat have to do with one another, seen by a client: why a
 * turn reused less, what the history policy cut, when a session is over, what prefix_check says. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define CHECK_PATH "/v1/refrain/prefix_check"
#define WORDS "I have one free day in Paris and I like old books, small cafes and long walks. "

/* ChatML, with what breaks prefixes on demand: tools in front, a mark on the last message. */
#define TEMPLATE                                                                    \
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}" \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"              \
    "{% if mark and loop.last %} (now){% endif %}<|im_end|>\n{% endfor %}"          \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

static struct cluster cluster, small;
static char folder[] = "/tmp/refrain-session-XXXXXX";
static char conf_path[64], template_path[64];

static int setup(void **state)
{
    char conf[256];
    (void)state;
    (void)snprintf(template_path, sizeof(template_path), "%s/chat.jinja", folder);
    (void)snprintf(conf_path, sizeof(conf_path), "%s/cluster.conf", folder);
    (void)snprintf(conf, sizeof(conf), "[router]\nexplain = true\nchat-template = %s\n",
                   template_path);
    file_write(template_path, TEMPLATE);
    file_write(conf_path, conf);
    /* About 40 blocks, so that a chat is soon evicted by another. */
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--config", conf_path, "--kv-cache-memory", "14MiB",
                                        "--max-model-len", "512", NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    cluster_abort(&small);
    folder_remove(folder);
    return 0;
}

/* ---- asking ---- */

static json_t *message(const char *role, const char *content)
{
    return json_pack("{s:s, s:s}", "role", role, "content", content);
}

/* {"model", "messages": [system?, user], ...}; system NULL: none. */
static json_t *opening(const char *system, const char *user)
{
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages, message("system", system));
    json_array_append_new(messages, message("user", user));
    return json_pack("{s:s, s:o, s:i, s:i}", "model", cluster.model, "messages", messages,
                     "max_tokens", 24, "temperature", 0);
}

/* Sends the body; the answer's object, to be freed. */
static json_t *ask(const struct cluster *at, json_t *body, int status)
{
    return cluster_post(at, CHAT_PATH, json_incref(body), status);
}

static const json_t *refrain_of(const json_t *answer)
{
    return json_object_get(answer, "refrain");
}

/* "" for null. */
static const char *cause_of(const json_t *answer)
{
    const json_t *miss = json_object_get(refrain_of(answer), "miss");
    const char *cause = json_string_value(json_object_get(miss, "cause"));
    assert_non_null(miss);
    return cause ? cause : "";
}

static int number(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return (int)json_integer_value(json_object_get(object, key));
}

static int cached_of(const json_t *answer)
{
    return number(refrain_of(answer), "cached_tokens");
}

static int prompt_of(const json_t *answer)
{
    return number(json_object_get(answer, "usage"), "prompt_tokens");
}

/* The answer and a new question go into the body. */
static void go_on(json_t *body, const json_t *answer, const char *question)
{
    json_t *messages = json_object_get(body, "messages");
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const char *content =
        json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
    assert_non_null(content);
    json_array_append_new(messages, message("assistant", content));
    json_array_append_new(messages, message("user", question));
}

/* First turn of `body`, then the change, then the second turn: the second answer, to be freed. */
static json_t *two_turns(json_t *body, void (*change)(json_t *body))
{
    json_t *first = ask(&cluster, body, 200);
    assert_string_equal(cause_of(first), "first_turn");
    go_on(body, first, "And then?");
    if (change)
        change(body);
    json_t *second = ask(&cluster, body, 200);
    const json_t *miss = json_object_get(refrain_of(second), "miss");
    char *text = json_dumps(miss, JSON_ENCODE_ANY);
    print_message("reused %d of %d: %s\n", cached_of(second), prompt_of(second), text);
    free(text);
    json_decref(first);
    return second;
}

static void expect_cause(json_t *answer, json_t *body, const char *cause)
{
    assert_string_equal(cause_of(answer), cause);
    json_decref(answer);
    json_decref(body);
}

/* ---- causes ---- */

static void test_a_turn_that_reuses_all_has_no_miss(void **state)
{
    (void)state;
    json_t *body = opening("You are kind.", WORDS "What should I do?");
    expect_cause(two_turns(body, NULL), body, "");
}

static void other_salt(json_t *body)
{
    json_object_set_new(body, "cache_salt", json_string("another"));
}

static void test_salt_changed(void **state)
{
    (void)state;
    json_t *body = opening(NULL, "Salt. " WORDS);
    json_object_set_new(body, "session_id", json_string("salty"));
    expect_cause(two_turns(body, other_salt), body, "salt_changed");
}

static void other_tools(json_t *body)
{
    json_t *tools = json_object_get(body, "tools");
    json_array_append(tools, json_array_get(tools, 0));
    json_array_remove(tools, 0);
}

static void test_tools_changed(void **state)
{
    (void)state;
    json_t *body = opening(NULL, "Tools. " WORDS);
    json_object_set_new(body, "tool_choice", json_string("none"));
    json_object_set_new(body, "tools",
                        json_pack("[{s:s, s:{s:s}}, {s:s, s:{s:s}}]", "type", "function",
                                  "function", "name", "find_a_book", "type", "function", "function",
                                  "name", "find_a_cafe"));
    expect_cause(two_turns(body, other_tools), body, "tools_changed");
}

static void other_clock(json_t *body)
{
    json_t *system = json_array_get(json_object_get(body, "messages"), 0);
    json_object_set_new(system, "content",
                        json_string("Current time is 15:10:07. You are a helpful assistant."));
}

static void test_b42_a_clock_in_the_system_text_is_named_to_the_byte(void **state)
{
    (void)state;
    json_t *body = opening("Current time is 15:09:20. You are a helpful assistant.", "hi");
    json_t *answer = two_turns(body, other_clock);
    const json_t *miss = json_object_get(refrain_of(answer), "miss");
    assert_int_equal(number(miss, "text_offset"), 19); /* "Current time is 15:" */
    assert_int_equal(number(miss, "message"), 0);
    expect_cause(answer, body, "system_changed");
}

static void other_question(json_t *body)
{
    json_t *user = json_array_get(json_object_get(body, "messages"), 1);
    json_object_set_new(user, "content", json_string("Edit! " WORDS));
}

static void other_answer(json_t *body)
{
    json_t *answer = json_array_get(json_object_get(body, "messages"), 2);
    json_object_set_new(answer, "content", json_string("No. " WORDS WORDS WORDS));
}

static void test_message_edited_says_which(void **state)
{
    (void)state;
    json_t *body = opening("You are kind to editors.", "Edit. " WORDS);
    json_object_set_new(body, "session_id", json_string("editor"));
    json_t *answer = two_turns(body, other_question);
    assert_int_equal(number(json_object_get(refrain_of(answer), "miss"), "message"), 1);
    expect_cause(answer, body, "message_edited");
    body = opening("You are kind to editors.", "Answer. " WORDS);
    answer = two_turns(body, other_answer);
    assert_int_equal(number(json_object_get(refrain_of(answer), "miss"), "message"), 2);
    expect_cause(answer, body, "message_edited");
}

static void last_two(json_t *body)
{
    json_t *messages = json_object_get(body, "messages");
    json_object_set_new(json_array_get(messages, json_array_size(messages) - 1), "content",
                        json_string(WORDS WORDS));
    json_object_set_new(body, "refrain", json_pack("{s:{s:i}}", "history", "last_messages", 2));
}

static void test_history_cut(void **state)
{
    (void)state;
    json_t *body = opening("You are kind to those who forget.", "Cut. " WORDS);
    json_t *answer = two_turns(body, last_two);
    const json_t *cut = json_object_get(refrain_of(answer), "history_cut");
    assert_int_equal(number(cut, "messages"), 2);
    assert_in_range(number(cut, "tokens"), 20, 80);
    expect_cause(answer, body, "history_cut");
}

static void test_template_unstable(void **state)
{
    (void)state;
    json_t *body = opening("You are kind to templates.", "Mark. " WORDS);
    json_object_set_new(body, "chat_template_kwargs", json_pack("{s:b}", "mark", 1));
    json_t *answer = two_turns(body, NULL); /* " (now)" has moved on to the new question */
    const json_t *miss = json_object_get(refrain_of(answer), "miss");
    assert_int_equal(number(miss, "message"), 2);
    assert_string_equal(json_string_value(json_object_get(miss, "field")), "template");
    expect_cause(answer, body, "template_unstable");
}

/* Without turn memory, text that the model wrote in other pieces than the tokenizer makes. Hot
 * sampling writes such text, but not for every seed. */
static void test_retokenized(void **state)
{
    bool seen = false;
    (void)state;
    for (int seed = 1; seed <= 12 && !seen; seed++) {
        char text[256];
        (void)snprintf(text, sizeof(text), "Write freely, number %d. " WORDS, seed);
        json_t *body = opening(NULL, text);
        json_object_set_new(body, "temperature", json_real(1.7));
        json_object_set_new(body, "max_tokens", json_integer(48));
        json_object_set_new(body, "seed", json_integer(seed));
        json_object_set_new(body, "refrain", json_pack("{s:b}", "turn_memory", 0));
        json_t *answer = two_turns(body, NULL);
        seen = strcmp(cause_of(answer), "retokenized") == 0;
        json_decref(answer);
        json_decref(body);
    }
    assert_true(seen);
}

static void drain(int group, bool undo)
{
    char path[64];
    struct http_answer answer;
    (void)snprintf(path, sizeof(path), "/v1/refrain/drain?group=%d&undo=%d", group, undo);
    http_post_text(cluster.url, path, "", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
}

static void test_other_worker_then_evicted(void **state)
{
    json_t *body = opening("You are kind to travellers.", "Move. " WORDS);
    json_t *first = ask(&cluster, body, 200);
    int group = number(refrain_of(first), "group");
    (void)state;
    go_on(body, first, "And then?");
    drain(group, false);
    json_t *second = ask(&cluster, body, 200);
    assert_string_equal(cause_of(second), "other_worker");
    assert_int_equal(number(refrain_of(second), "group"), 1 - group);
    /* The group that has it now is the only one; others' chats push it out. */
    for (int i = 0; i < 2; i++) {
        char text[32 * sizeof(WORDS)];
        size_t at = (size_t)snprintf(text, sizeof(text), "Chat %d. ", i);
        for (int k = 0; k < 23; k++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s", WORDS);
        json_t *filler = opening(NULL, text);
        json_object_set_new(filler, "max_tokens", json_integer(1));
        json_decref(ask(&cluster, filler, 200));
        json_decref(filler);
    }
    go_on(body, second, "And at last?");
    json_t *third = ask(&cluster, body, 200);
    assert_true(cached_of(third) < prompt_of(second) - 16);
    assert_string_equal(cause_of(third), "evicted");
    drain(group, true);
    json_decref(first);
    json_decref(second);
    json_decref(third);
    json_decref(body);
}

/* Whose prompt is scored asked for all of it to be computed; a completion says so, too. */
static void test_reuse_off(void **state)
{
    json_t *body = opening("You are kind to travellers.", "Score. " WORDS);
    json_t *first = ask(&cluster, body, 200);
    (void)state;
    go_on(body, first, "And then?");
    json_object_set_new(body, "prompt_logprobs", json_integer(0));
    json_t *second = ask(&cluster, body, 200);
    assert_string_equal(cause_of(second), "reuse_off");
    json_decref(first);
    json_decref(second);
    json_decref(body);
}

static void test_every_cause_was_counted(void **state)
{
    static const char *const causes[] = {"first_turn",        "salt_changed",   "tools_changed",
                                         "system_changed",    "message_edited", "history_cut",
                                         "template_unstable", "retokenized",    "other_worker",
                                         "evicted",           "reuse_off",      "none"};
    (void)state;
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        char label[64];
        (void)snprintf(label, sizeof(label), "cause=\"%s\"", causes[i]);
        double count = cluster_metric(&cluster, "refrain_router_prefix_misses_total", label, NULL);
        print_message("%s: %.0f\n", causes[i], count);
        assert_true(count >= 1);
    }
}

/* ---- history ---- */

static void test_a_cut_is_stable_over_twelve_turns(void **state)
{
    json_t *body = opening("You are kind, and brief.", "Turn 1 of a long chat about Paris.");
    int kept_before = 0, moves = 0;
    (void)state;
    json_object_set_new(body, "max_tokens", json_integer(6));
    json_object_set_new(body, "refrain", json_pack("{s:{s:i}}", "history", "last_messages", 8));
    for (int turn = 1, cut_before = 0; turn <= 12; turn++) {
        char question[64];
        json_t *answer = ask(&cluster, body, 200);
        const json_t *cut = json_object_get(refrain_of(answer), "history_cut");
        int messages = cut ? number(cut, "messages") : 0;
        assert_in_range(2 * turn - 1 - messages, 1, 8);
        print_message("turn %d: %d messages cut, reused %d of %d\n", turn, messages,
                      cached_of(answer), prompt_of(answer));
        if (messages != cut_before)
            moves++; /* a new beginning: only the system text is reused */
        else if (turn > 1)
            assert_true(cached_of(answer) >= kept_before);
        cut_before = messages;
        kept_before = prompt_of(answer);
        (void)snprintf(question, sizeof(question), "And what about hour %d?", turn);
        go_on(body, answer, question);
        json_decref(answer);
    }
    /* 9 messages at turn 5, cut to 3; 9 again at turn 8, at turn 11. */
    assert_int_equal(moves, 3);
    json_decref(body);
}

static bool keep_last(void *user, const char *data)
{
    char *last = user;
    if (strcmp(data, "[DONE]") != 0)
        (void)snprintf(last, 4096, "%s", data);
    return true;
}

static void test_a_stream_says_it_in_its_last_chunk(void **state)
{
    char last[4096] = "";
    struct http_answer answer;
    json_t *body = opening("You are kind.", "One.");
    json_t *messages = json_object_get(body, "messages");
    (void)state;
    json_array_append_new(messages, message("assistant", "Two."));
    json_array_append_new(messages, message("user", "Three?"));
    last_two(body);
    json_object_set_new(body, "stream", json_true());
    char *text = json_dumps(body, 0);
    const struct http_request request = {
        .path = CHAT_PATH, .body = text, .on_event = keep_last, .user = last};
    http_send(cluster.url, &request, &answer);
    assert_int_equal(answer.status, 200);
    json_t *chunk = json_loads(last, 0, NULL);
    assert_non_null(chunk);
    assert_int_equal(number(json_object_get(refrain_of(chunk), "history_cut"), "messages"), 2);
    assert_non_null(json_object_get(refrain_of(chunk), "miss"));
    json_decref(chunk);
    http_answer_done(&answer);
    free(text);
    json_decref(body);
}

static void refuse(json_t *history, const char *param, const char *code)
{
    json_t *body = opening("You are kind.", WORDS WORDS);
    json_object_set_new(body, "refrain", json_pack("{s:o}", "history", history));
    json_t *answer = ask(&cluster, body, 400);
    const json_t *error = json_object_get(answer, "error");
    assert_string_equal(json_string_value(json_object_get(error, "param")), param);
    assert_string_equal(json_string_value(json_object_get(error, "code")), code);
    json_decref(answer);
    json_decref(body);
}

static void test_wrong_policies_and_too_small_budgets_are_refused(void **state)
{
    (void)state;
    refuse(json_string("none"), "refrain.history", "invalid_value");
    refuse(json_pack("{s:i}", "last_messages", 0), "refrain.history", "invalid_value");
    refuse(json_pack("{s:s}", "token_budget", "many"), "refrain.history", "invalid_value");
    refuse(json_pack("{s:i}", "token_budget", 20), "messages", "context_length_exceeded");
}

/* ---- prefix_check ---- */

static json_t *check(json_t *body, int status)
{
    return cluster_post(&cluster, CHECK_PATH, body, status);
}

static void test_prefix_check_names_the_byte(void **state)
{
    json_t *turn =
        json_pack("[o, o]", message("system", "Current time is 15:09:20."), message("user", "hi"));
    json_t *next =
        json_pack("[o, o]", message("system", "Current time is 15:10:07."), message("user", "hi"));
    (void)state;
    json_t *answer = check(json_pack("{s:o, s:o}", "messages", turn, "next_messages", next), 200);
    const json_t *at = json_object_get(answer, "breaks_at");
    assert_true(json_is_false(json_object_get(answer, "stable")));
    assert_string_equal(json_string_value(json_object_get(answer, "cause")), "system_changed");
    assert_int_equal(number(at, "message"), 0);
    assert_int_equal(number(at, "field_offset"), 19);
    assert_int_equal(number(at, "text_offset"), 19 + 19); /* "<|im_start|>system\n" */
    assert_true(number(at, "token") > 3);
    json_decref(answer);
}

static const json_t *probe_of(const json_t *answer, const char *name)
{
    const json_t *probes = json_object_get(answer, "probes");
    for (size_t i = 0; i < json_array_size(probes); i++) {
        const json_t *probe = json_array_get(probes, i);
        if (strcmp(json_string_value(json_object_get(probe, "probe")), name) == 0)
            return probe;
    }
    fail_msg("no probe '%s'", name);
    return NULL;
}

static void test_prefix_check_of_a_template(void **state)
{
    static const char dated[] = "{{ strftime_now('%d %b %Y') }}{% for m in messages %}"
                                "<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}";
    (void)state;
    json_t *answer = check(json_object(), 200); /* the model's own */
    assert_true(json_is_true(json_object_get(answer, "stable")));
    assert_int_equal(json_array_size(json_object_get(answer, "probes")), 6);
    json_decref(answer);
    answer = check(json_pack("{s:s}", "template", dated), 200);
    assert_true(json_is_false(json_object_get(answer, "stable")));
    assert_true(json_is_true(json_object_get(probe_of(answer, "plain"), "stable")));
    const json_t *date = probe_of(answer, "date");
    assert_true(json_is_false(json_object_get(date, "stable")));
    assert_string_equal(json_string_value(json_object_get(date, "cause")), "template_unstable");
    json_decref(answer);
    json_decref(check(json_pack("{s:s}", "template", "{% for"), 400));
    json_decref(check(json_pack("{s:s}", "chat_template", "{% for"), 400));
    json_decref(check(json_pack("{s:s}", "template", "{% for m in messages %}{{ 1 // 0 }}"), 400));
    json_decref(check(json_pack("{s:[]}", "messages"), 400));
    json_decref(check(json_pack("{s:s}", "model", "nobody"), 404));
}

static void test_prefix_check_is_for_this_machine(void **state)
{
    static const char *const through_a_proxy[] = {"X-Forwarded-For: 192.0.2.1", NULL};
    const struct http_request request = {
        .path = CHECK_PATH, .body = "{}", .headers = through_a_proxy};
    struct http_answer answer;
    (void)state;
    http_send(cluster.url, &request, &answer);
    assert_int_equal(answer.status, 403);
    http_answer_done(&answer);
}

/* ---- limits ---- */

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

static void limit(json_t *body, int status, const char *words)
{
    json_t *answer = ask(&small, body, status);
    const json_t *error = json_object_get(answer, "error");
    if (status == 400) {
        assert_string_equal(json_string_value(json_object_get(error, "code")), "session_limit");
        assert_non_null(strstr(json_string_value(json_object_get(error, "message")), words));
    }
    json_decref(answer);
}

static json_t *turn_of(const char *session, int turn)
{
    json_t *messages = json_array();
    for (int i = 1; i < turn; i++) {
        json_array_append_new(messages, message("user", "a"));
        json_array_append_new(messages, message("assistant", "b"));
    }
    json_array_append_new(messages, message("user", "a"));
    json_t *body = json_pack("{s:o, s:i}", "messages", messages, "max_tokens", 1);
    if (session)
        json_object_set_new(body, "session_id", json_string(session));
    return body;
}

static void test_a_session_ends_at_its_turns(void **state)
{
    (void)state;
    cluster_start(&small, e2e_tiny("llama-gguf-f32"),
                  (const char *const[]){"--session-max-turns", "2", "--chat-template",
                                        template_path, "--groups", "1", NULL});
    for (int named = 0; named < 2; named++) {
        const char *session = named ? "s1" : NULL;
        for (int turn = 1; turn <= 3; turn++) {
            json_t *body = turn_of(session, turn);
            limit(body, turn <= 2 ? 200 : 400, named ? "another 'session_id'" : "new conversation");
            limit(body, turn <= 2 ? 200 : 400, "turn 3"); /* again is no new turn */
            json_decref(body);
        }
    }
    json_t *fresh = turn_of("s2", 1);
    limit(fresh, 200, "");
    json_decref(fresh);
    assert_int_equal(
        cluster_metric(&small, "refrain_router_session_refused_total", "limit=\"turns\"", NULL), 4);
    cluster_stop(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_that_reuses_all_has_no_miss),
        cmocka_unit_test(test_salt_changed),
        cmocka_unit_test(test_tools_changed),
        cmocka_unit_test(test_b42_a_clock_in_the_system_text_is_named_to_the_byte),
        cmocka_unit_test(test_message_edited_says_which),
        cmocka_unit_test(test_history_cut),
        cmocka_unit_test(test_template_unstable),
        cmocka_unit_test(test_retokenized),
        cmocka_unit_test(test_other_worker_then_evicted),
        cmocka_unit_test(test_reuse_off),
        cmocka_unit_test(test_every_cause_was_counted),
        cmocka_unit_test(test_a_cut_is_stable_over_twelve_turns),
        cmocka_unit_test(test_a_stream_says_it_in_its_last_chunk),
        cmocka_unit_test(test_wrong_policies_and_too_small_budgets_are_refused),
        cmocka_unit_test(test_prefix_check_names_the_byte),
        cmocka_unit_test(test_prefix_check_of_a_template),
        cmocka_unit_test(test_prefix_check_is_for_this_machine),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
        cmocka_unit_test(test_a_session_ends_at_its_turns),
    };
    e2e_begin();
    (void)e2e_smollm2();
    assert_non_null(mkdtemp(folder));
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
