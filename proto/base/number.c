/* number.c - the shortest text of a double, and strict readers.
 *
 * Shortest by trying 15, 16, 17 digits until the text reads back equal: 0.1 prints as 0.1, and no
 * value changes on a round trip. The readers refuse what strtod and strtoul let through: leading
 * space, hexadecimal, "inf", a trailing rest. Assumes the "C" locale; no program sets another. */
#include "proto/base/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void number_format(double value, char ret_text[NUMBER_TEXT_MAX])
{
    if (isnan(value)) {
        (void)snprintf(ret_text, NUMBER_TEXT_MAX, "NaN");
        return;
    }
    if (isinf(value)) {
        (void)snprintf(ret_text, NUMBER_TEXT_MAX, value > 0 ? "+Inf" : "-Inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(ret_text, NUMBER_TEXT_MAX, "%.*g", digits, value);
        if (strtod(ret_text, NULL) == value)
            return;
    }
}

int number_parse_u64(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (text[0] == '\0')
        return -EINVAL;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return -EINVAL;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return -ERANGE;
    }
    *ret_value = value;
    return 0;
}

int number_parse_double(const char *text, double *ret_value)
{
    char *end;
    double value;

    if (text[0] == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
        return -EINVAL;
    value = strtod(text, &end);
    if (end == text || *end != '\0')
        return -EINVAL;
    if (!isfinite(value))
        return -ERANGE;
    *ret_value = value;
    return 0;
}
