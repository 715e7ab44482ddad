/* test_beams.c - beam search of the real model against one that this test does itself, a request
 * with log probabilities per beam and step; and what becomes of it when the client goes. */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/harness.h"

#define WIDTH_MAX 4u
#define STEPS 6u
#define PROMPT_MAX 64u

static struct cluster cluster;

static int start(void **state)
{
    (void)state;
    cluster_start(
        &cluster, e2e_smollm2(),
        (const char *const[]){"--kv-cache-memory", "256MiB", "--max-model-len", "512", NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static json_t *ask(const char *path, json_t *body, int status)
{
    return cluster_post(&cluster, path, body, status);
}

static json_t *choice_of(json_t *answer, size_t index)
{
    return json_array_get(json_object_get(answer, "choices"), index);
}

/* ---- a search of our own ---- */

struct beam {
    long long ids[PROMPT_MAX + STEPS];
    size_t count;
    double sum, score;
};

struct own {
    struct beam beams[WIDTH_MAX];
    size_t count, prompt;
};

/* What may come after the beam: ids and numbers, the likeliest first. */
static size_t ask_tops(const struct beam *beam, size_t wanted, long long *ret_ids,
                       double *ret_values)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < beam->count; i++)
        json_array_append_new(ids, json_integer(beam->ids[i]));
    json_t *body =
        json_pack("{s:o, s:i, s:i, s:b, s:i, s:b}", "prompt", ids, "max_tokens", 1, "logprobs",
                  (int)wanted, "return_tokens_as_token_ids", 1, "temperature", 0, "ignore_eos", 1);
    json_t *answer = ask(COMPLETION_PATH, body, 200);
    json_t *tops = json_array_get(
        json_object_get(json_object_get(choice_of(answer, 0), "logprobs"), "top_logprobs"), 0);
    const char *key;
    json_t *value;
    size_t count = 0;

    json_object_foreach(tops, key, value)
    {
        size_t at = count++;
        for (; at > 0 && ret_values[at - 1] < json_real_value(value); at--) {
            ret_values[at] = ret_values[at - 1];
            ret_ids[at] = ret_ids[at - 1];
        }
        ret_values[at] = json_real_value(value);
        ret_ids[at] = strtoll(key + strlen("token_id:"), NULL, 10);
    }
    json_decref(answer);
    return count;
}

static void add_best(struct own *own, size_t width, const struct beam *beam)
{
    size_t at = own->count;

    while (at > 0 && own->beams[at - 1].sum < beam->sum)
        at--;
    if (at == width)
        return;
    if (own->count == width)
        own->count--;
    memmove(&own->beams[at + 1], &own->beams[at], (own->count - at) * sizeof(*beam));
    own->beams[at] = *beam;
    own->count++;
}

/* Without ends: all answers have STEPS tokens. */
static void search(struct own *own, size_t width)
{
    for (size_t step = 0; step < STEPS; step++) {
        struct own next = {.prompt = own->prompt};
        for (size_t i = 0; i < own->count; i++) {
            long long ids[2 * WIDTH_MAX + 1];
            double values[2 * WIDTH_MAX + 1];
            size_t count = ask_tops(&own->beams[i], 2 * width, ids, values);
            assert_int_equal(count, 2 * width);
            for (size_t t = 0; t < count; t++) {
                struct beam beam = own->beams[i];
                beam.ids[beam.count++] = ids[t];
                beam.sum += values[t];
                add_best(&next, width, &beam);
            }
        }
        *own = next;
    }
}

static json_t *beam_body(const char *prompt, unsigned width, unsigned tokens)
{
    json_t *body = completion_body(cluster.model, prompt, tokens);
    json_object_set_new(body, "use_beam_search", json_true());
    json_object_set_new(body, "n", json_integer(width));
    json_object_set_new(body, "return_token_ids", json_true());
    return body;
}

static void test_the_beams_are_those_of_a_search_by_single_requests(void **state)
{
    static const char prompt[] = "The weather in the mountains was";
    json_t *tokens = ask("/tokenize", json_pack("{s:s}", "prompt", prompt), 200);
    json_t *ids = json_object_get(tokens, "tokens");
    struct own own = {.count = 1};
    json_t *body = beam_body(prompt, 3, STEPS);
    (void)state;

    own.prompt = own.beams[0].count = json_array_size(ids);
    for (size_t i = 0; i < own.prompt; i++)
        own.beams[0].ids[i] = json_integer_value(json_array_get(ids, i));
    search(&own, 3);
    json_object_set_new(body, "ignore_eos", json_true());
    json_object_set_new(body, "logprobs", json_integer(1));
    json_t *answer = ask(COMPLETION_PATH, body, 200);
    assert_int_equal(json_array_size(json_object_get(answer, "choices")), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *got = json_object_get(choice_of(answer, i), "token_ids");
        assert_int_equal(json_array_size(got), STEPS);
        for (size_t t = 0; t < STEPS; t++)
            assert_int_equal(json_integer_value(json_array_get(got, t)),
                             own.beams[i].ids[own.prompt + t]);
        json_t *values =
            json_object_get(json_object_get(choice_of(answer, i), "logprobs"), "token_logprobs");
        double sum = 0;
        for (size_t t = 0; t < STEPS; t++)
            sum += json_real_value(json_array_get(values, t));
        assert_true(fabs(sum - own.beams[i].sum) < 1e-9);
        assert_string_equal(
            json_string_value(json_object_get(choice_of(answer, i), "finish_reason")), "length");
    }
    json_t *usage = json_object_get(answer, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 3 * STEPS);
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), own.prompt);
    json_decref(answer);
    json_decref(tokens);
    cluster_assert_idle(&cluster);
}

