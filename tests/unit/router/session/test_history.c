/* test_history.c - what stays, where a cut may be, and that the next turns keep it. */
#include <errno.h>

#include "proto/base/rng.h"
#include "router/session/history.h"
#include "talk.h"

static uint32_t first_of(const char *letters, enum history_kind kind, uint32_t limit,
                         const uint32_t *tokens, uint32_t base)
{
    const struct history_policy policy = {kind, limit, HISTORY_LOW_WATER_PERCENT};
    struct talk t;
    talk_init(&t, letters);
    uint32_t first = history_first(&policy, &t.conversation, tokens, base);
    talk_done(&t);
    return first;
}

static uint32_t last_messages(const char *letters, uint32_t limit)
{
    return first_of(letters, HISTORY_LAST_MESSAGES, limit, NULL, 0);
}

static void test_full_never_cuts(void **state)
{
    (void)state;
    assert_int_equal(first_of("suauauauauau", HISTORY_FULL, 0, NULL, 0), 1);
}

static void test_last_messages_when_passed_drops_to_half(void **state)
{
    (void)state;
    assert_int_equal(last_messages("suauauau", 8), 1);   /* 7 behind the head */
    assert_int_equal(last_messages("suauauauau", 8), 7); /* 9: down to 3, from a user on */
    /* The next turns keep that cut until they pass 8 again. */
    assert_int_equal(last_messages("suauauauauau", 8), 7);
    assert_int_equal(last_messages("suauauauauauau", 8), 7);    /* 7 kept */
    assert_int_equal(last_messages("suauauauauauauau", 8), 13); /* 9: once more */
    assert_int_equal(last_messages("suau", 1), 3);
}

static void test_the_last_user_and_all_behind_it_stay_whatever_the_limit(void **state)
{
    (void)state;
    assert_int_equal(last_messages("suauctct", 2), 3); /* 5 stay, limit 2 */
    assert_int_equal(last_messages("su", 1), 1);
    assert_int_equal(last_messages("ssss", 1), 4);
    assert_int_equal(last_messages("saaaa", 1), 1); /* no user: nothing may go */
}

static void test_b81_a_call_keeps_its_results(void **state)
{
    (void)state;
    /* The bug report: system, user, call, result. Only the user turn could go, and must not. */
    assert_int_equal(last_messages("suct", 1), 1);
    /* A user talks between call and result: no cut between them, so the older user begins. */
    assert_int_equal(last_messages("suaucut", 1), 3);
    assert_int_equal(last_messages("suaucutau", 1), 8);
    /* A late result of the very first call forbids all cuts behind that call. */
    assert_int_equal(last_messages("sucutuaTu", 3), 8);
    assert_int_equal(last_messages("sucutuaT", 3), 1);
}

static void test_token_budget_counts_head_and_base(void **state)
{
    /*                         s   u   a   u   a   u   */
    const uint32_t tokens[] = {10, 20, 30, 20, 30, 20};
    (void)state;
    assert_int_equal(first_of("suauau", HISTORY_TOKEN_BUDGET, 135, tokens, 5), 1); /* exactly */
    assert_int_equal(first_of("suauau", HISTORY_TOKEN_BUDGET, 134, tokens, 5), 5); /* <= 67: 35 */
    assert_int_equal(first_of("suauau", HISTORY_TOKEN_BUDGET, 134, tokens, 4), 1);
    const uint32_t tens[] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10};
    /* 100 of 99: down to 49 or less, and 7 leaves 10 + 30. */
    assert_int_equal(first_of("suauauauau", HISTORY_TOKEN_BUDGET, 99, tens, 0), 7);
    assert_int_equal(first_of("suauauauau", HISTORY_TOKEN_BUDGET, 99, tens, 9), 7);
    assert_int_equal(first_of("suauauauau", HISTORY_TOKEN_BUDGET, 99, tens, 10), 9);
}

/* Whatever was cut in a turn is cut in the next, or the next cut is a new one that was due. */
static void test_cuts_of_a_turn_are_repeated_by_the_next(void **state)
{
    uint32_t tokens[240];
    char letters[241] = "s";
    (void)state;
    for (int round = 0; round < 50; round++) {
        uint32_t cut = 1, cuts = 0, count = 1;
        for (; count < 240; count++) {
            letters[count] = count % 2 ? 'u' : 'a';
            tokens[count] = 1 + (uint32_t)(rng_uniform((uint64_t)round, count) * 40);
        }
        tokens[0] = 17;
        letters[240] = '\0';
        for (uint32_t end = 2; end <= 240; end += 2) {
            char part[241];
            uint32_t size = 17;
            memcpy(part, letters, end);
            part[end] = '\0';
            uint32_t first = first_of(part, HISTORY_TOKEN_BUDGET, 600, tokens, 0);
            for (uint32_t i = cut; i < end; i++)
                size += tokens[i];
            assert_int_equal(first != cut, size > 600); /* moved exactly when it had to */
            assert_int_equal(first % 2, 1);
            size = 17;
            for (uint32_t i = first; i < end; i++)
                size += tokens[i];
            assert_true(size <= 600);
            cuts += first != cut;
            cut = first;
        }
        assert_in_range(cuts, 8, 20); /* 240 x 20 tokens in steps of about 300 */
    }
}

