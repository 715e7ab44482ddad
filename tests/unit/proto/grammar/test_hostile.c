/* Texts made to hurt: each ends with a grammar of bounded size or a sentence, and a mask of it with
 * an answer or -E2BIG. Nothing here measures time; the bounds that are asserted are what time is
 * proportional to (and ctest has its limit). */
#include "tests/unit/proto/grammar/matching.h"

#include "proto/base/buffer.h"
#include "proto/grammar/machine_private.h"

#define BYTES_MAX ((size_t)24 << 20) /* of one compiled grammar */

static struct matching m;

static int setup(void **state)
{
    static const char *const words[] = {"a", "aa", "aaaa", "aaaaaaaaaaaaaaaa", "ab", "ba",
                                        "b", "bb", "abab", "babababa",         "((", NULL};
    (void)state;
    matching_init(&m, words);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    matching_done(&m);
    return 0;
}

/* Compiled or refused; then masks of a few states. Returns the code of the first that fails. */
static int run(enum grammar_kind kind, const char *text, size_t bytes, const char *begin)
{
    const struct grammar_spec spec = {kind, text, bytes};
    struct grammar *grammar = NULL;
    struct grammar_matcher *matcher = NULL;
    struct grammar_mask mask;
    struct errmsg err = {""};
    int r = grammar_compile(&spec, &grammar, &err);

    if (r < 0) {
        assert_true(err.text[0] != '\0' && (r == -EINVAL || r == -E2BIG));
        return r;
    }
    assert_true(grammar_bytes(grammar) <= BYTES_MAX);
    r = grammar_matcher_new(m.machine, grammar, &matcher, &err);
    grammar_unref(grammar);
    if (r < 0)
        return r;
    for (size_t i = 0; r == 0 && i <= strlen(begin); i++) {
        r = grammar_matcher_mask(matcher, &mask, &err);
        if (r == 0 && begin[i] != '\0')
            r = grammar_matcher_take(matcher, begin + i, 1);
    }
    grammar_matcher_free(matcher);
    assert_true(r == 0 || r == -E2BIG || r == -EINVAL);
    return r;
}

static int run_text(enum grammar_kind kind, const char *text, const char *begin)
{
    return run(kind, text, strlen(text), begin);
}

/* `head`, `unit` so often, `tail`. mem_free() it. */
static char *repeated(const char *head, const char *unit, size_t count, const char *tail)
{
    size_t head_bytes = strlen(head), unit_bytes = strlen(unit), tail_bytes = strlen(tail);
    char *text = mem_alloc(head_bytes + unit_bytes * count + tail_bytes + 1);
    memcpy(text, head, head_bytes);
    for (size_t i = 0; i < count; i++)
        memcpy(text + head_bytes + i * unit_bytes, unit, unit_bytes);
    memcpy(text + head_bytes + unit_bytes * count, tail, tail_bytes + 1);
    return text;
}

