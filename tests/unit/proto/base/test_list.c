/* list.h: order, removal while walking, the empty list. */
#include <cmocka.h>

#include "proto/base/list.h"

struct item {
    int value;
    struct list link;
};

static int sum_in_order(struct list *list) /* 1, 2, 3 -> 123 */
{
    int digits = 0;

    LIST_FOR(at, list)
    {
        digits = 10 * digits + LIST_ENTRY(at, struct item, link)->value;
    }
    return digits;
}

static void test_push_when_at_both_ends_keeps_the_order(void **state)
{
    struct list list;
    struct item items[3] = {{.value = 1}, {.value = 2}, {.value = 3}};

    (void)state;
    list_init(&list);
    assert_true(list_empty(&list));
    list_push_back(&list, &items[1].link);
    list_push_back(&list, &items[2].link);
    list_push_front(&list, &items[0].link);
    assert_int_equal(sum_in_order(&list), 123);
    list_remove(&items[1].link);
    assert_true(list_empty(&items[1].link));
    list_insert_before(&items[0].link, &items[1].link);
    assert_int_equal(sum_in_order(&list), 213);
}

static void test_pop_front_when_empty_gives_null(void **state)
{
    struct list list;
    struct item item = {.value = 1};

    (void)state;
    list_init(&list);
    assert_null(list_pop_front(&list));
    list_push_back(&list, &item.link);
    assert_ptr_equal(list_pop_front(&list), &item.link);
    assert_true(list_empty(&list));
}

static void test_for_safe_when_the_body_removes_visits_each_once(void **state)
{
    struct list list;
    struct item items[5];
    int visits = 0;

    (void)state;
    list_init(&list);
    for (int i = 0; i < 5; i++) {
        items[i].value = i + 1;
        list_push_back(&list, &items[i].link);
    }
    LIST_FOR_SAFE(at, after, &list)
    {
        visits++;
        if (LIST_ENTRY(at, struct item, link)->value % 2 == 0)
            list_remove(at);
    }
    assert_int_equal(visits, 5);
    assert_int_equal(sum_in_order(&list), 135);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push_when_at_both_ends_keeps_the_order),
        cmocka_unit_test(test_pop_front_when_empty_gives_null),
        cmocka_unit_test(test_for_safe_when_the_body_removes_visits_each_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
