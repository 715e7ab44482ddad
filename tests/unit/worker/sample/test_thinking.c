/* thinking.c: which tokens count, and when the end tag's are forced. */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/sample/thinking.h"

/* Ids 0..127 are ASCII as byte tokens; then whole tags, and tags within tokens. */
enum { BEGIN = 128, END, LATE, TOKENS };
static const char *const words[] = {"<think>", "</think>", "hm</think>ok"};
static const uint32_t end_id[] = {END};

struct fixture {
    struct model_card *card;
    struct thinking_input input;
};

static int setup(void **state)
{
    static struct fixture f;
    struct string_table_builder builder;
    uint8_t types[TOKENS];

    f.card = model_card_new();
    string_table_builder_init(&builder);
    for (uint32_t i = 0; i < TOKENS; i++) {
        char letter[8];
        (void)snprintf(letter, sizeof(letter), "<0x%02X>", i);
        const char *text = i < BEGIN ? letter : words[i - BEGIN];
        assert_int_equal(string_table_builder_add(&builder, text, strlen(text)), 0);
        types[i] = i < BEGIN ? TOKEN_BYTE : TOKEN_NORMAL;
    }
    f.card->tokenizer = TOKENIZER_SPM;
    f.card->vocab_size = TOKENS;
    string_table_builder_move(&builder, f.card, &f.card->tokens);
    model_card_set_types(f.card, types, NULL, NULL);
    f.input = (struct thinking_input){.tokens_max = 3,
                                      .begin = "<think>",
                                      .begin_bytes = 7,
                                      .end = "</think>",
                                      .end_bytes = 8,
                                      .end_ids = (const uint8_t *)end_id,
                                      .end_ids_bytes = sizeof(end_id)};
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    model_card_unref(f->card);
    return 0;
}

static struct thinking *begin(const struct fixture *f)
{
    struct thinking *thinking = NULL;
    struct errmsg err;
    assert_int_equal(thinking_new(&f->input, f->card, &thinking, &err), 0);
    return thinking;
}

static bool forces(const struct thinking *thinking, uint32_t id)
{
    uint32_t forced = UINT32_MAX;
    return thinking_forces(thinking, &forced) && forced == id;
}

static void take(struct thinking *thinking, const char *text)
{
    for (; *text; text++) {
        uint32_t id;
        assert_false(thinking_forces(thinking, &id));
        thinking_take(thinking, (uint32_t)*text);
    }
}

static void test_the_end_is_forced_when_the_budget_is_spent(void **state)
{
    const struct fixture *f = *state;
    struct thinking *thinking = begin(f);

    thinking_take(thinking, BEGIN);
    take(thinking, "abc");
    assert_true(forces(thinking, END));
    thinking_take(thinking, END);
    take(thinking, "as long as it likes<think>and more"); /* it thinks once */
    thinking_free(thinking);
}

static void test_who_does_not_think_or_ends_by_itself_is_left_alone(void **state)
{
    const struct fixture *f = *state;
    struct thinking *thinking = begin(f);

    take(thinking, " no<think>thoughts at all");
    thinking_free(thinking);
    thinking = begin(f);
    thinking_take(thinking, BEGIN);
    take(thinking, "a");
    thinking_take(thinking, LATE); /* the end inside a token */
    take(thinking, "answer");
    thinking_free(thinking);
}

static void test_what_the_prompt_opened_counts_from_the_first_token(void **state)
{
    struct fixture *f = *state;

    f->input.inside = true;
    struct thinking *thinking = begin(f);
    take(thinking, "abc");
    assert_true(forces(thinking, END));
    thinking_free(thinking);
    f->input.tokens_max = 0;
    thinking = begin(f);
    assert_true(forces(thinking, END));
    thinking_take(thinking, END);
    take(thinking, "answer");
    thinking_free(thinking);
}

/* Letter by letter: the pieces of the begin tag are no thoughts, and the end's come in order. */
static void test_tags_of_several_tokens_are_forced_token_by_token(void **state)
{
    struct fixture *f = *state;
    static const char end[] = "</think>";
    uint32_t ids[8];

    for (size_t i = 0; i < 8; i++)
        ids[i] = (uint32_t)end[i];
    f->input.end_ids = (const uint8_t *)ids;
    f->input.end_ids_bytes = sizeof(ids);
    struct thinking *thinking = begin(f);
    take(thinking, "\n<think>a</"); /* three tokens of thinking, two of a tag that does not come */
    for (size_t i = 0; i < 8; i++) {
        assert_true(forces(thinking, ids[i]));
        thinking_take(thinking, ids[i]);
    }
    take(thinking, "answer");
    thinking_free(thinking);
}

static void test_a_model_that_always_thinks_needs_no_begin_tag(void **state)
{
    struct fixture *f = *state;

    f->input.opened = true;
    struct thinking *thinking = begin(f);
    take(thinking, "abcd"); /* with the first one it begins */
    assert_true(forces(thinking, END));
    thinking_free(thinking);
}

static void assert_refused(const struct fixture *f, const char *words_of_it)
{
    struct thinking *thinking = NULL;
    struct errmsg err;
    assert_int_equal(thinking_new(&f->input, f->card, &thinking, &err), -EINVAL);
    assert_null(thinking);
    assert_non_null(strstr(err.text, words_of_it));
}

static void test_what_no_router_sends_is_refused(void **state)
{
    struct fixture *f = *state;
    const uint32_t beyond[] = {TOKENS};

    f->input.end_bytes = 0;
    assert_refused(f, "the end tag has 0 bytes");
    f->input.end_bytes = 8;
    f->input.begin = "<t<ink>";
    assert_refused(f, "its first byte twice");
    f->input.begin = "<think>";
    f->input.end_ids_bytes = 3;
    assert_refused(f, "3 bytes of end tokens");
    f->input.end_ids = (const uint8_t *)beyond;
    f->input.end_ids_bytes = 4;
    assert_refused(f, "the vocabulary has 131");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_end_is_forced_when_the_budget_is_spent, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_who_does_not_think_or_ends_by_itself_is_left_alone,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_the_prompt_opened_counts_from_the_first_token,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_tags_of_several_tokens_are_forced_token_by_token,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_model_that_always_thinks_needs_no_begin_tag, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_no_router_sends_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
