/* test_turn.c - history, limits and causes on real prompts of a model with one token per byte.
 *
 * Template: "<bos>", "<user>TEXT<end>" per message, ":" for the answer. So a message has 2 + bytes
 * tokens and a prompt 2 more. */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "router/metrics.h"
#include "router/session/miss.h"
#include "router/turn.h"
#include "tests/unit/router/tiny_card.h"

#define TEMPLATE                                                                   \
    "{{ bos_token }}{% for m in messages %}<user>{{ m.content }}<end>{% endfor %}" \
    "{% if add_generation_prompt %}:{% endif %}"

static struct served_model model;
static struct chat_template *chat_template;
static struct sessions *sessions;
static struct metrics *metrics;

static void start(const struct sessions_settings *settings)
{
    metrics = metrics_new(router_metric_specs, ROUTER_METRICS);
    sessions = sessions_new(settings, metrics);
}

static void stop(void)
{
    sessions_free(sessions);
    metrics_free(metrics);
}

static int setup(void **state)
{
    struct errmsg err;
    (void)state;
    model.card = tiny_card(TEMPLATE);
    assert_int_equal(tokenizer_new(model.card, &model.maker.tokenizer, &err), 0);
    assert_int_equal(chat_template_new(TEMPLATE, strlen(TEMPLATE), &chat_template, &err), 0);
    model.maker.chat_template = chat_template;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free(model.maker.tokenizer);
    chat_template_free(chat_template);
    model_card_unref(model.card);
    return 0;
}

#define OFF 99u /* the group that reuses nothing because it is told so */

/* One request, from its body to its answer. */
struct asked {
    struct api_request fields;
    struct arena arena;
    struct token_ids ids;
    struct turn *turn;
    struct api_error error;
    struct buffer out;
    int r;
};

static void ask_with(struct asked *a, const char *body, const struct prompt_maker *maker)
{
    memset(a, 0, sizeof(*a));
    arena_init(&a->arena, 1 << 20);
    token_ids_init(&a->ids, 4096);
    buffer_init(&a->out, 4096);
    a->r = request_json_parse(API_CHAT, body, strlen(body), &a->arena, &a->fields, &a->error);
    assert_int_equal(a->r, 0);
    a->r = turn_open(sessions, &a->fields, &model, maker, &a->turn, &a->error);
    if (a->r == 0)
        a->r = turn_prompt(a->turn, &a->ids, NULL, &a->error);
}

static void ask(struct asked *a, const char *body)
{
    ask_with(a, body, &model.maker);
}

/* `text` is answered by `group`, which reused `cached` tokens. */
static void answer(struct asked *a, uint32_t cached, uint32_t group, const char *text)
{
    uint32_t ids[256];
    size_t bytes = strlen(text);
    assert_int_equal(a->r, 0);
    for (size_t i = 0; i < bytes; i++)
        ids[i] = TINY_BYTE(text[i]);
    turn_sent(a->turn, a->ids.ids, a->ids.count);
    turn_first(a->turn, cached, group, group == OFF ? "off" : "");
    turn_content(a->turn, text, bytes / 2); /* a stream */
    turn_content(a->turn, text + bytes / 2, bytes - bytes / 2);
    turn_write(a->turn, true, "", &a->out);
    turn_end(a->turn, ids, bytes);
}

static void done(struct asked *a)
{
    turn_free(a->turn);
    api_request_done(&a->fields);
    arena_done(&a->arena);
    token_ids_done(&a->ids);
    buffer_done(&a->out);
}

/* {"messages":[...]} of user and assistant in turns, each `bytes` letters, after a system text of
 * 10; `more` stands behind it. */
static void talk(char *body, size_t body_max, unsigned messages, unsigned bytes, const char *more)
{
    size_t at = (size_t)snprintf(body, body_max,
                                 "{\"messages\":[{\"role\":\"system\",\"content\":\"be so kind\"}");
    for (unsigned i = 0; i < messages; i++)
        at += (size_t)snprintf(body + at, body_max - at, ",{\"role\":\"%s\",\"content\":\"%0*u\"}",
                               i % 2 ? "assistant" : "user", (int)bytes, i);
    (void)snprintf(body + at, body_max - at, "]%s}", more);
}

static size_t prompt_of(unsigned messages, const char *more, char *ret_json, size_t json_max)
{
    char body[8192];
    struct asked a;
    talk(body, sizeof(body), messages, 18, more);
    ask(&a, body);
    assert_int_equal(a.r, 0);
    turn_write(a.turn, false, "", &a.out);
    (void)snprintf(ret_json, json_max, "%s", a.out.data);
    size_t count = a.ids.count;
    done(&a);
    return count;
}

