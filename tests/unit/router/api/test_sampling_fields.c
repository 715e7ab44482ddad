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
    char body[1024];

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_are_chosen_of_at_least_as_many),
        cmocka_unit_test(test_a_chat_gives_out_all_that_it_writes),
        cmocka_unit_test(test_prompts_times_answers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
