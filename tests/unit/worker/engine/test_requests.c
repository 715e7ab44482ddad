/* test_requests.c - who asked for what; ids are unique per router only. */
#include <cmocka.h>
#include <string.h>

#include "worker/engine/requests.h"

static void test_ids_are_kept_apart_by_router(void **state)
{
    struct requests *requests = requests_new(3);
    (void)state;
    struct request *a = requests_add(requests, 1, "x"), *b = requests_add(requests, 2, "x");
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(requests_find(requests, 1, "x"), a);
    assert_ptr_equal(requests_find(requests, 2, "x"), b);
    assert_null(requests_find(requests, 3, "x"));
    assert_null(requests_find(requests, 1, "xx"));
    requests_remove(requests, a);
    assert_null(requests_find(requests, 1, "x"));
    assert_ptr_equal(requests_find(requests, 2, "x"), b);
    requests_free(requests);
}

static void test_a_full_pool_refuses_until_one_ends(void **state)
{
    struct requests *requests = requests_new(2);
    uint32_t count = 0;
    (void)state;
    struct request *a = requests_add(requests, 1, "a");
    assert_non_null(requests_add(requests, 1, "b"));
    assert_null(requests_add(requests, 1, "c"));
    requests_remove(requests, a);
    assert_non_null(requests_add(requests, 1, "c"));
    for (const struct list *at = requests_all(requests)->next; at != requests_all(requests);
         at = at->next)
        count++;
    assert_int_equal(count, 2);
    requests_free(requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_are_kept_apart_by_router),
        cmocka_unit_test(test_a_full_pool_refuses_until_one_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
