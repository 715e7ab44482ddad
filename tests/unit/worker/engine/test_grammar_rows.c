/* A sequence under a grammar: which ids a row allows, when ends may come, what ends the answer. */
#include <math.h>

#include "tests/unit/proto/grammar/matching.h"
#include "worker/engine/grammar_rows.h"

#define END 256u

struct fixture {
    struct matching m;
    struct grammar *grammar;
    struct sequence seq;
    uint32_t ids[16];
};

static struct fixture *begin(const char *regex)
{
    static struct fixture f;
    memset(&f, 0, sizeof(f));
    matching_init(&f.m, NULL);
    f.grammar = compiled(GRAMMAR_REGEX, regex);
    assert_int_equal(grammar_matcher_new(f.m.machine, f.grammar, &f.seq.matcher, NULL), 0);
    f.seq.params.stop_ids[0] = END;
    f.seq.params.stop_ids_count = 1;
    f.seq.params.end_ids[0] = END;
    f.seq.params.end_ids_count = 1;
    return &f;
}

static void end(struct fixture *f)
{
    grammar_matcher_free(f->seq.matcher);
    grammar_unref(f->grammar);
    matching_done(&f->m);
}

static void take(struct fixture *f, uint32_t id)
{
    assert_int_equal(grammar_row_take(&f->seq, id), 0);
    f->seq.ids_count++;
}

/* Ids that a row leaves, as a text; the end is '$'. */
static void check_allowed(struct fixture *f, const char *wanted)
{
    struct grammar_row row;
    float logits[257] = {0};
    char text[300];
    size_t count = 0;
    assert_int_equal(grammar_row_make(&f->seq, &row), 0);
    sample_mask_apply(&row.mask, logits, 257);
    for (uint32_t id = 0; id < 257; id++)
        if (!isinf(logits[id]))
            text[count++] = id == END ? '$' : (char)id;
    text[count] = '\0';
    assert_string_equal(text, wanted);
}

static void test_an_end_may_come_when_the_text_is_complete(void **state)
{
    struct fixture *f = begin("a[bc]?");
    (void)state;
    check_allowed(f, "a");
    take(f, 'a');
    check_allowed(f, "bc$");
    take(f, 'c');
    check_allowed(f, "$"); /* nothing else can follow */
    assert_false(f->seq.answer_over);
    take(f, END);
    assert_true(f->seq.answer_over);
    end(f);
}

static void test_min_tokens_hold_until_nothing_else_is_left(void **state)
{
    struct fixture *f = begin("a[bc]?");
    (void)state;
    f->seq.params.tokens_min = 10;
    take(f, 'a');
    check_allowed(f, "bc");
    take(f, 'b');
    check_allowed(f, "$");
    end(f);
}

static void test_ignored_ends_come_when_nothing_else_is_left(void **state)
{
    struct fixture *f = begin("a[bc]?");
    (void)state;
    f->seq.params.stop_ids_count = 0; /* ignore_eos */
    take(f, 'a');
    check_allowed(f, "bc");
    take(f, 'b');
    check_allowed(f, "$");
    end(f);
}

static void
test_a_token_that_the_grammar_does_not_take_is_no_end_before_it_is_complete(void **state)
{
    struct fixture *f = begin("ab");
    (void)state;
    assert_int_equal(grammar_row_take(&f->seq, END), -EINVAL);
    assert_int_equal(grammar_row_take(&f->seq, 'b'), -EINVAL);
    assert_false(f->seq.answer_over);
    check_allowed(f, "a");
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_end_may_come_when_the_text_is_complete),
        cmocka_unit_test(test_min_tokens_hold_until_nothing_else_is_left),
        cmocka_unit_test(test_ignored_ends_come_when_nothing_else_is_left),
        cmocka_unit_test(
            test_a_token_that_the_grammar_does_not_take_is_no_end_before_it_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
