/* Regular expressions: what they take, what is refused. */
#include "tests/unit/proto/grammar/matching.h"

static struct matching m;

static int setup(void **state)
{
    (void)state;
    matching_init(&m, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    matching_done(&m);
    return 0;
}

static void check(const char *regex, const char *const *yes, const char *const *no)
{
    check_texts(&m, GRAMMAR_REGEX, regex, yes, no);
}

static void test_alternatives_groups_and_quantifiers(void **state)
{
    (void)state;
    check("abc", TEXTS("abc"), TEXTS("", "ab", "abcd", "Abc"));
    check("a|bc|", TEXTS("a", "bc", ""), TEXTS("b", "abc"));
    check("(ab)*c", TEXTS("c", "abc", "ababc"), TEXTS("", "ac", "abab"));
    check("(?:a|b)+", TEXTS("a", "abba"), TEXTS("", "c"));
    check("(?P<year>\\d{4})-(?<m>\\d\\d?)", TEXTS("2024-1", "2024-12"), TEXTS("24-1", "2024-123"));
    check("a{2}", TEXTS("aa"), TEXTS("a", "aaa"));
    check("a{2,}", TEXTS("aa", "aaaaaaa"), TEXTS("a", ""));
    check("a{1,3}?b", TEXTS("ab", "aaab"), TEXTS("b", "aaaab"));
    check("a{,2}", TEXTS("", "aa"), TEXTS("aaa"));
    check("a{x}", TEXTS("a{x}"), TEXTS("a"));
    check("a{0}b", TEXTS("b"), TEXTS("ab"));
    check("(a*)*b", TEXTS("b", "aaab"), TEXTS("a"));
    check("(a?){3}", TEXTS("", "a", "aaa"), TEXTS("aaaa"));
    check("(a|){40}b", TEXTS("b", "aab"), TEXTS("a"));
    check("", TEXTS(""), TEXTS("a"));
}

static void test_long_repetitions_are_counted(void **state)
{
    char text[1200];
    (void)state;
    memset(text, 'a', sizeof(text));
    struct grammar *grammar = compiled(GRAMMAR_REGEX, "(a|b){1000,1100}");
    assert_false(accepts_bytes(&m, grammar, text, 999));
    assert_true(accepts_bytes(&m, grammar, text, 1000));
    assert_true(accepts_bytes(&m, grammar, text, 1100));
    assert_false(accepts_bytes(&m, grammar, text, 1101));
    grammar_unref(grammar);
    grammar = compiled(GRAMMAR_REGEX, "((a{10}){10}){10,}");
    assert_false(accepts_bytes(&m, grammar, text, 990));
    assert_false(accepts_bytes(&m, grammar, text, 1050));
    assert_true(accepts_bytes(&m, grammar, text, 1100));
    grammar_unref(grammar);
}

static void test_classes_and_escapes(void **state)
{
    (void)state;
    check("[a-cx]", TEXTS("a", "c", "x"), TEXTS("d", "", "ax"));
    check("[^a-c]", TEXTS("d", "\xc3\xa9", "\n", "\xf0\x9f\x98\x80"), TEXTS("a", "\xc3"));
    check("[]a]", TEXTS("]", "a"), TEXTS("b"));
    check("[a-]", TEXTS("a", "-"), TEXTS("b"));
    check("[-a]", TEXTS("a", "-"), TEXTS("b"));
    check("[a-\\d]", TEXTS("a", "-", "7"), TEXTS("b"));
    check("[\\w.-]+", TEXTS("a_9.Z-"), TEXTS("a b"));
    check("\\d\\D\\w\\W\\s\\S", TEXTS("1a_- x"), TEXTS("aa_- x", "1a_-  "));
    check("\\n\\t\\x41\\u00e9\\u{1F600}\\.", TEXTS("\n\tA\xc3\xa9\xf0\x9f\x98\x80."), TEXTS("n"));
    check("a.c",
          TEXTS("abc", "a\xe2\x82\xac"
                       "c"),
          TEXTS("a\nc", "ac",
                "a\xe2"
                "c"));
    check("[\xd0\xb0-\xd1\x8f]+", TEXTS("\xd0\xb0\xd1\x8f"), TEXTS("\xd0\x90", "\xd1\x90"));
    check("[\\u0700-\\u0900]", TEXTS("\xdc\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xe0\xa4\x80"),
          TEXTS("\xdb\xbf", "\xe0\xa4\x81"));
}

static void test_anchors_that_say_nothing_new_are_taken(void **state)
{
    (void)state;
    check("^abc$", TEXTS("abc"), TEXTS("xabc"));
    check("^(a|b)$|^c$", TEXTS("a", "c"), TEXTS("ab"));
    check("(^a|^b)c$", TEXTS("ac", "bc"), TEXTS("c"));
    check_refused(GRAMMAR_REGEX, "a^b", -EINVAL, "^ is supported at the beginning");
    check_refused(GRAMMAR_REGEX, "a$b", -EINVAL, "$ is supported at the end");
    check_refused(GRAMMAR_REGEX, "(^a)*", -EINVAL, "^ is supported");
}

static void test_what_is_not_supported_is_refused_by_name(void **state)
{
    static const char *const cases[][2] = {
        {"(?=a)", "look-around"},
        {"(?!a)", "look-around"},
        {"(?<=a)b", "look-around"},
        {"(?<!a)b", "look-around"},
        {"(a)\\1", "back ref"},
        {"\\bfoo", "word borders"},
        {"\\p{L}", "Unicode"},
        {"(?i)a", "kind of group"},
        {"(?>a)", "kind of group"},
        {"a++", "possessive"},
        {"a**", "follows another"},
        {"*a", "nothing to repeat"},
        {"(a", "no )"},
        {"a)", "no group"},
        {"[a", "no ]"},
        {"a{3,2}", "wrong way"},
        {"[z-a]", "wrong way"},
        {"a\\", "backslash"},
        {"\\q", "escape"},
        {"\\x4", "no character"},
        {"a{1000001}", "1000000"},
        {"\\ud800", "no character"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_refused(GRAMMAR_REGEX, cases[i][0], -EINVAL, cases[i][1]);
    check_refused(GRAMMAR_REGEX, "ab\\q", -EINVAL, "before character 5");
    check_refused_bytes(GRAMMAR_REGEX, "a\xff", 2, -EINVAL, "UTF-8 at byte 1");
}

static void test_a_class_of_nothing_has_no_text(void **state)
{
    (void)state;
    check_refused(GRAMMAR_REGEX, "a[^\\x00-\\u{10FFFF}]", -EINVAL, "no text");
    check("a|b[^\\x00-\\u{10FFFF}]", TEXTS("a"), TEXTS("b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alternatives_groups_and_quantifiers),
        cmocka_unit_test(test_long_repetitions_are_counted),
        cmocka_unit_test(test_classes_and_escapes),
        cmocka_unit_test(test_anchors_that_say_nothing_new_are_taken),
        cmocka_unit_test(test_what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(test_a_class_of_nothing_has_no_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
