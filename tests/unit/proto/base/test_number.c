/* number.c: shortest texts that read back, and what the readers refuse. */
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/number.h"
#include "proto/base/rng.h"

static const char *format(double value)
{
    static char text[NUMBER_TEXT_MAX];

    number_format(value, text);
    return text;
}

static void test_format_when_short_is_enough_prints_short(void **state)
{
    (void)state;
    assert_string_equal(format(0), "0");
    assert_string_equal(format(42), "42");
    assert_string_equal(format(-3), "-3");
    assert_string_equal(format(0.1), "0.1");
    assert_string_equal(format(0.005), "0.005");
    assert_string_equal(format(1.0 / 3), "0.3333333333333333");
    assert_string_equal(format(123456789012345), "123456789012345");
    assert_string_equal(format(1e300), "1e+300");
    assert_string_equal(format(0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(format(INFINITY), "+Inf");
    assert_string_equal(format(-INFINITY), "-Inf");
    assert_string_equal(format(NAN), "NaN");
}

static void test_format_when_bits_are_random_reads_back_equal(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        uint64_t bits;
        double value;

        rng_system(&bits, sizeof(bits));
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value))
            continue;
        assert_true(strlen(format(value)) < NUMBER_TEXT_MAX);
        assert_true(strtod(format(value), NULL) == value);
    }
}

static void test_parse_u64_when_not_plain_digits_refuses(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "0x10", "1.0", "1e3", "ten"};
    uint64_t value = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(number_parse_u64(bad[i], &value), -EINVAL);
    assert_int_equal(number_parse_u64("18446744073709551616", &value), -ERANGE);
    assert_int_equal(number_parse_u64("99999999999999999999999999x", &value), -EINVAL);
    assert_int_equal(value, 7);
    assert_int_equal(number_parse_u64("18446744073709551615", &value), 0);
    assert_true(value == UINT64_MAX);
    assert_int_equal(number_parse_u64("007", &value), 0);
    assert_int_equal(value, 7);
}

static void test_parse_double_when_not_a_finite_decimal_refuses(void **state)
{
    static const char *const bad[] = {"",   " 1",    "1 ",  "inf", "nan", "0x1p3",
                                      "1e", "1.2.3", "--1", ".",   "1,5"};
    double value = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(number_parse_double(bad[i], &value), -EINVAL);
    assert_int_equal(number_parse_double("1e999", &value), -ERANGE);
    assert_true(value == 7);
    assert_int_equal(number_parse_double("-2.5e-1", &value), 0);
    assert_true(value == -0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format_when_short_is_enough_prints_short),
        cmocka_unit_test(test_format_when_bits_are_random_reads_back_equal),
        cmocka_unit_test(test_parse_u64_when_not_plain_digits_refuses),
        cmocka_unit_test(test_parse_double_when_not_a_finite_decimal_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
