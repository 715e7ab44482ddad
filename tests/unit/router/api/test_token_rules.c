/* test_token_rules.c - bad words as the tokens of a real vocabulary; ids against its size. */
#include <cmocka.h>

#include <string.h>

#include "router/api/token_rules.h"
#include "tests/unit/router/text/cards.h"

static struct model_card *card;
static struct tokenizer *tokenizer;

static int setup(void **state)
{
    struct errmsg err = {""};
    (void)state;
    card = card_from_gguf(SHARED_DIR "/cases/tokenizer/ggml-vocab-gpt-2.gguf.gz");
    if (!card)
        exit(77); /* said aloud */
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    model_card_unref(card);
    return 0;
}

struct made {
    struct arena arena;
    struct token_rules rules;
    struct api_error error;
    int r;
};

static struct made make(const struct api_request *request)
{
    struct made made = {.r = 0};
    arena_init(&made.arena, 1 << 20);
    made.r = token_rules_make(request, tokenizer, &made.arena, &made.rules, &made.error);
    return made;
}

static void expect_word(const struct made *made, size_t i, const uint32_t *ids, size_t count)
{
    assert_int_equal(made->rules.bad_words[i].len, count * sizeof(*ids));
    assert_memory_equal(made->rules.bad_words[i].data, ids, count * sizeof(*ids));
}

/* vLLM's rule: the form behind a space counts where it is other tokens, not a space more. */
static void test_bad_words_have_a_form_with_a_space_where_that_is_another(void **state)
{
    const struct api_word words[] = {{"hello", 5}, {"\n", 1}};
    const uint32_t plain[] = {31373}, spaced[] = {23748}, line[] = {198};
    const struct api_request request = {.bad_words = words, .bad_words_count = 2};
    struct made made = make(&request);
    (void)state;

    assert_int_equal(made.r, 0);
    assert_int_equal(made.rules.bad_words_count, 3);
    expect_word(&made, 0, plain, 1);
    expect_word(&made, 1, spaced, 1);
    expect_word(&made, 2, line, 1); /* " \n" is two */
    arena_done(&made.arena);
}

static void test_ids_outside_the_vocabulary_are_refused_by_field(void **state)
{
    const uint32_t ids[] = {0, 50257};
    const float values[] = {1, 1};
    const struct api_request requests[] = {
        {.bias_ids = ids, .bias_values = values, .bias_count = 2},
        {.allowed_ids = ids, .allowed_count = 2},
        {.stop_ids = ids, .stop_ids_count = 2}};
    static const char *const params[] = {"logit_bias", "allowed_token_ids", "stop_token_ids"};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        struct made made = make(&requests[i]);
        assert_true(made.r < 0);
        assert_string_equal(made.error.param, params[i]);
        assert_non_null(strstr(made.error.message, "token id 50257"));
        assert_non_null(strstr(made.error.message, "this model has 50257"));
        arena_done(&made.arena);
    }
}

static void test_lists_are_packed_as_the_wire_wants_them(void **state)
{
    const uint32_t ids[] = {7, 50256};
    const float values[] = {-100, 0.5f};
    const struct api_request request = {.bias_ids = ids,
                                        .bias_values = values,
                                        .bias_count = 2,
                                        .allowed_ids = ids,
                                        .allowed_count = 1};
    struct made made = make(&request);
    (void)state;

    assert_int_equal(made.r, 0);
    assert_int_equal(made.rules.bias_ids.len, 8);
    assert_memory_equal(made.rules.bias_ids.data, ids, 8);
    assert_memory_equal(made.rules.bias_values.data, values, 8);
    assert_int_equal(made.rules.allowed_ids.len, 4);
    assert_int_equal(made.rules.bad_words_count, 0);
    arena_done(&made.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_words_have_a_form_with_a_space_where_that_is_another),
        cmocka_unit_test(test_ids_outside_the_vocabulary_are_refused_by_field),
        cmocka_unit_test(test_lists_are_packed_as_the_wire_wants_them),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
