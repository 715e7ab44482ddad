/* test_submit.c - a Submit message becomes a command, or a sentence for the client. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/unit/worker/words_card.h"
#include "worker/submit.h"

struct fixture {
    struct model_card card;
    struct submit_limits limits;
    Refrain__Submit submit;
    Refrain__Sampling sampling;
    uint32_t ids[8], stops[90];
};

static int setup(void **state)
{
    static struct fixture f;
    memset(&f, 0, sizeof(f));
    f.card = (struct model_card){.fingerprint = (char *)"fp", .vocab_size = 100, .eos_count = 2};
    f.card.eos_ids[0] = 2;
    f.card.eos_ids[1] = 3;
    f.limits = (struct submit_limits){&f.card, 6, NULL, NULL};
    refrain__submit__init(&f.submit);
    refrain__sampling__init(&f.sampling);
    f.sampling.top_p = 1;
    f.sampling.repetition_penalty = 1;
    f.sampling.tokens_max = 5;
    f.sampling.stop_ids = f.stops;
    f.submit.request_id = (char *)"r";
    f.submit.ids = (ProtobufCBinaryData){12, (uint8_t *)f.ids};
    f.submit.sampling = &f.sampling;
    f.ids[0] = 99;
    *state = &f;
    return 0;
}

static void assert_refused(struct fixture *f, const char *part)
{
    struct command *command = NULL;
    struct errmsg err = {""};
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1, &command, &err), -EINVAL);
    assert_null(command);
    if (strstr(err.text, part) == NULL)
        fail_msg("no '%s' in: %s", part, err.text);
}

static void test_every_field_arrives(void **state)
{
    struct fixture *f = *state;
    struct command *c = NULL;
    f->stops[0] = 7;
    f->sampling.n_stop_ids = 1;
    f->sampling.seed = 77;
    f->sampling.temperature = 0.5;
    f->submit.priority = -3;
    f->submit.deadline_ms = 10;
    f->submit.cache_salt = (char *)"salt";
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1000, &c, NULL), 0);
    assert_int_equal(c->kind, COMMAND_SUBMIT);
    assert_int_equal(c->params.prompt_tokens, 3);
    assert_int_equal(c->params.prompt[0], 99);
    assert_int_equal(c->params.arrival_ns, 1000);
    assert_int_equal(c->params.deadline_ns, 1000 + 10 * 1000000);
    assert_int_equal(c->params.priority, -3);
    assert_int_equal(c->params.sampling.seed, 77);
    assert_true(c->params.sampling.temperature == 0.5);
    assert_true(block_hash_equal(c->params.root, block_hash_root("fp", NULL, "salt")));
    assert_int_equal(c->params.stop_ids_count, 3); /* its own and the model's two */
    assert_int_equal(c->params.stop_ids[0], 7);
    command_free(c);
}

static void test_ignore_eos_takes_the_models_ids_out(void **state)
{
    struct fixture *f = *state;
    struct command *c = NULL;
    f->stops[0] = 2; /* the router's list may hold them */
    f->stops[1] = 9;
    f->sampling.n_stop_ids = 2;
    f->sampling.ignore_eos = true;
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1, &c, NULL), 0);
    assert_int_equal(c->params.stop_ids_count, 1);
    assert_int_equal(c->params.stop_ids[0], 9);
    command_free(c);
}

static void test_prompts_that_cannot_be_are_refused_with_numbers(void **state)
{
    struct fixture *f = *state;
    f->ids[2] = 100;
    assert_refused(f, "token id 100 at position 2; the vocabulary has 100");
    f->ids[2] = 0;
    f->submit.ids.len = 11;
    assert_refused(f, "11 bytes");
    f->submit.ids.len = 28;
    assert_refused(f, "7 tokens; this model's context is 6 tokens");
    f->submit.ids.len = 0;
    assert_refused(f, "no tokens");
}

static void test_parameters_out_of_range_are_refused(void **state)
{
    struct fixture *f = *state;
    f->sampling.tokens_max = 0;
    assert_refused(f, "at least 1 new token");
    f->sampling.tokens_max = 5;
    f->sampling.tokens_min = 6;
    assert_refused(f, "min_tokens 6");
    f->sampling.tokens_min = 0;
    f->sampling.temperature = NAN;
    assert_refused(f, "temperature");
    f->sampling.temperature = 0;
    f->stops[0] = 100;
    f->sampling.n_stop_ids = 1;
    assert_refused(f, "stop token id 100");
    for (uint32_t i = 0; i < 90; i++)
        f->stops[i] = i;
    f->sampling.n_stop_ids = 90;
    assert_refused(f, "more than 80 stop token ids");
    f->sampling.n_stop_ids = 0;
    f->submit.adapter = (char *)"lora"; /* there is none */
    struct command *command = NULL;
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1, &command, NULL), -ENOENT);
    f->submit.adapter = (char *)"";
    f->submit.sampling = NULL;
    assert_refused(f, "sampling");
}