static void test_policies_are_read(void **state)
{
    struct history_policy policy = {.low_water_percent = 50};
    struct errmsg err;
    (void)state;
    assert_int_equal(history_parse("last_messages=20", &policy, &err), 0);
    assert_int_equal(policy.kind, HISTORY_LAST_MESSAGES);
    assert_int_equal(policy.limit, 20);
    assert_int_equal(history_parse("token_budget=4096", &policy, &err), 0);
    assert_int_equal(policy.kind, HISTORY_TOKEN_BUDGET);
    assert_int_equal(policy.limit, 4096);
    assert_int_equal(history_parse("full", &policy, &err), 0);
    assert_int_equal(policy.kind, HISTORY_FULL);
    static const char *const wrong[] = {"",
                                        "ful",
                                        "last_messages",
                                        "last_messages=",
                                        "last_messages=0",
                                        "last_messages=x",
                                        "token_budget=-1",
                                        "last_messages=10001",
                                        "token_budget=16777217"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(history_parse(wrong[i], &policy, &err), -EINVAL);
    assert_int_equal(policy.kind, HISTORY_FULL);
}

static int parse_json(const char *text, struct history_policy *policy)
{
    struct errmsg err = {""};
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(value);
    int r = history_parse_json(value, policy, &err);
    assert_int_equal(r < 0, err.text[0] != '\0');
    json_decref(value);
    return r;
}

static void test_policies_of_requests_are_read(void **state)
{
    struct history_policy policy = {.low_water_percent = 50};
    (void)state;
    assert_int_equal(parse_json("{\"last_messages\":7}", &policy), 0);
    assert_int_equal(policy.limit, 7);
    assert_int_equal(parse_json("{\"token_budget\":700}", &policy), 0);
    assert_int_equal(policy.kind, HISTORY_TOKEN_BUDGET);
    assert_int_equal(parse_json("\"last_messages=9\"", &policy), 0);
    assert_int_equal(policy.kind, HISTORY_LAST_MESSAGES);
    assert_int_equal(policy.limit, 9);
    assert_int_equal(parse_json("\"token_budget=700\"", &policy), 0);
    assert_int_equal(policy.kind, HISTORY_TOKEN_BUDGET);
    static const char *const wrong[] = {"\"none\"",
                                        "\"\"",
                                        "\"last_messages=0\"",
                                        "\"last_messages=9\\u0000\"",
                                        "{}",
                                        "7",
                                        "[]",
                                        "{\"last_messages\":0}",
                                        "{\"last_messages\":1.5}",
                                        "{\"last_messages\":\"7\"}",
                                        "{\"last_messages\":7,\"token_budget\":7}",
                                        "{\"messages\":7}",
                                        "{\"token_budget\":99999999999}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(parse_json(wrong[i], &policy), -EINVAL);
    assert_int_equal(policy.limit, 700);
    assert_int_equal(parse_json("\"full\"", &policy), 0);
    assert_int_equal(policy.kind, HISTORY_FULL);
}

static void test_the_least_is_the_last_user_with_its_calls(void **state)
{
    struct talk t;
    (void)state;
    talk_init(&t, "suaucut");
    assert_int_equal(history_least(&t.conversation), 3);
    talk_done(&t);
    talk_init(&t, "saa");
    assert_int_equal(history_least(&t.conversation), 1);
    talk_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_never_cuts),
        cmocka_unit_test(test_last_messages_when_passed_drops_to_half),
        cmocka_unit_test(test_the_last_user_and_all_behind_it_stay_whatever_the_limit),
        cmocka_unit_test(test_b81_a_call_keeps_its_results),
        cmocka_unit_test(test_token_budget_counts_head_and_base),
        cmocka_unit_test(test_cuts_of_a_turn_are_repeated_by_the_next),
        cmocka_unit_test(test_policies_are_read),
        cmocka_unit_test(test_policies_of_requests_are_read),
        cmocka_unit_test(test_the_least_is_the_last_user_with_its_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
