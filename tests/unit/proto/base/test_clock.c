/* clock.c: units agree with each other and with time(2). */
#include <cmocka.h>

#include <time.h>

#include "proto/base/clock.h"

static void test_monotonic_when_read_again_never_goes_back(void **state)
{
    uint64_t last_ns = clock_ns();

    (void)state;
    for (int i = 0; i < 10000; i++) {
        uint64_t now_ns = clock_ns();

        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
}

static void test_monotonic_when_asked_in_ms_is_a_millionth_of_ns(void **state)
{
    uint64_t before_ns = clock_ns();
    uint64_t now_ms = clock_ms();
    uint64_t after_ns = clock_ns();

    (void)state;
    assert_in_range(now_ms, before_ns / 1000000, after_ns / 1000000);
}

static void test_unix_when_asked_both_ways_agrees_with_time(void **state)
{
    uint64_t before_s = (uint64_t)time(NULL);
    uint64_t now_s = clock_unix_s();
    double now = clock_unix();
    uint64_t after_s = (uint64_t)time(NULL);

    (void)state;
    assert_in_range(now_s, before_s, after_s);
    assert_true(now >= (double)before_s && now < (double)after_s + 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic_when_read_again_never_goes_back),
        cmocka_unit_test(test_monotonic_when_asked_in_ms_is_a_millionth_of_ns),
        cmocka_unit_test(test_unix_when_asked_both_ways_agrees_with_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
