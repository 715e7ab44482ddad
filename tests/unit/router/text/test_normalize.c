/* test_normalize.c - each step on texts worked out by hand; SentencePiece's pass; hostile maps.
 * Real maps and whole pipelines against the libraries: tests/oracle. */
#include <cmocka.h>
#include <errno.h>

#include "router/text/charsmap.h"
#include "router/text/normalize.h"
#include "tests/unit/router/text/tiny_cards.h"

#define LOW "\xe2\x96\x81"
#define STEP(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

struct step_text {
    const char *text;
    size_t bytes;
};

static struct unicode unicode;

static int setup(void **state)
{
    unicode_init(&unicode);
    return 0;
}

static int teardown(void **state)
{
    unicode_done(&unicode);
    return 0;
}

static struct model_card *card_with(const struct step_text *steps, size_t count)
{
    const struct tiny_token tokens[] = {{"a", TOKEN_NORMAL, 0, 0}};
    struct model_card *card = tiny_pieces(TOKENIZER_SPM, tokens, 1);
    struct string_table_builder builder;
    string_table_builder_init(&builder);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(string_table_builder_add(&builder, steps[i].text, steps[i].bytes), 0);
    string_table_builder_move(&builder, card, &card->normalizers);
    return card;
}

static void check_card(struct model_card *card, bool starts, const char *text, const char *expected)
{
    struct normalizer *normalizer = NULL;
    struct errmsg err = {""};
    const char *out = NULL;
    size_t bytes = 0;
    bool at_start = true;
    if (normalizer_new(card, false, &unicode, &normalizer, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < 2; i++) { /* scratch memory is used again */
        at_start = true;
        assert_int_equal(normalizer_run(normalizer, text, strlen(text), &at_start, &out, &bytes),
                         0);
        assert_int_equal(bytes, strlen(expected));
        assert_memory_equal(out, expected, bytes);
        assert_int_equal(at_start, starts);
    }
    normalizer_free(normalizer);
}

#define CHECK(starts, text, expected, ...)                                                \
    do {                                                                                  \
        const struct step_text steps_[] = {__VA_ARGS__};                                  \
        struct model_card *card_ = card_with(steps_, sizeof(steps_) / sizeof(steps_[0])); \
        check_card(card_, (starts), (text), (expected));                                  \
        model_card_unref(card_);                                                          \
    } while (0)

static void test_forms_and_case(void **state)
{
    CHECK(true, "e\xcc\x81 \xef\xac\x81", "\xc3\xa9 \xef\xac\x81", STEP("NFC"));
    CHECK(true, "\xc3\xa9", "e\xcc\x81", STEP("NFD"));
    CHECK(true, "\xef\xac\x81\xc2\xbd e\xcc\x81",
          "fi1\xe2\x81\x84"
          "2 \xc3\xa9",
          STEP("NFKC"));
    CHECK(true, "\xef\xac\x81\xc3\xa9", "fie\xcc\x81", STEP("NFKD"));
    CHECK(true, "ABC \xc4\xb0\xc3\x84", "abc i\xcc\x87\xc3\xa4", STEP("Lowercase"));
}

static void test_strips_and_what_they_take_off_the_start(void **state)
{
    CHECK(false, " \xe3\x80\x80 a b ", "a b ", STEP("StripLeft"));
    CHECK(true, " a b\n\t ", " a b", STEP("StripRight"));
    CHECK(false, "  ", "", STEP("StripLeft"), STEP("StripRight"));
    CHECK(true, "a", "a", STEP("StripLeft"));
}

static void test_prepend_and_replace(void **state)
{
    CHECK(true, "a", "xya", STEP("Prepend xy"));
    CHECK(true, "", "", STEP("Prepend xy")); /* nothing before nothing */
    CHECK(true, "a--b-", "a+b-", STEP("Replace --\0+"));
    CHECK(true, "a  b   c d", "a_b_c d", STEP("ReplaceRegex  {2,}\0_"));
    CHECK(true, "abc", "c", STEP("ReplaceRegex ^ab\0"), STEP("Replace x\0y"));
}

static void test_spaces_for_the_model_are_plain(void **state)
{
    /* Llama's pair of steps, and text that writes the character itself. */
    CHECK(true, "a b" LOW "c", " a b c", STEP("Prepend " LOW), STEP("Replace  \0" LOW));
    CHECK(true, "a b", "a b", STEP("Replace  \0" LOW));
}

static void test_card_without_steps_follows_sentencepiece(void **state)
{
    const struct tiny_token tokens[] = {{"a", TOKEN_NORMAL, 0, 0}};
    struct model_card *card = tiny_pieces(TOKENIZER_SPM, tokens, 1);
    check_card(card, true, " a  b ", " a  b ");
    card->add_space_prefix = true;
    check_card(card, true, " a  b ", "  a  b ");
    check_card(card, true, "", "");
    card->remove_extra_whitespaces = true;
    check_card(card, true, "  a   b  ", " a b");
    check_card(card, true, "   ", "");
    check_card(card, true, "a" LOW LOW "b" LOW, " a  b"); /* only real spaces run together */
    model_card_unref(card);
}

static void test_unknown_or_broken_steps_are_refused(void **state)
{
    const struct {
        struct step_text step;
        int code;
        const char *sentence;
    } cases[] = {
        {STEP("Nmt"), -ENOTSUP, "unknown normalizer step 'Nmt'; known: NFC"},
        {STEP("Replace a"), -EINVAL, "has not its 2 arguments"},
        {STEP("Replace \0a"), -EINVAL, "has not its 2 arguments"},
        {STEP("Prepend a\0b"), -EINVAL, "has not its 1 arguments"},
        {STEP("Prepend \xff"), -EINVAL, "not UTF-8"},
        {STEP("ReplaceRegex a(\0b"), -EINVAL, "pattern 'a('"},
        {STEP("ReplaceRegex [a[b]]\0c"), -ENOTSUP, "a class inside a class at byte 2"},
        {STEP("ReplaceRegex a{1,3}+\0c"), -ENOTSUP, "{n,m}+ at byte 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct normalizer *normalizer = NULL;
        struct errmsg err = {""};
        struct model_card *card = card_with(&cases[i].step, 1);
        assert_int_equal(normalizer_new(card, false, &unicode, &normalizer, &err), cases[i].code);
        if (strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, cases[i].sentence);
        assert_null(normalizer);
        model_card_unref(card);
    }
}

/* --- character maps -------------------------------------------------------------------------- */

/* A double array with the keys "A" -> texts + 0 and "AB" -> texts + 2. */
static size_t make_map(uint32_t *units, char *ret_map, const char *texts, size_t texts_bytes)
{
    const uint32_t count = 1024, bytes = count * 4, has_value = 1u << 8, is_value = 1u << 31;
    uint32_t a = 256 ^ 'A', ab = a ^ 512 ^ 'B';
    memset(units, 0, bytes);
    units[0] = 256u << 10;
    units[a] = 'A' | has_value | 512u << 10;
    units[a ^ 512] = is_value | 0;
    units[ab] = 'B' | has_value | 256u << 10;
    units[ab ^ 256] = is_value | 2;
    memcpy(ret_map, &bytes, 4);
    memcpy(ret_map + 4, units, bytes);
    memcpy(ret_map + 4 + bytes, texts, texts_bytes);
    return 4 + bytes + texts_bytes;
}

static void test_charsmap_takes_the_longest_key_or_the_shortest(void **state)
{
    static const char texts[] = "x\0yz"; /* and its own NUL */
    uint32_t units[1024];
    char map[8192];
    struct charsmap charsmap;
    const char *out = NULL;
    size_t bytes = make_map(units, map, texts, sizeof(texts));
    assert_int_equal(charsmap_init(&charsmap, map, (uint32_t)bytes, NULL), 0);
    assert_int_equal(charsmap_find(&charsmap, "ABA", 3, false, &out), 2);
    assert_string_equal(out, "yz");
    assert_int_equal(charsmap_find(&charsmap, "ABA", 3, true, &out), 1);
    assert_string_equal(out, "x");
    assert_int_equal(charsmap_find(&charsmap, "AB", 1, false, &out), 1);
    assert_int_equal(charsmap_find(&charsmap, "B", 1, false, &out), 0);
    assert_int_equal(charsmap_find(&charsmap, "", 0, false, &out), 0);
    /* A key that ends inside a character is none. */
    assert_int_equal(charsmap_find(&charsmap, "A\x80", 2, false, &out), 0);
    assert_int_equal(charsmap_init(&charsmap, NULL, 0, NULL), 0);
    assert_int_equal(charsmap_find(&charsmap, "A", 1, false, &out), 0);
}

static void test_card_with_a_map_is_normalized_by_it(void **state)
{
    static const char texts[] = " \0yz";
    const struct tiny_token tokens[] = {{"a", TOKEN_NORMAL, 0, 0},
                                        {"AB", TOKEN_USER_DEFINED, 0, 0}};
    uint32_t units[1024];
    char map[8192];
    size_t bytes = make_map(units, map, texts, sizeof(texts));
    struct model_card *card = tiny_pieces(TOKENIZER_SPM, tokens, 2);
    model_card_set_charsmap(card, map, (uint32_t)bytes);
    check_card(card, true, "aABA", "ayz ");
    card->remove_extra_whitespaces = true;
    check_card(card, true, "AAaA AbAA", "a b"); /* what becomes a space is one */
    card->sentencepiece = true;
    check_card(card, true, "AaAB", "aAB"); /* user-defined pieces are left alone */
    model_card_unref(card);
}

static void test_charsmap_that_lies_is_refused_or_finds_nothing(void **state)
{
    static const char texts[] = "x\0yz";
    uint32_t units[1024];
    char map[8192];
    struct charsmap charsmap;
    const char *out = NULL;
    size_t bytes = make_map(units, map, texts, sizeof(texts));
    assert_int_equal(charsmap_init(&charsmap, map, 3, NULL), -EINVAL);
    assert_int_equal(charsmap_init(&charsmap, map, 4 + 4096, NULL), -EINVAL); /* no texts */
    assert_int_equal(charsmap_init(&charsmap, map, (uint32_t)bytes - 1, NULL), -EINVAL);
    for (uint32_t i = 0; i < 4096; i++) { /* each unit, thrown anywhere */
        uint32_t junk = i * 2654435761u;
        char copy[8192];
        memcpy(copy, map, bytes);
        memcpy(copy + 4 + (size_t)(i % 1024) * 4, &junk, 4);
        assert_int_equal(charsmap_init(&charsmap, copy, (uint32_t)bytes, NULL), 0);
        size_t used = charsmap_find(&charsmap, "ABAB", 4, false, &out);
        assert_true(used <= 4);
        assert_true(used == 0 || (out >= copy + 4 + 4096 && out < copy + bytes));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_forms_and_case),
        TEST(test_strips_and_what_they_take_off_the_start),
        TEST(test_prepend_and_replace),
        TEST(test_spaces_for_the_model_are_plain),
        TEST(test_card_without_steps_follows_sentencepiece),
        TEST(test_unknown_or_broken_steps_are_refused),
        TEST(test_charsmap_takes_the_longest_key_or_the_shortest),
        TEST(test_card_with_a_map_is_normalized_by_it),
        TEST(test_charsmap_that_lies_is_refused_or_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
