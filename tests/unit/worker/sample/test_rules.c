/* test_rules.c - allowed ids, bad words and bias by hand; what of them is refused. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/sampling_limits.h"
#include "worker/sample/rules.h"
#include "worker/sample/sampler.h"

#define VOCAB 6

static struct sample_rules_bytes pack(const void *items, size_t count)
{
    return (struct sample_rules_bytes){items, count * sizeof(uint32_t)};
}

static struct sample_rules *rules_of(const struct sample_rules_input *input)
{
    struct sample_rules *rules = NULL;
    struct errmsg err = {""};
    assert_int_equal(sample_rules_new(input, VOCAB, &rules, &err), 0);
    return rules;
}

static void assert_refused(const struct sample_rules_input *input, const char *words)
{
    struct sample_rules *rules = NULL;
    struct errmsg err = {""};
    assert_int_equal(sample_rules_new(input, VOCAB, &rules, &err), -EINVAL);
    assert_null(rules);
    if (strstr(err.text, words) == NULL)
        fail_msg("no '%s' in: %s", words, err.text);
}

static void test_nothing_said_makes_no_rules(void **state)
{
    const struct sample_rules_input input = {.bad_words = NULL};
    (void)state;
    assert_null(rules_of(&input));
}

static void test_only_allowed_ids_stay(void **state)
{
    const uint32_t allowed[] = {4, 1, 4};
    const struct sample_rules_input input = {.allowed = pack(allowed, 3)};
    float logits[VOCAB] = {9, 1, 9, 9, 2, 9};
    struct sample_rules *rules = rules_of(&input);
    (void)state;

    sample_rules_apply(rules, logits, NULL, 0);
    for (uint32_t id = 0; id < VOCAB; id++)
        assert_int_equal(isinf(logits[id]) != 0, id != 1 && id != 4);
    assert_true(logits[1] == 1 && logits[4] == 2);
    sample_rules_free(rules);
}

static void test_a_bad_word_is_out_when_its_beginning_is_the_output_s_end(void **state)
{
    const uint32_t one[] = {5}, three[] = {1, 2, 3};
    const struct sample_rules_bytes words[] = {pack(one, 1), pack(three, 3)};
    const struct sample_rules_input input = {.bad_words = words, .bad_words_count = 2};
    static const struct {
        uint32_t output[4], count;
        bool banned;
    } rows[] = {{{0}, 0, false},         {{2}, 1, false},       {{1, 2}, 2, true},
                {{0, 0, 1, 2}, 4, true}, {{1, 2, 0}, 3, false}, {{2, 1}, 2, false},
                {{1, 2, 3, 2}, 4, false}};
    struct sample_rules *rules = rules_of(&input);
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        float logits[VOCAB] = {0};
        sample_rules_apply(rules, logits, rows[i].output, rows[i].count);
        assert_true(isinf(logits[5])); /* one token: always */
        assert_int_equal(isinf(logits[3]) != 0, rows[i].banned);
        assert_true(logits[1] == 0 && logits[2] == 0);
    }
    sample_rules_free(rules);
}

static void test_bias_is_added_and_cannot_bring_back_what_is_out(void **state)
{
    const uint32_t ids[] = {0, 3}, allowed[] = {0, 1};
    const float values[] = {-100, 100};
    const struct sample_rules_input input = {
        .allowed = pack(allowed, 2), .bias_ids = pack(ids, 2), .bias_values = pack(values, 2)};
    float logits[VOCAB] = {7, 1, 0, 0, 0, 0};
    struct sample_rules *rules = rules_of(&input);
    (void)state;

    sample_rules_apply(rules, logits, NULL, 0);
    assert_true(logits[0] == -93 && logits[1] == 1);
    assert_true(isinf(logits[3]) && logits[3] < 0);
    sample_rules_free(rules);
}

