/* test_pretokenize_steps.c - what becomes of a step's matches, and steps that are no patterns. */
#include <cmocka.h>
#include <errno.h>

#include "router/text/pretokenize.h"
#include "tests/unit/router/text/tiny_cards.h"

#define LOW "\xe2\x96\x81"

static int on_word(void *owner, const char *word, size_t bytes)
{
    struct buffer *words = owner;
    assert_true(bytes > 0);
    if (words->bytes > 0)
        buffer_append_char(words, '|');
    buffer_append(words, word, bytes);
    return 0;
}

static int make(const char *const *steps, size_t count, struct unicode *unicode,
                struct pretokenizer **ret_pre, struct errmsg *err)
{
    struct model_card *card = tiny_bpe("", NULL, 0, NO_MERGES);
    struct pretokenize_traits traits;
    struct string_table_builder builder;
    string_table_builder_init(&builder);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(string_table_builder_add(&builder, steps[i], strlen(steps[i])), 0);
    string_table_builder_move(&builder, card, &card->pretokenizers);
    int r = pretokenizer_new(card, unicode, ret_pre, &traits, err);
    model_card_unref(card);
    return r;
}

static void check(bool at_start, const char *text, const char *expected, const char *const *steps,
                  size_t count)
{
    struct unicode unicode;
    struct pretokenizer *pre = NULL;
    struct errmsg err = {""};
    struct buffer words;
    unicode_init(&unicode);
    buffer_init(&words, 1000);
    if (make(steps, count, &unicode, &pre, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pretokenizer_split(pre, text, strlen(text), at_start, on_word, &words), 0);
    assert_string_equal(words.data, expected);
    buffer_done(&words);
    pretokenizer_free(pre);
    unicode_done(&unicode);
}

#define CHECK(text, expected, ...) CHECK_AT(true, text, expected, __VA_ARGS__)
#define CHECK_AT(at_start, text, expected, ...)                                          \
    do {                                                                                 \
        const char *const steps_[] = {__VA_ARGS__};                                      \
        check((at_start), (text), (expected), steps_, sizeof(steps_) / sizeof(*steps_)); \
    } while (0)

static void test_matches_are_kept_dropped_or_joined(void **state)
{
    CHECK("ab--cd-", "ab|-|-|cd|-", "Split -");
    CHECK("ab--cd-", "ab|cd", "Remove -");
    CHECK("ab--cd-", "-|-|-", "Keep -");
    CHECK("ab--cd-", "ab|--|cd|-", "Contiguous -");
    CHECK("ab--cd-", "ab-|-|cd-", "MergePrevious -");
    CHECK("-ab--cd-", "-ab|-|-cd|-", "MergeNext -");
    CHECK("--", "-|-", "MergePrevious -");
    CHECK("ab", "ab", "MergeNext -");
}

static void test_steps_cut_the_pieces_of_those_before(void **state)
{
    CHECK("a1-b22", "a|1|-|b|2|2", "Split -", "Split \\p{N}");
    CHECK("ab cd", "ab |cd", "MergePrevious  ", "Split x");
    CHECK("a b", " a| | b", "Split  ", "PrefixSpace"); /* a piece that begins with one keeps it */
}

static void test_lines_have_ends_as_in_oniguruma(void **state)
{
    CHECK("a \nb ", "a| |\nb| ", "Split  +$");
    CHECK(" a\n b", " |a\n| |b", "Split ^ +");
}

static void test_words_have_marks(void **state)
{
    CHECK("e\xcc\x81t\xc3\xa9 x_1", "e\xcc\x81t\xc3\xa9| |x_1", "Split \\w+");
    CHECK("ab\xe1\xa0\x8e"
          "c d",
          "ab\xe1\xa0\x8e"
          "c|d",
          "Remove \\s"); /* U+180E is no space */
}

static void test_metaspace_prefixes_and_splits(void **state)
{
    CHECK("ab cd  e", " ab| cd| | e", "Metaspace Always Split");
    CHECK("ab" LOW "cd", " ab|" LOW "cd", "Metaspace Always Split");
    CHECK(" ab", " ab", "Metaspace Always Split");
    CHECK("ab cd", "ab| cd", "Metaspace Never Split");
    CHECK("ab cd", " ab cd", "Metaspace First");
    CHECK_AT(false, "ab cd", "ab cd", "Metaspace First");
    CHECK("ab cd", " ab| cd", "Remove \\s", "Metaspace Always Split");
    CHECK("ab cd", " ab|cd", "Remove \\s", "Metaspace First Split");
    CHECK(" ab cd", "ab|cd", "Remove \\s", "Metaspace First Split");
}

static void test_bytes_are_characters_behind_that_step(void **state)
{
    CHECK("\xc3\xb2", "\xc3\x83|\xc2\xb2", "Bytes", "Split \\p{N}+"); /* 0xB2 is a digit there */
    CHECK("a b",
          "a\xc4\xa0"
          "b",
          "Whole", "Bytes");
}

static void test_unknown_steps_are_refused(void **state)
{
    const struct {
        const char *steps[2];
        int code;
        const char *sentence;
    } cases[] = {
        {{"Cut x", "Whole"}, -ENOTSUP, "unknown pre-tokenizer step 'Cut x'; known: Split Keep"},
        {{"Split", "Whole"}, -ENOTSUP, "unknown pre-tokenizer step 'Split'"},
        {{"Split ", "Whole"}, -EINVAL, "pattern 0 is empty"},
        {{"Metaspace Last", "Whole"}, -ENOTSUP, "Always, First or Never"},
        {{"Metaspace First", "Split x"}, -ENOTSUP, "Metaspace must be the last step"},
        {{"Split [[:alpha:]&&[a]]", "Whole"}, -ENOTSUP, "&& inside a class"},
        {{"Split \\h", "Whole"}, -ENOTSUP, "\\h at byte 0"},
    };
    struct unicode unicode;
    unicode_init(&unicode);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pretokenizer *pre = NULL;
        struct errmsg err = {""};
        assert_int_equal(make(cases[i].steps, 2, &unicode, &pre, &err), cases[i].code);
        if (strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, cases[i].sentence);
        assert_null(pre);
    }
    unicode_done(&unicode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches_are_kept_dropped_or_joined),
        cmocka_unit_test(test_steps_cut_the_pieces_of_those_before),
        cmocka_unit_test(test_lines_have_ends_as_in_oniguruma),
        cmocka_unit_test(test_words_have_marks),
        cmocka_unit_test(test_metaspace_prefixes_and_splits),
        cmocka_unit_test(test_bytes_are_characters_behind_that_step),
        cmocka_unit_test(test_unknown_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
