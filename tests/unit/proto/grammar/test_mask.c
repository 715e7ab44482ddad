/* Masks: every bit is what the matcher says about the token's bytes, in every state that is met;
 * copies, flushes and forgotten masks change nothing. */
#include "tests/unit/proto/grammar/matching.h"

/* Tokens that end inside characters, close several levels at once, or hold several counts. */
static const char *const words[] = {"\"",        "{\"",        "\"}",
                                    "\"}}",      "\":",        "\": ",
                                    "\",",       "\", \"",     "}}",
                                    "}}}}",      "}]}",        "]}",
                                    "],",        "[[",         "[{",
                                    "{}",        "[]",         "true",
                                    "false",     "null",       "nul",
                                    "tr",        "ue",         "12",
                                    "-1",        ".5",         "e1",
                                    "0.",        " ",          "  ",
                                    "\n",        "\n  ",       ",",
                                    ", ",        "a",          "ab",
                                    "abc",       "aaaa",       "aaaaaaaaaaaaaaaa",
                                    "b",         "bb",         "\\",
                                    "\\n",       "\\u00",      "\\u",
                                    "\xc3",      "\xa9",       "\xc3\xa9",
                                    "\xf0\x9f",  "\x98\x80\"", "\xc3\xa9\"}",
                                    "name",      "\"name\"",   "\"age\": ",
                                    "\"a\": 1}", "yes",        "no",
                                    "(1",        "+1)",        ")*(",
                                    "2024-",     "-02-29",     "x}}}}}}}}",
                                    NULL};

static const struct grammar_spec specs[] = {
    {GRAMMAR_JSON_OBJECT, "", 0},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},"
     "\"age\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":120},\"c\":{\"type\":\"array\","
     "\"items\":{\"$ref\":\"#\"},\"maxItems\":30}},\"required\":[\"name\",\"c\"],"
     "\"additionalProperties\":{\"type\":\"number\"}}",
     0},
    {GRAMMAR_REGEX, "(a|b|ab)*b(a|b){20}|(aaaa){3,200}\xc3\xa9+|[^a-z\"]{2,300}", 0},
    {GRAMMAR_CHOICE, "[\"yes\",\"no\",\"abcab\",\"\\u00e9\\ud83d\\ude00\",\"aaaab\"]", 0},
    {GRAMMAR_EBNF, "root ::= t ([-+*/] t)*\nt ::= [0-9]{1,40} | \"(\" root \")\"", 0},
    {GRAMMAR_STRUCTURE,
     "{\"alternatives\":[{\"begin\":\"a\",\"schema\":{\"type\":\"object\",\"properties\":{\"a\":"
     "{}}},\"end\":\"b\"}],\"min\":2,\"max\":9,\"separator\":\"\\n\"}",
     0},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"date\"}", 0},
    {GRAMMAR_TAGS,
     "{\"structures\":[{\"begin\":\"aab\",\"schema\":{\"type\":\"array\"},\"end\":\"b\"},"
     "{\"begin\":\"2024\",\"schema\":{\"type\":\"string\"},\"end\":\"-\"}],"
     "\"triggers\":[\"aa\",\"20\"]}",
     0},
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

static struct grammar *compile_spec(size_t i)
{
    return compiled(specs[i].kind, specs[i].text);
}

static bool bit_of(const uint64_t *bits, uint32_t id)
{
    return (bits[id / 64] >> id % 64 & 1) != 0;
}

/* The mask against the matcher, for all ids. How many are allowed. */
static uint32_t check_mask(struct matching *m, struct grammar_matcher *matcher)
{
    struct grammar_mask mask;
    struct errmsg err = {""};
    uint32_t allowed = 0;

    if (grammar_matcher_mask(matcher, &mask, &err) < 0)
        fail_msg("%s", err.text);
    uint64_t bits[8];
    assert_true(m->vocab->count <= 512);
    memcpy(bits, mask.bits, (m->vocab->count + 63) / 64 * sizeof(*bits));
    assert_int_equal(mask.complete, grammar_matcher_complete(matcher));
    for (uint32_t id = 0; id < m->vocab->count; id++) {
        struct grammar_matcher *copy = grammar_matcher_copy(matcher);
        int r = grammar_matcher_take_token(copy, id);
        grammar_matcher_free(copy);
        if ((r == 0) != bit_of(bits, id))
            fail_msg("token %u: matcher %d, mask %d", id, r, bit_of(bits, id));
        allowed += r == 0;
    }
    assert_int_equal(mask.any, allowed > 0);
    assert_true(allowed > 0 || mask.complete); /* an answer never gets stuck */
    return allowed;
}

