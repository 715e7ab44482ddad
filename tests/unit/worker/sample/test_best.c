/* test_best.c - the best of a row, against a loop that looks at each value once. */
#include <cmocka.h>
#include <math.h>

#include "proto/base/rng.h"
#include "worker/sample/best.h"

#define COUNT_MAX 3000u

static float row[COUNT_MAX];

static uint32_t naive(uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

/* Few distinct values: ties everywhere, at the borders of lanes and pieces too. */
static void test_best_of_every_length_is_the_first_of_the_largest(void **state)
{
    bool nan = true;
    (void)state;
    for (uint32_t count = 1; count <= COUNT_MAX; count++) {
        uint32_t values = count % 3 == 0 ? 4 : 100000;
        for (uint32_t i = 0; i < count; i++)
            row[i] = (float)((int)(rng_uniform(count, i) * values)) - (float)values / 2;
        assert_int_equal(best_find(row, count, &nan), naive(count));
        assert_false(nan);
    }
}

static void test_best_behind_infinities_and_zeros_is_found(void **state)
{
    bool nan;
    (void)state;
    for (uint32_t i = 0; i < COUNT_MAX; i++)
        row[i] = -INFINITY;
    assert_int_equal(best_find(row, COUNT_MAX, &nan), 0);
    row[2999] = -3e38f;
    assert_int_equal(best_find(row, COUNT_MAX, &nan), 2999);
    row[1500] = -0.0f; /* equal to the zero behind it */
    row[1501] = 0.0f;
    assert_int_equal(best_find(row, COUNT_MAX, &nan), 1500);
    row[2048] = INFINITY;
    assert_int_equal(best_find(row, COUNT_MAX, &nan), 2048);
    assert_false(nan);
}

static void test_nan_anywhere_is_told(void **state)
{
    bool nan;
    (void)state;
    for (uint32_t at = 0; at < 200; at++) {
        for (uint32_t i = 0; i < 200; i++)
            row[i] = (float)i;
        row[at] = NAN;
        (void)best_find(row, 200, &nan);
        assert_true(nan);
        (void)best_find(row, at > 0 ? at : 1, &nan);
        assert_true(nan == (at == 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_of_every_length_is_the_first_of_the_largest),
        cmocka_unit_test(test_best_behind_infinities_and_zeros_is_found),
        cmocka_unit_test(test_nan_anywhere_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
