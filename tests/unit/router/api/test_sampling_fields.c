/* sampling_fields.c: how many answers, and what is told of their tokens. */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "router/api/request_json.h"

#define CHAT_START "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"

struct parsed {
    struct arena arena;
    struct api_request request;
    struct api_error error;
    int r;
};

/* A request with one more member or several. */
static struct parsed parse(enum api_kind kind, const char *members)
{
    struct parsed parsed;
    char body[1536];

    (void)snprintf(body, sizeof(body), "%s%s}",
                   kind == API_CHAT ? CHAT_START : "{\"prompt\":[\"a\",\"b\"],", members);
    memset(&parsed, 0, sizeof(parsed));
    arena_init(&parsed.arena, 1 << 20);
    parsed.r =
        request_json_parse(kind, body, strlen(body), &parsed.arena, &parsed.request, &parsed.error);
    return parsed;
}

static void done(struct parsed *parsed)
{
    api_request_done(&parsed->request);
    arena_done(&parsed->arena);
}

static void refuse(enum api_kind kind, const char *members, const char *param, const char *words)
{
    struct parsed p = parse(kind, members);
    if (p.r == 0 || strcmp(p.error.param, param) != 0 || !strstr(p.error.message, words))
        fail_msg("%s: r=%d '%s' %s", members, p.r, p.error.param, p.error.message);
    assert_int_equal(p.error.status, 400);
    done(&p);
}

static void expect_runs(enum api_kind kind, const char *members, uint32_t n, uint32_t best_of)
{
    struct parsed p = parse(kind, members);
    if (p.r < 0)
        fail_msg("%s: %s", members, p.error.message);
    assert_int_equal(p.request.n, n);
    assert_int_equal(p.request.best_of, best_of);
    done(&p);
}

static void test_the_best_are_chosen_of_at_least_as_many(void **state)
{
    (void)state;
    expect_runs(API_COMPLETIONS, "\"n\":2", 2, 2);
    expect_runs(API_COMPLETIONS, "\"best_of\":64", 1, 64);
    expect_runs(API_COMPLETIONS, "\"best_of\":2,\"n\":2,\"stream\":true", 2, 2);
    refuse(API_COMPLETIONS, "\"best_of\":2,\"n\":3", "best_of", "is 2; it must be at least 'n', 3");
    refuse(API_COMPLETIONS, "\"best_of\":2,\"stream\":true", "best_of", "with 'stream'");
    refuse(API_COMPLETIONS, "\"best_of\":0", "best_of", "at least 1");
    refuse(API_COMPLETIONS, "\"best_of\":129", "best_of", "at most 128");
}

static void test_a_chat_gives_out_all_that_it_writes(void **state)
{
    (void)state;
    expect_runs(API_CHAT, "\"n\":3,\"best_of\":3", 3, 3);
    refuse(API_CHAT, "\"best_of\":4", "best_of", "'best_of' is 4 and 'n' is 1");
}

static void test_prompts_times_answers_are_bounded(void **state)
{
    (void)state;
    expect_runs(API_COMPLETIONS, "\"n\":64", 64, 64); /* of two prompts */
    refuse(API_COMPLETIONS, "\"n\":65", "n", "2 prompts times n = 65; at most 128");
    refuse(API_COMPLETIONS, "\"best_of\":65", "best_of", "2 prompts times best_of = 65");
    expect_runs(API_CHAT, "\"n\":128", 128, 128);
}

static void test_named_tokens_are_read_once_each(void **state)
{
    struct parsed p = parse(API_CHAT, "\"logprobs\":true,\"logprob_token_ids\":[5,7,5,9,7]");
    (void)state;
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.logprob_ids_count, 3);
    assert_int_equal(p.request.logprob_ids[2], 9);
    done(&p);
    refuse(API_CHAT, "\"logprob_token_ids\":[5]", "logprob_token_ids", "'logprobs' to be true");
    refuse(API_COMPLETIONS, "\"logprob_token_ids\":[5]", "logprob_token_ids", "needs 'logprobs'");
    refuse(API_CHAT, "\"logprobs\":true,\"logprob_token_ids\":[]", "logprob_token_ids", "empty");
    refuse(API_CHAT, "\"logprobs\":true,\"logprob_token_ids\":[5,-1]", "logprob_token_ids",
           "entry 1");
}

static void test_more_named_tokens_than_fit_are_refused(void **state)
{
    char members[1024] = "\"logprobs\":true,\"logprob_token_ids\":[1";
    (void)state;
    for (size_t i = 0; i < 128; i++)
        strcat(members, ",2");
    strcat(members, "]");
    refuse(API_CHAT, members, "logprob_token_ids", "129 token ids; at most 128");
}