/* Answers that end say so; the same again, whatever the temperature. */
static void test_a_chat_s_beams_end_and_are_the_same_again(void **state)
{
    json_t *body = chat_body(cluster.model, "Say yes or no: is the sky blue?", 12);
    (void)state;

    json_object_set_new(body, "use_beam_search", json_true());
    json_object_set_new(body, "n", json_integer(4));
    json_object_set_new(body, "length_penalty", json_real(0));
    json_t *first = ask(CHAT_PATH, json_deep_copy(body), 200);
    json_object_set_new(body, "temperature", json_real(1.5));
    json_t *again = ask(CHAT_PATH, body, 200);
    assert_true(json_equal(json_object_get(first, "choices"), json_object_get(again, "choices")));
    size_t ended = 0;
    for (size_t i = 0; i < 4; i++) {
        json_t *choice = choice_of(first, i);
        const char *why = json_string_value(json_object_get(choice, "finish_reason"));
        assert_int_equal(json_integer_value(json_object_get(choice, "index")), i);
        assert_true(strcmp(why, "stop") == 0 || strcmp(why, "length") == 0);
        assert_int_equal(json_is_integer(json_object_get(choice, "stop_reason")),
                         strcmp(why, "stop") == 0);
        ended += strcmp(why, "stop") == 0;
    }
    assert_true(ended > 0);
    json_decref(first);
    json_decref(again);
    cluster_assert_idle(&cluster);
}

static void test_several_prompts_have_beams_of_their_own(void **state)
{
    json_t *both = json_pack("[s, s]", "One two three", "Once upon a time");
    json_t *body = beam_body("", 2, 4);
    (void)state;

    json_object_set_new(body, "prompt", json_incref(both));
    json_t *answer = ask(COMPLETION_PATH, body, 200);
    assert_int_equal(json_array_size(json_object_get(answer, "choices")), 4);
    for (size_t p = 0; p < 2; p++) {
        json_t *alone =
            ask(COMPLETION_PATH, beam_body(json_string_value(json_array_get(both, p)), 2, 4), 200);
        for (size_t i = 0; i < 2; i++)
            assert_true(json_equal(json_object_get(choice_of(answer, 2 * p + i), "token_ids"),
                                   json_object_get(choice_of(alone, i), "token_ids")));
        json_decref(alone);
    }
    json_decref(both);
    json_decref(answer);
    cluster_assert_idle(&cluster);
}

static void test_what_beams_cannot_have_is_refused_by_name(void **state)
{
    static const struct {
        const char *name, *value, *param;
    } rows[] = {{"stream", "true", "stream"},     {"n", "17", "n"},
                {"stop", "\"x\"", "stop"},        {"logit_bias", "{\"5\":1}", "logit_bias"},
                {"best_of", "5", "best_of"},      {"guided_regex", "\"a+\"", "guided_regex"},
                {"min_tokens", "2", "min_tokens"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *body = beam_body("a", 2, 4);
        json_object_set_new(body, rows[i].name, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        json_t *answer = ask(COMPLETION_PATH, body, 400);
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(answer, "error"), "param")),
            rows[i].param);
        json_decref(answer);
    }
}

/* Nothing goes on for a client that has gone. */
static void test_a_client_that_goes_stops_all_beams(void **state)
{
    struct chat chat;
    (void)state;
    json_t *body = beam_body("A very long story:", 4, 400);
    json_object_set_new(body, "ignore_eos", json_true());
    chat_init(&chat, cluster.url, COMPLETION_PATH, body);
    chat.timeout_s = 1.5; /* the client's patience */
    chat_send(&chat);
    assert_int_equal(chat.status, 0);
    chat_done(&chat);
    cluster_assert_idle(&cluster);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_beams_are_those_of_a_search_by_single_requests),
        cmocka_unit_test(test_a_chat_s_beams_end_and_are_the_same_again),
        cmocka_unit_test(test_several_prompts_have_beams_of_their_own),
        cmocka_unit_test(test_what_beams_cannot_have_is_refused_by_name),
        cmocka_unit_test(test_a_client_that_goes_stops_all_beams),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    int failed = cmocka_run_group_tests(tests, start, teardown);
    return e2e_finish(failed);
}