static void test_token_budget_is_exact_and_the_cut_stays(void **state)
{
    const struct sessions_settings settings = {.history = {HISTORY_TOKEN_BUDGET, 214, 50}};
    char json[256];
    (void)state;
    start(&settings);
    /* 2 + system 12 + 20 per message: 9 messages are 194, 10 would be 214, 11 are 234. */
    assert_int_equal(prompt_of(9, "", json, sizeof(json)), 194);
    assert_string_equal(json, "");
    /* 107 or less: 4 are 94, but a cut begins at a user, so messages 8, 9, 10 of 11: 74. */
    assert_int_equal(prompt_of(11, "", json, sizeof(json)), 74);
    assert_string_equal(json, ",\"history_cut\":{\"messages\":8,\"tokens\":160}");
    assert_int_equal(prompt_of(13, "", json, sizeof(json)), 114); /* two more, the same cut */
    assert_int_equal(prompt_of(17, "", json, sizeof(json)), 194);
    assert_string_equal(json, ",\"history_cut\":{\"messages\":8,\"tokens\":160}");
    assert_int_equal(prompt_of(19, "", json, sizeof(json)), 74); /* 234: cut again */
    assert_int_equal(metrics_get(metrics, RM_HISTORY_CUTS, 0), 4);
    stop();
}

static void test_a_request_wins_over_the_server(void **state)
{
    const struct sessions_settings settings = {.history = {HISTORY_LAST_MESSAGES, 4, 50}};
    char json[256];
    (void)state;
    start(&settings);
    assert_int_equal(prompt_of(5, "", json, sizeof(json)), 14 + 20);
    assert_string_equal(json, ",\"history_cut\":{\"messages\":4,\"tokens\":80}");
    assert_int_equal(prompt_of(5, ",\"refrain\":{\"history\":\"full\"}", json, sizeof(json)), 114);
    assert_string_equal(json, "");
    assert_int_equal(
        prompt_of(5, ",\"refrain\":{\"history\":{\"token_budget\":114}}", json, sizeof(json)), 114);
    assert_int_equal(
        prompt_of(5, ",\"refrain\":{\"history\":{\"token_budget\":113}}", json, sizeof(json)),
        34); /* half of 113 is 56: 54 would be two messages, from an assistant on */
    stop();
}

static void test_b82_what_must_stay_and_does_not_fit_is_refused_with_numbers(void **state)
{
    const struct sessions_settings settings = {.history = {.low_water_percent = 50}};
    char body[8192];
    struct asked a;
    (void)state;
    start(&settings);
    talk(body, sizeof(body), 5, 18, ",\"refrain\":{\"history\":{\"token_budget\":33}}");
    ask(&a, body);
    assert_int_equal(a.error.status, 400);
    assert_string_equal(a.error.code, "context_length_exceeded");
    assert_string_equal(a.error.param, "messages");
    assert_non_null(strstr(a.error.message, "34 tokens"));
    assert_non_null(strstr(a.error.message, "33"));
    done(&a);
    stop();
}

static void test_limits_refuse_with_numbers_and_advice(void **state)
{
    const struct sessions_settings settings = {.limits = {.turns_max = 1}};
    char body[8192];
    struct asked a;
    (void)state;
    start(&settings);
    talk(body, sizeof(body), 1, 18, ",\"session_id\":\"s1\"");
    ask(&a, body);
    assert_int_equal(a.r, 0);
    done(&a);
    talk(body, sizeof(body), 3, 18, ",\"session_id\":\"s1\"");
    ask(&a, body);
    assert_int_equal(a.error.status, 400);
    assert_string_equal(a.error.code, "session_limit");
    assert_string_equal(a.error.param, "session_id");
    assert_non_null(strstr(a.error.message, "turn 2"));
    assert_non_null(strstr(a.error.message, "new session"));
    assert_int_equal(metrics_get(metrics, RM_SESSION_REFUSED, 0), 1);
    done(&a);
    stop();
}

/* One tenant's session_id says nothing about another's. */
static void test_sessions_of_two_salts_are_two(void **state)
{
    const struct sessions_settings settings = {.limits = {.turns_max = 1}};
    static const char *const tenants[] = {",\"session_id\":\"s\"",
                                          ",\"session_id\":\"s\",\"cache_salt\":\"a\"",
                                          ",\"session_id\":\"s\",\"cache_salt\":\"b\""};
    char body[8192];
    struct asked a;
    (void)state;
    start(&settings);
    for (size_t turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < 3; i++) {
            talk(body, sizeof(body), 1 + 2 * (unsigned)turn, 18, tenants[i]);
            ask(&a, body);
            assert_int_equal(a.r == 0, turn == 0);
            done(&a);
        }
    }
    assert_int_equal(metrics_get(metrics, RM_SESSION_REFUSED, 0), 3);
    stop();
}