/* The n-th allowed token; words are preferred, they are what is interesting. */
static uint32_t pick(struct grammar_matcher *matcher, uint32_t count, uint64_t number)
{
    struct grammar_mask mask;
    uint32_t first_word = 0, seen = 0;

    assert_int_equal(grammar_matcher_mask(matcher, &mask, NULL), 0);
    for (uint32_t id = 257; id < count; id++)
        first_word += bit_of(mask.bits, id);
    uint32_t from = first_word > 0 && number % 4 != 0 ? 257 : 0, total = 0;
    for (uint32_t id = from; id < count; id++)
        total += bit_of(mask.bits, id);
    for (uint32_t id = from; id < count; id++) {
        if (bit_of(mask.bits, id) && seen++ == number / 4 % total)
            return id;
    }
    fail_msg("nothing to pick");
    return 0;
}

static void walk(struct matching *m, size_t spec, uint64_t seed, uint32_t steps)
{
    struct grammar *grammar = compile_spec(spec);
    struct grammar_matcher *matcher = NULL;
    uint64_t random = seed * 0x9e3779b97f4a7c15ull + 1;

    assert_int_equal(grammar_matcher_new(m->machine, grammar, &matcher, NULL), 0);
    grammar_unref(grammar); /* the matcher has its own */
    for (uint32_t i = 0; i < steps && check_mask(m, matcher) > 0; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        uint32_t id = pick(matcher, m->vocab->count, random >> 8);
        assert_int_equal(grammar_matcher_take_token(matcher, id), 0);
    }
    grammar_matcher_free(matcher);
    grammar_machine_check(m->machine);
}

static void test_every_bit_is_what_the_matcher_says(void **state)
{
    struct matching m;
    (void)state;
    matching_init(&m, words);
    for (size_t spec = 0; spec < SPECS; spec++)
        for (uint64_t seed = 0; seed < 12; seed++)
            walk(&m, spec, seed, 60);
    struct grammar_machine_counts counts;
    grammar_machine_counts(m.machine, &counts);
    assert_true(counts.masks_cold_total < counts.masks_total);
    assert_int_equal(counts.matchers, 0);
    matching_done(&m);
}

static void test_control_tokens_are_never_allowed(void **state)
{
    struct matching m;
    struct grammar_matcher *matcher = NULL;
    struct grammar_mask mask;
    (void)state;
    matching_init(&m, NULL);
    struct grammar *grammar = compiled(GRAMMAR_REGEX, "<end>|.*");
    assert_int_equal(grammar_matcher_new(m.machine, grammar, &matcher, NULL), 0);
    assert_int_equal(grammar_matcher_mask(matcher, &mask, NULL), 0);
    assert_true(mask.complete && mask.any && bit_of(mask.bits, '<'));
    assert_false(bit_of(mask.bits, 256));
    assert_int_equal(grammar_matcher_take_token(matcher, 256), -ENOENT);
    grammar_matcher_free(matcher);
    grammar_unref(grammar);
    matching_done(&m);
}

static void test_a_refused_token_leaves_the_matcher_where_it_was(void **state)
{
    struct matching m;
    struct grammar_matcher *matcher = NULL;
    (void)state;
    matching_init(&m, NULL);
    struct grammar *grammar = compiled(GRAMMAR_REGEX, "abc");
    assert_int_equal(grammar_matcher_new(m.machine, grammar, &matcher, NULL), 0);
    assert_int_equal(grammar_matcher_take(matcher, "ab", 2), 0);
    assert_int_equal(grammar_matcher_take(matcher, "cd", 2), -EINVAL);
    assert_int_equal(grammar_matcher_take(matcher, "x", 1), -EINVAL);
    assert_int_equal(grammar_matcher_take(matcher, "c", 1), 0);
    assert_true(grammar_matcher_complete(matcher));
    grammar_matcher_free(matcher);
    grammar_unref(grammar);
    matching_done(&m);
}

