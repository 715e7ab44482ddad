/* test_ticket.c - charges appear and cancel exactly. */
#include <cmocka.h>

#include "router/route/ticket.h"

static void test_load_when_tickets_come_and_go_then_sums_are_exact(void **state)
{
    struct ticket_load load;
    (void)state;

    ticket_load_init(&load);
    struct ticket *a = ticket_new(&load, 0.1, 7);
    struct ticket *b = ticket_new(&load, 0.7, 5);
    assert_int_equal(load.count, 2);
    assert_int_equal(load.queued_ns, 800000000);
    assert_int_equal(load.queued_blocks, 12);
    ticket_first_token(a);
    ticket_first_token(a);
    assert_int_equal(load.queued_ns, 700000000);
    assert_int_equal(load.count, 2);
    ticket_load_check(&load);
    ticket_release(b); /* never got a first token */
    ticket_load_check(&load);
    ticket_release(a);
    assert_int_equal(load.count, 0);
    assert_int_equal(load.queued_ns, 0);
    assert_int_equal(load.queued_blocks, 0);
    ticket_load_check(&load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_when_tickets_come_and_go_then_sums_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