static void test_repetition_is_off_or_makes_sense(void **state)
{
    struct parsed p = parse(API_CHAT, "\"repetition_detection\":"
                                      "{\"max_pattern_size\":8,\"min_count\":3}");
    (void)state;
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.repetition_max, 8);
    assert_int_equal(p.request.repetition_min, 1);
    assert_int_equal(p.request.repetition_count, 3);
    done(&p);
    p = parse(API_CHAT, "\"repetition_detection\":{}");
    assert_true(p.r == 0 && p.request.repetition_max == 0);
    done(&p);
    refuse(API_CHAT, "\"repetition_detection\":{\"max_pattern_size\":8}",
           "repetition_detection.min_count", "'min_count' is 0; it must be at least 2");
    refuse(API_CHAT,
           "\"repetition_detection\":{\"max_pattern_size\":2,\"min_pattern_size\":3,"
           "\"min_count\":2}",
           "repetition_detection.min_pattern_size", "is 3, more than 'max_pattern_size' 2");
    refuse(API_CHAT, "\"repetition_detection\":{\"max_pattern_size\":1025}",
           "repetition_detection.max_pattern_size", "at most 1024");
    refuse(API_CHAT, "\"repetition_detection\":[1]", "repetition_detection", "an object");
}

static void test_a_budget_of_thinking_is_a_number_or_none(void **state)
{
    static const struct {
        const char *members;
        int64_t want;
    } rows[] = {{"\"thinking_token_budget\":0", 0},
                {"\"thinking_token_budget\":64", 64},
                {"\"thinking_token_budget\":-1", -1},
                {"\"thinking_token_budget\":null", -1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct parsed p = parse(API_CHAT, rows[i].members);
        assert_int_equal(p.r, 0);
        assert_int_equal(p.request.thinking_tokens_max, rows[i].want);
        done(&p);
    }
    refuse(API_CHAT, "\"thinking_token_budget\":-2", "thinking_token_budget", "at least -1");
    refuse(API_CHAT, "\"thinking_token_budget\":1.5", "thinking_token_budget", "an integer");
    refuse(API_CHAT, "\"thinking_token_budget\":true", "thinking_token_budget", "an integer");
}

static void test_penalties_that_weigh_do_not_go_with_beams(void **state)
{
    (void)state;
    refuse(API_CHAT, "\"use_beam_search\":true,\"repetition_penalty\":1.2", "repetition_penalty",
           "does not go with 'use_beam_search'");
    refuse(API_CHAT, "\"use_beam_search\":true,\"presence_penalty\":-1", "presence_penalty",
           "does not go with");
    refuse(API_CHAT, "\"use_beam_search\":true,\"frequency_penalty\":1", "frequency_penalty",
           "does not go with");
    struct parsed p = parse(API_CHAT, "\"use_beam_search\":true,\"repetition_penalty\":1,"
                                      "\"presence_penalty\":0,\"frequency_penalty\":0");
    assert_int_equal(p.r, 0);
    done(&p);
}

/* vLLM's limit, which the worker has, too. */
static void test_a_salt_has_at_most_1024_bytes(void **state)
{
    char members[1100];
    struct parsed p;
    (void)state;
    (void)snprintf(members, sizeof(members), "\"cache_salt\":\"%01024d\"", 7);
    p = parse(API_COMPLETIONS, members);
    assert_int_equal(p.r, 0);
    assert_int_equal(strlen(p.request.cache_salt), 1024);
    done(&p);
    (void)snprintf(members, sizeof(members), "\"cache_salt\":\"%01025d\"", 7);
    refuse(API_COMPLETIONS, members, "cache_salt", "1025 bytes; at most 1024");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_are_chosen_of_at_least_as_many),
        cmocka_unit_test(test_a_chat_gives_out_all_that_it_writes),
        cmocka_unit_test(test_prompts_times_answers_are_bounded),
        cmocka_unit_test(test_named_tokens_are_read_once_each),
        cmocka_unit_test(test_more_named_tokens_than_fit_are_refused),
        cmocka_unit_test(test_repetition_is_off_or_makes_sense),
        cmocka_unit_test(test_a_budget_of_thinking_is_a_number_or_none),
        cmocka_unit_test(test_penalties_that_weigh_do_not_go_with_beams),
        cmocka_unit_test(test_a_salt_has_at_most_1024_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