static void test_what_makes_no_sense_is_refused_by_name(void **state)
{
    const uint32_t outside[] = {6}, inside[] = {0, 1};
    const float high[] = {100.5f}, nothing[] = {NAN};
    const struct sample_rules_bytes empty = {NULL, 0}, beyond = pack(outside, 1);
    static uint32_t many[LOGIT_BIAS_ENTRIES_MAX + 1];
    (void)state;

    assert_refused(&(struct sample_rules_input){.allowed = pack(outside, 1)},
                   "allowed_token_ids: token id 6; the vocabulary has 6");
    assert_refused(&(struct sample_rules_input){.allowed = {(const uint8_t *)inside, 7}},
                   "7 bytes");
    assert_refused(
        &(struct sample_rules_input){.bias_ids = pack(inside, 2), .bias_values = pack(high, 1)},
        "8 bytes of ids and 4 of values");
    assert_refused(
        &(struct sample_rules_input){.bias_ids = pack(inside, 1), .bias_values = pack(high, 1)},
        "100.5 is not from -100 to 100");
    assert_refused(
        &(struct sample_rules_input){.bias_ids = pack(inside, 1), .bias_values = pack(nothing, 1)},
        "nan");
    assert_refused(&(struct sample_rules_input){.bias_values = pack(high, 1)}, "0 bytes of ids");
    assert_refused(
        &(struct sample_rules_input){.bias_ids = pack(many, LOGIT_BIAS_ENTRIES_MAX + 1),
                                     .bias_values = pack(many, LOGIT_BIAS_ENTRIES_MAX + 1)},
        "1025 token ids; at most 1024");
    assert_refused(&(struct sample_rules_input){.bad_words = &empty, .bad_words_count = 1},
                   "sequence 0 has no tokens");
    assert_refused(&(struct sample_rules_input){.bad_words = &beyond, .bad_words_count = 1},
                   "bad_words: token id 6");
    assert_refused(
        &(struct sample_rules_input){.bad_words = &empty, .bad_words_count = BAD_SEQUENCES_MAX + 1},
        "513 token sequences; at most 512");
}

static void test_the_sampler_obeys_and_its_logprobs_do_not_see_them(void **state)
{
    const uint32_t ids[] = {2}, allowed[] = {0, 2};
    const float values[] = {10};
    const struct sample_rules_input input = {
        .allowed = pack(allowed, 2), .bias_ids = pack(ids, 1), .bias_values = pack(values, 1)};
    const struct sample_params params = {.top_p = 1, .repetition_penalty = 1, .logprobs = 2};
    const float untouched[3] = {logf(0.3f), logf(0.6f), logf(0.1f)};
    struct sample_row row = {.params = &params};
    struct sampler *sampler = sampler_new(3);
    struct sample_result result;
    struct sample_rules *rules = NULL;
    float logits[3];
    (void)state;

    assert_int_equal(sample_rules_new(&input, 3, &rules, NULL), 0);
    row.rules = rules;
    memcpy(logits, untouched, sizeof(logits));
    assert_int_equal(sampler_sample(sampler, logits, &row, &result), 0);
    assert_int_equal(result.id, 2);
    assert_int_equal(result.rank, 3);
    assert_float_equal(result.logprob, logf(0.1f), 1e-6);
    assert_int_equal(result.top_ids[0], 1); /* though it is not allowed */

    row.banned = allowed;
    row.banned_count = 2;
    result.id = 77;
    memcpy(logits, untouched, sizeof(logits));
    assert_int_equal(sampler_sample(sampler, logits, &row, &result), -ENODATA);
    assert_int_equal(result.id, 77);
    sample_rules_free(rules);
    sampler_free(sampler);
}

static void test_a_score_is_of_the_id_that_was_asked_for(void **state)
{
    const float logits[3] = {logf(0.3f), logf(0.6f), logf(0.1f)};
    const float broken[3] = {0, NAN, 0};
    struct sampler *sampler = sampler_new(3);
    struct sample_result result;
    (void)state;

    assert_int_equal(sampler_score(sampler, logits, 0, 2, &result), 0);
    assert_int_equal(result.id, 0);
    assert_int_equal(result.rank, 2);
    assert_float_equal(result.logprob, logf(0.3f), 1e-6);
    assert_int_equal(result.top_count, 2);
    assert_int_equal(result.top_ids[0], 1);
    assert_int_equal(result.top_ids[1], 0);
    assert_int_equal(sampler_score(sampler, broken, 0, 0, &result), -EIO);
    sampler_free(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_said_makes_no_rules),
        cmocka_unit_test(test_only_allowed_ids_stay),
        cmocka_unit_test(test_a_bad_word_is_out_when_its_beginning_is_the_output_s_end),
        cmocka_unit_test(test_bias_is_added_and_cannot_bring_back_what_is_out),
        cmocka_unit_test(test_what_makes_no_sense_is_refused_by_name),
        cmocka_unit_test(test_the_sampler_obeys_and_its_logprobs_do_not_see_them),
        cmocka_unit_test(test_a_score_is_of_the_id_that_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