static void test_rules_about_tokens_move_into_the_command_or_are_refused(void **state)
{
    struct fixture *f = *state;
    struct command *c = NULL;
    uint32_t ids[] = {5, 99};
    float values[] = {1, -100};
    ProtobufCBinaryData word = {8, (uint8_t *)ids}, many[513];
    f->sampling.logit_bias_ids = f->sampling.allowed_ids = (ProtobufCBinaryData){8, (uint8_t *)ids};
    f->sampling.logit_bias_values = (ProtobufCBinaryData){8, (uint8_t *)values};
    f->sampling.bad_words = &word;
    f->sampling.n_bad_words = 1;
    f->sampling.prompt_logprobs = 21;
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1, &c, NULL), 0);
    assert_non_null(c->params.rules);
    assert_int_equal(c->params.prompt_logprobs, 21);
    command_free(c); /* and the rules with it */
    c = NULL;
    ids[1] = 100;
    assert_refused(f, "allowed_token_ids: token id 100; the vocabulary has 100");
    ids[1] = 99;
    f->sampling.prompt_logprobs = 22;
    assert_refused(f, "prompt_logprobs is 21: at most 20");
    f->sampling.prompt_logprobs = 0;
    values[0] = 101;
    assert_refused(f, "logit_bias: 101");
    values[0] = 1;
    for (size_t i = 0; i < 513; i++)
        many[i] = word;
    f->sampling.bad_words = many;
    f->sampling.n_bad_words = 513;
    assert_refused(f, "bad_words: 513 token sequences; at most 512");
}

static void test_what_ends_an_answer_early_moves_into_the_command_or_is_refused(void **state)
{
    struct fixture *f = *state;
    struct command *c = NULL;
    Refrain__Thinking thinking = REFRAIN__THINKING__INIT;
    Refrain__Repetition repetition = REFRAIN__REPETITION__INIT;
    uint32_t ids[129] = {5, 99};

    f->sampling.logprobs = 1;
    f->sampling.logprob_ids = (ProtobufCBinaryData){8, (uint8_t *)ids};
    f->sampling.thinking = &thinking;
    thinking.begin = (ProtobufCBinaryData){3, (uint8_t *)"<t>"};
    thinking.end = (ProtobufCBinaryData){4, (uint8_t *)"</t>"};
    thinking.end_ids = (ProtobufCBinaryData){4, (uint8_t *)ids};
    f->sampling.repetition = &repetition;
    repetition.pattern_min = 1;
    repetition.pattern_max = 9;
    repetition.count_min = 2;
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1, &c, NULL), 0);
    assert_non_null(c->params.thinking);
    assert_non_null(c->params.repetition);
    assert_int_equal(c->params.sampling.logprob_ids_count, 2);
    assert_int_equal(c->params.logprob_ids[1], 99);
    command_free(c); /* and all of them with it */
    c = NULL;
    ids[1] = 100;
    assert_refused(f, "logprob_token_ids: token id 100; the vocabulary has 100");
    f->sampling.logprob_ids.len = 129 * 4;
    assert_refused(f, "at most 128 token ids");
    f->sampling.logprob_ids.len = 0;
    repetition.count_min = 1;
    assert_refused(f, "min_count is 1");
    repetition.count_min = 2;
    thinking.end_ids.len = 0;
    assert_refused(f, "end tokens");
    thinking.end_ids.len = 4;
    f->sampling.grammar_kind = GRAMMAR_JSON_OBJECT;
    assert_refused(f, "no room to think");
}

static void test_ids_of_requests_are_plain_words(void **state)
{
    char long_id[66];
    (void)state;
    memset(long_id, 'a', 65);
    long_id[65] = '\0';
    assert_true(submit_id_is_good("chatcmpl-1:0"));
    assert_false(submit_id_is_good(""));
    assert_false(submit_id_is_good("a b"));
    assert_false(submit_id_is_good("a\"b"));
    assert_false(submit_id_is_good("a\nb"));
    assert_false(submit_id_is_good("\xc3\xa9"));
    assert_false(submit_id_is_good(long_id));
    assert_true(submit_id_is_good(long_id + 1));
}

static void test_a_grammar_is_compiled_or_refused_with_its_sentence(void **state)
{
    struct fixture *f = *state;
    struct model_card *card = card_with_words();
    struct command *one = NULL, *two = NULL;
    f->limits.card = card;
    f->limits.grammars = grammars_new(card, GRAMMAR_MACHINE_BYTES_MIN);
    f->sampling.grammar_kind = GRAMMAR_REGEX;
    f->sampling.grammar_text = (ProtobufCBinaryData){2, (uint8_t *)"a("};
    assert_refused(f, "a group ( has no )");
    f->sampling.grammar_text = (ProtobufCBinaryData){2, (uint8_t *)"a+"};
    f->sampling.ignore_eos = true;
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1, &one, NULL), 0);
    assert_int_equal(submit_to_command(&f->submit, &f->limits, 1, &two, NULL), 0);
    assert_non_null(one->params.grammars);
    assert_ptr_equal(one->params.grammar, two->params.grammar); /* compiled once */
    assert_int_equal(one->params.stop_ids_count, 0);
    assert_int_equal(one->params.end_ids_count, 1);
    assert_int_equal(one->params.end_ids[0], 2);
    command_free(one);
    command_free(two);
    f->sampling.grammar_kind = 99;
    assert_refused(f, "unknown kind of grammar: 99");
    grammars_free(f->limits.grammars);
    model_card_unref(card);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_field_arrives, setup),
        cmocka_unit_test_setup(test_ignore_eos_takes_the_models_ids_out, setup),
        cmocka_unit_test_setup(test_prompts_that_cannot_be_are_refused_with_numbers, setup),
        cmocka_unit_test_setup(test_parameters_out_of_range_are_refused, setup),
        cmocka_unit_test_setup(test_rules_about_tokens_move_into_the_command_or_are_refused, setup),
        cmocka_unit_test_setup(test_what_ends_an_answer_early_moves_into_the_command_or_is_refused,
                               setup),
        cmocka_unit_test_setup(test_ids_of_requests_are_plain_words, setup),
        cmocka_unit_test_setup(test_a_grammar_is_compiled_or_refused_with_its_sentence, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