/* The same messages through a template that the client sent: other text, and the miss says why. */
static void test_another_template_is_named_as_a_cause(void **state)
{
    static const char source[] =
        "{{ bos_token }}{% for m in messages %}{{ m.content }};{% endfor %}";
    const struct sessions_settings settings = {.records_max = 16};
    struct prompt_maker own = model.maker;
    struct chat_template *compiled = NULL;
    struct errmsg err;
    char body[8192];
    struct asked a;
    (void)state;
    start(&settings);
    talk(body, sizeof(body), 1, 100, ",\"session_id\":\"s\"");
    ask(&a, body);
    answer(&a, 0, 1, "x");
    done(&a);
    assert_int_equal(chat_template_new(source, strlen(source), &compiled, &err), 0);
    own.chat_template = compiled;
    talk(body, sizeof(body), 1, 100,
         ",\"session_id\":\"s\",\"chat_template\":\"{{ bos_token }}{% for m in messages %}"
         "{{ m.content }};{% endfor %}\"");
    ask_with(&a, body, &own);
    assert_int_equal(a.ids.count, 1 + 11 + 101);
    answer(&a, 1, 1, "x");
    assert_non_null(strstr(a.out.data, "\"cause\":\"template_unstable\""));
    assert_non_null(strstr(a.out.data, "or chat_template differ"));
    done(&a);
    chat_template_free(compiled);
    stop();
}

static void test_the_cause_of_a_miss_reaches_answer_and_metrics(void **state)
{
    const struct sessions_settings settings = {.records_max = 16};
    char body[8192];
    struct asked a;
    (void)state;
    start(&settings);
    talk(body, sizeof(body), 1, 100, "");
    ask(&a, body);
    answer(&a, 0, 1, "an answer of thirty-two letters.");
    assert_non_null(strstr(a.out.data, ",\"miss\":{\"cause\":\"first_turn\""));
    done(&a);
    talk(body, sizeof(body), 3, 100, ""); /* message 2 is not what was answered */
    ask(&a, body);
    answer(&a, 118, 1, "x");
    assert_non_null(strstr(a.out.data, "\"cause\":\"message_edited\",\"message\":2,"));
    done(&a);
    ask(&a, body); /* once more, on a group that has nothing */
    answer(&a, 0, 2, "x");
    assert_non_null(strstr(a.out.data, "\"cause\":\"other_worker\""));
    done(&a);
    ask(&a, body);
    answer(&a, 200, 2, "x"); /* 14 + 3 * 102 = 320 tokens */
    assert_non_null(strstr(a.out.data, "\"cause\":\"evicted\""));
    done(&a);
    ask(&a, body);
    answer(&a, 319, 2, "x");
    assert_string_equal(a.out.data, ",\"miss\":null");
    done(&a);
    ask(&a, body);
    answer(&a, 0, OFF, "x");
    assert_non_null(strstr(a.out.data, "\"cause\":\"reuse_off\""));
    done(&a);
    assert_int_equal(metrics_get(metrics, RM_MISSES, MISS_MESSAGE_EDITED), 1);
    assert_int_equal(metrics_get(metrics, RM_MISSES, MISS_NONE), 1);
    assert_int_equal(metrics_get(metrics, RM_MISSES, MISS_REUSE_OFF), 1);
    /* The first answer left 116 + 31; then three times the 319 of the same prompt. */
    assert_int_equal(metrics_get(metrics, RM_REUSABLE_TOKENS, 0), 147 + 3 * 319);
    assert_int_equal(metrics_get(metrics, RM_REUSED_TOKENS, 0), 118 + 0 + 200 + 319);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_budget_is_exact_and_the_cut_stays),
        cmocka_unit_test(test_a_request_wins_over_the_server),
        cmocka_unit_test(test_b82_what_must_stay_and_does_not_fit_is_refused_with_numbers),
        cmocka_unit_test(test_limits_refuse_with_numbers_and_advice),
        cmocka_unit_test(test_sessions_of_two_salts_are_two),
        cmocka_unit_test(test_another_template_is_named_as_a_cause),
        cmocka_unit_test(test_the_cause_of_a_miss_reaches_answer_and_metrics),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
