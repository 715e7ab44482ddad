/* The store of compiled grammars: one per text, bounded, those in use stay. */
#include "proto/grammar/store.h"
#include "tests/unit/proto/grammar/matching.h"

static int get(struct grammar_store *store, const char *regex, struct grammar **ret_grammar)
{
    const struct grammar_spec spec = {GRAMMAR_REGEX, regex, strlen(regex)};
    struct errmsg err = {""};
    int r = grammar_store_get(store, &spec, ret_grammar, &err);
    assert_true(r == 0 || err.text[0] != '\0');
    return r;
}

static void test_equal_texts_are_compiled_once(void **state)
{
    struct grammar_store *store = grammar_store_new(1 << 20);
    struct grammar *a = NULL, *b = NULL, *c = NULL;
    const struct grammar_spec choice = {GRAMMAR_CHOICE, "[\"a\"]", 5};
    (void)state;
    assert_int_equal(get(store, "[\"a\"]", &a), 0);
    assert_int_equal(get(store, "[\"a\"]", &b), 0);
    assert_int_equal(grammar_store_get(store, &choice, &c, NULL), 0);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c); /* the kind counts */
    const struct grammar_spec none = {(enum grammar_kind)(256 + GRAMMAR_CHOICE), "[\"a\"]", 5};
    struct grammar *unknown = NULL;
    struct errmsg err;
    assert_int_equal(grammar_store_get(store, &none, &unknown, &err), -EINVAL); /* all of it */
    grammar_unref(a);
    grammar_unref(b);
    grammar_unref(c);
    grammar_store_free(store);
}

static void test_what_was_compiled_elsewhere_is_put_and_found(void **state)
{
    struct grammar_store *store = grammar_store_new(16 << 10);
    const struct grammar_spec spec = {GRAMMAR_REGEX, "ab", 2},
                              long_one = {GRAMMAR_REGEX, "[ab]", 4};
    struct grammar *ours = NULL, *again = NULL;
    (void)state;
    assert_null(grammar_store_find(store, &spec));
    assert_int_equal(grammar_compile(&spec, &ours, NULL), 0);
    grammar_store_put(store, &spec, ours);
    size_t bytes = grammar_store_bytes(store);
    assert_true(bytes > 0);
    grammar_store_put(store, &spec, ours); /* is there */
    assert_int_equal(grammar_store_bytes(store), bytes);
    again = grammar_store_find(store, &spec);
    assert_ptr_equal(again, ours);
    assert_null(grammar_store_find(store, &long_one));
    grammar_unref(again);
    grammar_store_free(store);
    assert_true(grammar_bytes(ours) > 0); /* the store's reference only */
    store = grammar_store_new(1);
    grammar_store_put(store, &spec, ours); /* no room: not kept */
    assert_null(grammar_store_find(store, &spec));
    grammar_unref(ours);
    grammar_store_free(store);
}

static void test_refused_texts_are_not_kept(void **state)
{
    struct grammar_store *store = grammar_store_new(1 << 20);
    struct grammar *grammar = NULL;
    (void)state;
    assert_int_equal(get(store, "a(", &grammar), -EINVAL);
    assert_null(grammar);
    assert_int_equal(grammar_store_bytes(store), 0);
    grammar_store_free(store);
}

static void test_the_least_recently_used_goes_unless_it_is_in_use(void **state)
{
    struct grammar_store *store = grammar_store_new(64 << 10);
    struct grammar *held = NULL, *again = NULL, *grammar = NULL;
    char regex[32];
    (void)state;
    assert_int_equal(get(store, "held", &held), 0);
    for (unsigned i = 0; i < 200; i++) {
        (void)snprintf(regex, sizeof(regex), "one of many %u", i);
        assert_int_equal(get(store, regex, &grammar), 0);
        assert_true(grammar_store_bytes(store) <= 64 << 10);
        grammar_unref(grammar);
    }
    assert_int_equal(get(store, "held", &again), 0);
    assert_ptr_equal(held, again);
    grammar_unref(held);
    grammar_unref(again);
    grammar_store_free(store);
}

static void test_grammars_in_use_can_fill_it(void **state)
{
    struct grammar_store *store = grammar_store_new(16 << 10);
    struct grammar *held[64] = {NULL};
    char regex[32];
    unsigned count = 0;
    int r = 0;
    (void)state;
    for (; r == 0 && count < 64; count++) {
        (void)snprintf(regex, sizeof(regex), "one of many %u", count);
        r = get(store, regex, &held[count]);
    }
    assert_int_equal(r, -ENOSPC);
    assert_true(count > 2);
    grammar_unref(held[0]);
    held[0] = NULL;
    assert_int_equal(get(store, "one more text", &held[0]), 0);
    for (unsigned i = 0; i < count; i++)
        grammar_unref(held[i]);
    grammar_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_texts_are_compiled_once),
        cmocka_unit_test(test_what_was_compiled_elsewhere_is_put_and_found),
        cmocka_unit_test(test_refused_texts_are_not_kept),
        cmocka_unit_test(test_the_least_recently_used_goes_unless_it_is_in_use),
        cmocka_unit_test(test_grammars_in_use_can_fill_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
