/* sampling.c: the request's number, else the model's, else the API's. */
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "router/sampling.h"

struct fixture {
    struct model_card *card;
    struct api_request fields;
    struct token_rules rules;
    struct sampling_parts parts;
    Refrain__Sampling sampling;
};

static void setup(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->card = model_card_new();
    f->fields = (struct api_request){.kind = API_COMPLETIONS, .n = 1, .best_of = 1};
    f->fields.temperature = f->fields.top_p = f->fields.min_p = NAN;
    f->fields.repetition_penalty = f->fields.presence_penalty = f->fields.frequency_penalty = NAN;
    f->fields.top_k = API_TOP_K_UNSET;
    f->parts = (struct sampling_parts){
        .fields = &f->fields, .card = f->card, .rules = &f->rules, .seed = 40};
}

static void test_what_nobody_says_is_the_api_s(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    sampling_fill(&f.parts, 2, 7, &f.sampling);
    assert_true(f.sampling.temperature == 1 && f.sampling.top_p == 1 && f.sampling.min_p == 0);
    assert_true(f.sampling.repetition_penalty == 1 && f.sampling.presence_penalty == 0);
    assert_int_equal(f.sampling.seed, 42);
    assert_int_equal(f.sampling.tokens_max, 7);
    assert_int_equal(f.sampling.logprobs, 0);
    model_card_unref(f.card);
}

static void test_the_model_s_defaults_stand_behind_the_client_s_numbers(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.card->temperature = 0.5F;
    f.card->top_p = 0.25F;
    f.card->top_k = 9;
    f.fields.top_p = 0.75;
    sampling_fill(&f.parts, 0, 7, &f.sampling);
    assert_true(f.sampling.temperature == 0.5 && f.sampling.top_p == 0.75);
    assert_int_equal(f.sampling.top_k, 9);
    f.fields.temperature = 0; /* greedy, although it is 0 */
    f.fields.top_k = 0;       /* off */
    sampling_fill(&f.parts, 0, 7, &f.sampling);
    assert_true(f.sampling.temperature == 0);
    assert_int_equal(f.sampling.top_k, 0);
    model_card_unref(f.card);
}

static void test_choosing_the_best_needs_the_chosen_tokens_log_probability(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.best_of = 3;
    sampling_fill(&f.parts, 0, 7, &f.sampling);
    assert_int_equal(f.sampling.logprobs, 1);
    f.fields.logprobs = 4;
    sampling_fill(&f.parts, 0, 7, &f.sampling);
    assert_int_equal(f.sampling.logprobs, 4);
    model_card_unref(f.card);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_nobody_says_is_the_api_s),
        cmocka_unit_test(test_the_model_s_defaults_stand_behind_the_client_s_numbers),
        cmocka_unit_test(test_choosing_the_best_needs_the_chosen_tokens_log_probability),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