static void test_regexes_that_blow_up_elsewhere_cost_nothing(void **state)
{
    (void)state;
    assert_int_equal(run_text(GRAMMAR_REGEX, "(a+)+b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 0);
    assert_int_equal(run_text(GRAMMAR_REGEX, "(a|aa)+b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 0);
    assert_int_equal(run_text(GRAMMAR_REGEX, "(((((a*)*)*)*)*)*b", "aaaaaaaa"), 0);
    assert_int_equal(run_text(GRAMMAR_REGEX, "a{1000000}", "aaaa"), 0);
    assert_int_equal(
        run_text(GRAMMAR_REGEX, "((((((a{1000}){1000}){1000}){1000}){1000}){1000})", "aaaa"), 0);
    assert_int_equal(run_text(GRAMMAR_REGEX, "(a?){1000}b", "aaaa"), 0);
    assert_int_equal(run_text(GRAMMAR_REGEX, "(a?){100000}b", "aaaa"), -E2BIG);
}

static void test_too_many_states_are_an_error_and_not_a_hang(void **state)
{
    char *text = repeated("(a|b)*a", "(a|b)", 200, "c");
    (void)state;
    int r = run_text(GRAMMAR_REGEX, text, "abbaabababbabaabbabaabbbabababbabaab");
    assert_true(r == 0 || r == -E2BIG);
    mem_free(text);
    r = run_text(GRAMMAR_REGEX, "((a|b)*a(a|b){500}|(a|b)*b(a|b){700}){1,900}", "abbaababababbbab");
    assert_true(r == 0 || r == -E2BIG);
    r = run_text(GRAMMAR_EBNF, "root ::= \"a\" root | \"a\" root \"b\" | \"a\" root root | \"a\"",
                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_true(r == 0 || r == -E2BIG);
}

static void test_deep_nesting_is_refused(void **state)
{
    char *text = repeated("", "(", 100000, "a");
    (void)state;
    assert_int_equal(run_text(GRAMMAR_REGEX, text, ""), -EINVAL);
    assert_int_equal(run_text(GRAMMAR_JSON_SCHEMA, text, ""), -EINVAL);
    mem_free(text);
    text = repeated("root ::= ", "(", 100000, "\"a\"");
    assert_int_equal(run_text(GRAMMAR_EBNF, text, ""), -EINVAL);
    mem_free(text);
    text = repeated("", "{\"items\":", 20000, "true");
    assert_int_equal(run_text(GRAMMAR_JSON_SCHEMA, text, ""), -EINVAL);
    mem_free(text);
    text = repeated("{\"a\":", "[", 20000, "");
    assert_int_equal(run_text(GRAMMAR_JSON_SCHEMA, text, ""), -EINVAL);
    mem_free(text);
}

/* Notes and forbidden members make no automaton, so its limits do not end what copies them. */
static void test_schemas_that_multiply_when_merged_are_refused(void **state)
{
    struct buffer schema;
    (void)state;
    buffer_init(&schema, GRAMMAR_TEXT_MAX);
    buffer_append_text(&schema, "{\"type\":\"null\"");
    for (unsigned i = 0; i < 1000; i++)
        buffer_printf(&schema, ",\"n%u\":0", i);
    buffer_append_text(&schema, ",\"anyOf\":[{}");
    for (unsigned i = 0; i < 1000; i++)
        buffer_append_text(&schema, ",{}");
    buffer_append_text(&schema, "]}");
    check_refused(GRAMMAR_JSON_SCHEMA, schema.data, -EINVAL, "more than 524288 steps");
    buffer_clear(&schema);
    buffer_append_text(&schema, "{\"properties\":{\"p\":false");
    for (unsigned i = 0; i < 1000; i++)
        buffer_printf(&schema, ",\"p%u\":false", i);
    buffer_append_text(&schema, "},\"allOf\":[true");
    for (unsigned i = 0; i < 1000; i++)
        buffer_printf(&schema, ",{\"properties\":{\"q%u\":false}}", i);
    buffer_append_text(&schema, "]}");
    check_refused(GRAMMAR_JSON_SCHEMA, schema.data, -EINVAL, "more than 524288 steps");
    buffer_done(&schema);
    char *text = repeated("{\"allOf\":[{\"enum\":[1", ",1", 1000, ",5]},{\"enum\":[2");
    char *both = repeated(text, ",2", 1000, ",5]}]}");
    check_refused(GRAMMAR_JSON_SCHEMA, both, -EINVAL, "more than 524288 steps");
    mem_free(text);
    mem_free(both);
    text = repeated("{\"enum\":[1],\"type\":[\"integer\"", ",\"integer\"", 10000, "]}");
    check_refused(GRAMMAR_JSON_SCHEMA, text, -EINVAL, "is a list of 10001");
    mem_free(text);
}

/* Each byte goes through all of them: what one costs is counted, so that a mask ends in time. */
static void test_ways_without_text_are_counted_as_work(void **state)
{
    char *text = repeated("root ::= \"a\" e root | \"b\"\ne ::= \"\"", "|\"\"", 50000, "");
    (void)state;
    assert_int_equal(run_text(GRAMMAR_EBNF, text, ""), 0);
    assert_true(m.machine->work > 50000 / 16);
    mem_free(text);
}

static void test_large_texts_are_compiled_or_refused(void **state)
{
    char *text = repeated("", "a|", 100000, "a");
    (void)state;
    assert_int_equal(run_text(GRAMMAR_REGEX, text, "a"), 0);
    mem_free(text);
    text = repeated("", "(a|)", 60000, "");
    assert_int_equal(run_text(GRAMMAR_REGEX, text, "a"), -E2BIG);
    mem_free(text);
    text = repeated("", "[^a]", 60000, "");
    assert_int_equal(run_text(GRAMMAR_REGEX, text, "b"), -E2BIG);
    mem_free(text);
    text = repeated("[\"a\"", ",\"b\"", 65000, "]");
    assert_int_equal(run_text(GRAMMAR_CHOICE, text, "b"), 0);
    mem_free(text);
    text = repeated("root ::= x\nx ::= \"\"", " | x", 60000, "");
    assert_int_equal(run_text(GRAMMAR_EBNF, text, ""), -EINVAL); /* left recursion */
    mem_free(text);
    text = repeated("", "a", GRAMMAR_TEXT_MAX + 1, "");
    assert_int_equal(run_text(GRAMMAR_REGEX, text, ""), -E2BIG);
    mem_free(text);
}

/* 65,000 different ones. */
static void test_many_choices_are_a_trie(void **state)
{
    char *text = mem_alloc(GRAMMAR_TEXT_MAX);
    size_t used = 1;
    (void)state;
    text[0] = '[';
    for (unsigned i = 0; i < 28000; i++)
        used += (size_t)snprintf(text + used, 16, "\"%x\",", i);
    (void)snprintf(text + used, 8, "\"z\"]");
    assert_int_equal(run_text(GRAMMAR_CHOICE, text, "6d5f"), 0);
    mem_free(text);
}

static void test_many_rules_and_chains(void **state)
{
    char *text = mem_alloc(GRAMMAR_TEXT_MAX);
    size_t used = 0;
    (void)state;
    used += (size_t)snprintf(text + used, 64, "root ::= r0\n");
    for (unsigned i = 0; i < 10000; i++)
        used += (size_t)snprintf(text + used, 64, "r%u ::= r%u \"\"\n", i, i + 1);
    (void)snprintf(text + used, 64, "r10000 ::= \"a\"\n");
    /* Deeper than a stack may be: but the last call of a rule needs none. */
    assert_int_equal(run_text(GRAMMAR_EBNF, text, ""), 0);
    mem_free(text);
}

static void test_schemas_that_multiply_end_at_a_limit(void **state)
{
    static const char *const schemas[] = {
        /* recursion through allOf, through anyOf in allOf, through items */
        "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/a\"}]}},"
        "\"$ref\":\"#/$defs/a\"}",
        "{\"$defs\":{\"a\":{\"properties\":{\"x\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},"
        "{\"$ref\":\"#/$defs/b\"}]}}},\"b\":{\"properties\":{\"x\":{\"allOf\":[{\"$ref\":"
        "\"#/$defs/b\"},{\"$ref\":\"#/$defs/a\"}]}}}},\"allOf\":[{\"$ref\":\"#/$defs/a\"},"
        "{\"$ref\":\"#/$defs/b\"}]}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}",
        "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":"
        "\"#/$defs/a\"}",
        "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++)
        if (run_text(GRAMMAR_JSON_SCHEMA, schemas[i], "") >= 0)
            fail_msg("%s is taken", schemas[i]);
}

static void test_wide_alternatives_at_once_end_at_a_limit(void **state)
{
    char *list = repeated("{\"type\":\"integer\"}", ",{\"type\":\"string\"}", 300, "");
    char *text = mem_printf("{\"allOf\":[{\"anyOf\":[%s]},{\"anyOf\":[true,%s]}]}", list, list);
    (void)state;
    check_refused(GRAMMAR_JSON_SCHEMA, text, -EINVAL, "at most 64 pairs");
    mem_free(text);
    text = mem_printf("{\"anyOf\":[%s]}", list);
    assert_int_equal(run_text(GRAMMAR_JSON_SCHEMA, text, "\"a"), 0);
    mem_free(text);
    mem_free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regexes_that_blow_up_elsewhere_cost_nothing),
        cmocka_unit_test(test_too_many_states_are_an_error_and_not_a_hang),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_schemas_that_multiply_when_merged_are_refused),
        cmocka_unit_test(test_ways_without_text_are_counted_as_work),
        cmocka_unit_test(test_large_texts_are_compiled_or_refused),
        cmocka_unit_test(test_many_choices_are_a_trie),
        cmocka_unit_test(test_many_rules_and_chains),
        cmocka_unit_test(test_schemas_that_multiply_end_at_a_limit),
        cmocka_unit_test(test_wide_alternatives_at_once_end_at_a_limit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
