/* text_store.c: what is found, what goes first, what is never more than the budget. */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "router/text/text_store.h"

#define BUDGET 65536u

static struct text_key key_of(uint64_t hash)
{
    return (struct text_key){.owner = 1, .context = 2, .hash = hash, .kind = 3};
}

static bool has(struct text_store *store, uint64_t hash, const char *text)
{
    const struct text_key key = key_of(hash);
    size_t count = 0;
    const uint32_t *ids = text_store_get(store, &key, text, strlen(text), &count);
    if (ids) {
        assert_int_equal(count, 2);
        assert_int_equal(ids[0], (uint32_t)hash);
        assert_int_equal(ids[1], strlen(text));
    }
    return ids != NULL;
}

static void put(struct text_store *store, uint64_t hash, const char *text)
{
    const struct text_key key = key_of(hash);
    const uint32_t ids[2] = {(uint32_t)hash, (uint32_t)strlen(text)};
    text_store_put(store, &key, text, strlen(text), ids, 2);
    text_store_check(store);
}

static void test_all_of_the_key_and_the_text_must_be_equal(void **state)
{
    struct text_store *store = text_store_new(BUDGET);
    const uint32_t id = 9;
    size_t count = 0;
    (void)state;
    put(store, 7, "text");
    assert_true(has(store, 7, "text"));
    assert_false(has(store, 7, "texT")); /* the same hash: no hit, and no other's ids */
    assert_false(has(store, 7, "tex"));
    assert_false(has(store, 8, "text"));
    for (int field = 0; field < 3; field++) {
        struct text_key key = key_of(7);
        *(field == 0 ? &key.owner : field == 1 ? &key.context : &key.hash) += 1;
        assert_null(text_store_get(store, &key, "text", 4, &count));
    }
    struct text_key key = key_of(7);
    key.kind++;
    assert_null(text_store_get(store, &key, "text", 4, &count));
    text_store_put(store, &key, "text", 4, &id, 1); /* beside the other one */
    assert_int_equal(text_store_get(store, &key, "text", 4, &count)[0], 9);
    assert_int_equal(count, 1);
    assert_true(has(store, 7, "text"));
    assert_int_equal(text_store_entries(store), 2);
    text_store_check(store);
    text_store_free(store);
}

static void test_what_is_there_stays_as_it_is(void **state)
{
    struct text_store *store = text_store_new(BUDGET);
    const struct text_key key = key_of(7);
    const uint32_t other[2] = {1, 1};
    (void)state;
    put(store, 7, "text");
    text_store_put(store, &key, "text", 4, other, 2);
    assert_true(has(store, 7, "text"));
    assert_int_equal(text_store_entries(store), 1);
    text_store_free(store);
}

static void test_the_one_used_least_recently_goes_first(void **state)
{
    struct text_store *store = text_store_new(BUDGET);
    char text[1001];
    uint64_t last = 0;
    (void)state;
    memset(text, 'x', 1000);
    text[1000] = '\0';
    put(store, 1, text);
    put(store, 2, text);
    put(store, 3, text);
    size_t each = (text_store_bytes(store) - text_store_bytes(store) % 3) / 3;
    assert_in_range(each, 1000, 1400); /* text, two ids, node, a share of the table */
    assert_true(has(store, 1, text));  /* used: 2 is the oldest now */
    for (last = 4; text_store_evictions(store) == 0; last++)
        put(store, last, text);
    assert_true(has(store, 1, text));
    assert_false(has(store, 2, text));
    assert_true(has(store, 3, text));
    put(store, last, text);
    assert_int_equal(text_store_evictions(store), 2);
    assert_false(has(store, 4, text)); /* 1 and 3 were used again */
    assert_true(text_store_bytes(store) <= BUDGET);
    text_store_free(store);
}

static void test_an_entry_of_more_than_a_quarter_is_not_kept(void **state)
{
    static char text[BUDGET / 4];
    struct text_store *store = text_store_new(BUDGET);
    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    put(store, 1, text);
    assert_int_equal(text_store_entries(store), 0);
    text[BUDGET / 4 - 200] = '\0';
    put(store, 1, text);
    assert_int_equal(text_store_entries(store), 1);
    text_store_free(store);
}

static void test_the_budget_holds_whatever_comes(void **state)
{
    struct text_store *store = text_store_new(BUDGET);
    static char text[2000];
    uint64_t dice = 1;
    size_t kept = 0;
    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407u;
        size_t bytes = (dice >> 40) % sizeof(text);
        memset(text, 'a' + (int)(i % 26), bytes);
        text[bytes] = '\0';
        const struct text_key key = key_of(i);
        text_store_put(store, &key, text, bytes, NULL, 0);
        assert_true(text_store_bytes(store) <= BUDGET);
        if (i % 100 == 0)
            text_store_check(store);
    }
    kept = text_store_entries(store);
    assert_in_range(kept, 20, 5000);
    assert_int_equal(text_store_evictions(store), 5000 - kept);
    text_store_check(store);
    text_store_free(store);
}

static void test_a_budget_without_room_for_the_table_holds_nothing(void **state)
{
    const size_t budgets[] = {0, 1, 600, 1000};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct text_store *store = text_store_new(budgets[i]);
        put(store, 1, "text");
        assert_false(has(store, 1, "text"));
        assert_int_equal(text_store_bytes(store), 0);
        text_store_free(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_the_key_and_the_text_must_be_equal),
        cmocka_unit_test(test_what_is_there_stays_as_it_is),
        cmocka_unit_test(test_the_one_used_least_recently_goes_first),
        cmocka_unit_test(test_an_entry_of_more_than_a_quarter_is_not_kept),
        cmocka_unit_test(test_the_budget_holds_whatever_comes),
        cmocka_unit_test(test_a_budget_without_room_for_the_table_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