/* 4096 states fit: strings of many different lengths inside an array fill them. */
static void test_a_full_memory_is_flushed_and_changes_nothing(void **state)
{
    struct matching m;
    struct grammar_matcher *fixed = NULL, *matcher = NULL;
    struct grammar_machine_counts counts;
    (void)state;
    matching_init(&m, words);
    struct grammar *one = compile_spec(1);
    struct grammar *many = compiled(GRAMMAR_REGEX, "(a|b)*a(a|b){14}c");
    assert_int_equal(grammar_matcher_new(m.machine, one, &fixed, NULL), 0);
    assert_int_equal(grammar_matcher_take(fixed, "{\"name\":\"ab", 11), 0);
    uint64_t random = 88172645463325252ull;
    assert_int_equal(grammar_matcher_new(m.machine, many, &matcher, NULL), 0);
    for (uint32_t i = 0; i < 20000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        assert_int_equal(grammar_matcher_take(matcher, random & 64 ? "a" : "b", 1), 0);
    }
    grammar_machine_counts(m.machine, &counts);
    assert_true(counts.flushes_total > 0);
    grammar_machine_check(m.machine);
    assert_true(check_mask(&m, fixed) > 0);
    assert_int_equal(grammar_matcher_take(fixed, "\",\"c\":[]}", 9), 0);
    assert_true(grammar_matcher_complete(fixed));
    grammar_matcher_free(fixed);
    grammar_matcher_free(matcher);
    grammar_unref(one);
    grammar_unref(many);
    matching_done(&m);
}

static void test_equal_grammars_share_states_after_the_answer_is_gone(void **state)
{
    struct matching m;
    struct grammar_machine_counts first, second;
    (void)state;
    matching_init(&m, words);
    struct grammar *grammar = compile_spec(1);
    for (unsigned i = 0; i < 2; i++) {
        struct grammar_matcher *matcher = NULL;
        struct grammar_mask mask;
        assert_int_equal(grammar_matcher_new(m.machine, grammar, &matcher, NULL), 0);
        assert_int_equal(grammar_matcher_take(matcher, "{\"name\": \"", 10), 0);
        assert_int_equal(grammar_matcher_mask(matcher, &mask, NULL), 0);
        grammar_matcher_free(matcher);
        grammar_machine_counts(m.machine, i == 0 ? &first : &second);
    }
    assert_int_equal(second.states, first.states);
    assert_int_equal(second.masks_cold_total, first.masks_cold_total);
    assert_int_equal(second.masks_total, first.masks_total + 1);
    grammar_unref(grammar);
    matching_done(&m);
}

/* Inside a string all counters and nestings that are far from their limits have one mask. */
static void test_far_counters_and_deep_stacks_share_masks(void **state)
{
    struct matching m;
    struct grammar_matcher *matcher = NULL;
    struct grammar_machine_counts before, after;
    struct grammar_mask mask;
    (void)state;
    matching_init(&m, words);
    struct grammar *grammar =
        compiled(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":100000}");
    assert_int_equal(grammar_matcher_new(m.machine, grammar, &matcher, NULL), 0);
    assert_int_equal(grammar_matcher_take(matcher, "\"a", 2), 0);
    assert_int_equal(grammar_matcher_mask(matcher, &mask, NULL), 0);
    grammar_machine_counts(m.machine, &before);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(grammar_matcher_take(matcher, "b", 1), 0);
        assert_int_equal(grammar_matcher_mask(matcher, &mask, NULL), 0);
    }
    grammar_machine_counts(m.machine, &after);
    assert_int_equal(after.masks_cold_total, before.masks_cold_total);
    grammar_matcher_free(matcher);
    grammar_unref(grammar);
    matching_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit_is_what_the_matcher_says),
        cmocka_unit_test(test_control_tokens_are_never_allowed),
        cmocka_unit_test(test_a_refused_token_leaves_the_matcher_where_it_was),
        cmocka_unit_test(test_a_full_memory_is_flushed_and_changes_nothing),
        cmocka_unit_test(test_equal_grammars_share_states_after_the_answer_is_gone),
        cmocka_unit_test(test_far_counters_and_deep_stacks_share_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
