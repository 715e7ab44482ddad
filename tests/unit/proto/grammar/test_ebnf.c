/* EBNF in llama.cpp's spelling, choices, and structures. */
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

static void test_arithmetic(void **state)
{
    static const char grammar[] = "# a sum\n"
                                  "root  ::= expr \"=\" ws num \"\\n\"\n"
                                  "expr  ::= term ([-+*/] term)*   # left to right\n"
                                  "term  ::= num | \"(\" ws expr \")\" ws\n"
                                  "num   ::= [0-9]+ ws\n"
                                  "ws    ::= [ \\t\\n]*\n";
    (void)state;
    check_texts(&m, GRAMMAR_EBNF, grammar,
                TEXTS("1=2\n", "(1+2)*3 = 9 \n", "((((7)))) = 7\n", "1+2-3*4/5=0\n"),
                TEXTS("1=", "1+=2\n", "(1=2\n", "a=1\n", "1=2"));
}

static void test_repetitions_classes_and_any(void **state)
{
    (void)state;
    check_texts(&m, GRAMMAR_EBNF, "root ::= \"a\"{2,3} [^x-z]? . \"\\u00e9\"",
                TEXTS("aab\xc3\xa9", "aaab\xc3\xa9", "aaabx\xc3\xa9"),
                TEXTS("ab\xc3\xa9", "aaayx\xc3\xa9"));
    check_texts(&m, GRAMMAR_EBNF,
                "root ::= (\n  \"x\" |\n  item\n)+\nitem ::= \"[\" [\\]\\-] \"]\"",
                TEXTS("x", "[]]x[-]"), TEXTS("", "[a]"));
    check_texts(&m, GRAMMAR_EBNF, "root ::= a-b{1,200}\na-b ::= \"q\" | \"\"", TEXTS("", "qqq"),
                TEXTS("r"));
    check_texts(&m, GRAMMAR_EBNF, "root ::= \"a\" root \"b\" | \"\"", TEXTS("", "aabb"),
                TEXTS("aab", "abb"));
}

static void test_mistakes_have_a_place(void **state)
{
    (void)state;
    check_refused(GRAMMAR_EBNF, "root ::= \"a\" nope", -EINVAL, "'nope' is named but not defined");
    check_refused(GRAMMAR_EBNF, "start ::= \"a\"", -EINVAL, "no rule 'root'");
    check_refused(GRAMMAR_EBNF, "root ::= \"a\"\nroot ::= \"b\"", -EINVAL, "defined twice");
    check_refused(GRAMMAR_EBNF, "root ::= x\nx ::= \"a", -EINVAL, "line 2");
    check_refused(GRAMMAR_EBNF, "root ::= (\"a\"", -EINVAL, "no )");
    check_refused(GRAMMAR_EBNF, "root ::= \"a\")", -EINVAL, "no group");
    check_refused(GRAMMAR_EBNF, "root = \"a\"", -EINVAL, "expected a rule");
    check_refused(GRAMMAR_EBNF, "root ::= \"\\q\"", -EINVAL, "escape");
    check_refused(GRAMMAR_EBNF, "root ::= \"a\"+*", -EINVAL, "follows another");
    check_refused(GRAMMAR_EBNF, "root ::= \"a\"{5,2}", -EINVAL, "wrong way");
    check_refused(GRAMMAR_EBNF, "", -EINVAL, "no rule 'root'");
}

static void test_left_recursion_is_refused_and_named(void **state)
{
    (void)state;
    check_refused(GRAMMAR_EBNF, "root ::= root \"a\" | \"b\"", -EINVAL, "'root' leads back");
    check_refused(GRAMMAR_EBNF, "root ::= x\nx ::= e x \"a\" | \"b\"\ne ::= \"\"", -EINVAL,
                  "'x' leads back");
    check_refused(GRAMMAR_EBNF, "root ::= x\nx ::= y{0,5} \"a\"\ny ::= x", -EINVAL, "left rec");
    check_refused(GRAMMAR_EBNF, "root ::= \"a\" root", -EINVAL, "no text can ever be complete");
}

static void test_choices_share_beginnings(void **state)
{
    (void)state;
    check_texts(&m, GRAMMAR_CHOICE, "[\"yes\", \"yesterday\", \"no\", \"no\", \"\\u00e9\\n\"]",
                TEXTS("yes", "yesterday", "no", "\xc3\xa9\n"), TEXTS("", "y", "yest", "n", "nono"));
    check_refused(GRAMMAR_CHOICE, "[]", -EINVAL, "at least one");
    check_refused(GRAMMAR_CHOICE, "[\"a\", 2]", -EINVAL, "entry 1");
    check_refused(GRAMMAR_CHOICE, "[\"a\"", -EINVAL, "choices:");
}

static void test_structures_hold_json(void **state)
{
    static const char calls[] =
        "{\"alternatives\":[{\"begin\":\"<c>{\\\"n\\\":\\\"f\\\",\\\"a\\\":\",\"schema\":"
        "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]},"
        "\"end\":\"}</c>\"},{\"begin\":\"<d>\",\"schema\":true,\"end\":\"</d>\"}],"
        "\"min\":1,\"max\":3,\"separator\":\"\\n\"}";
    (void)state;
    check_texts(&m, GRAMMAR_STRUCTURE, calls,
                TEXTS("<c>{\"n\":\"f\",\"a\":{\"x\":1}}</c>", "<d>[1]</d>",
                      "<d>1</d>\n<c>{\"n\":\"f\",\"a\":{\"x\": -3}}</c>\n<d>{}</d>"),
                TEXTS("", "<c>{\"n\":\"f\",\"a\":{}}</c>", "<d>1</d><d>1</d>",
                      "<d>1</d>\n<d>1</d>\n<d>1</d>\n<d>1</d>"));
    check_texts(&m, GRAMMAR_STRUCTURE,
                "{\"alternatives\":[{\"schema\":{\"enum\":[1]}}],\"min\":0,\"max\":1}",
                TEXTS("", "1"), TEXTS("11", "2"));
    check_refused(GRAMMAR_STRUCTURE, "{\"alternatives\":[]}", -EINVAL, "'alternatives'");
    check_refused(GRAMMAR_STRUCTURE, "{\"alternatives\":[{\"begin\":\"a\"}]}", -EINVAL, "'schema'");
    check_refused(GRAMMAR_STRUCTURE, "{\"alternatives\":[{\"schema\":true}],\"min\":2,\"max\":1}",
                  -EINVAL, "'max'");
    check_refused(GRAMMAR_STRUCTURE,
                  "{\"alternatives\":[{\"schema\":{\"not\":{}}}],\"min\":1,\"max\":1}", -EINVAL,
                  "'not' is not supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_repetitions_classes_and_any),
        cmocka_unit_test(test_mistakes_have_a_place),
        cmocka_unit_test(test_left_recursion_is_refused_and_named),
        cmocka_unit_test(test_choices_share_beginnings),
        cmocka_unit_test(test_structures_hold_json),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
