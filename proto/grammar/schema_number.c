/* schema_number.c - numbers between two limits, digit by digit.
 *
 * A limit is a decimal: whole part and up to 18 digits behind the point. With limits, numbers are
 * written without an exponent. Whole parts of one length lie in a range of digit strings, which is
 * cut as charset.c cuts UTF-8: where all later digits are free, nodes are shared. What is behind
 * the point is compared digit by digit with the limits that the digits before it equal.
 * Cost: some 20 nodes for each digit of the limits. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/grammar/schema.h"

#define WHOLE_MAX 999999999999999999ull /* JSON_DIGITS_MAX nines */

/* A magnitude. `open`: itself not in. */
struct limit {
    uint64_t whole;
    char digits[JSON_DIGITS_MAX + 1]; /* behind the point, no zeros at the end */
    bool open;
};

struct range {
    struct schema *schema;
    bool integer;
    uint32_t to;
};

/* ---- whole parts ---- */

static uint32_t free_digits(struct range *range, uint32_t count, uint32_t to)
{
    uint32_t from = count == 0 ? to : graph_node(range->schema->graph);

    json_text_digits(&range->schema->text, from, count, count, to);
    return from;
}

/* lo..hi of as many digits as `unit` (1, 10, 100...) has. */
static void emit_digits(struct range *range, uint32_t from, uint64_t lo, uint64_t hi, uint64_t unit,
                        uint32_t places, uint32_t to)
{
    struct graph *graph = range->schema->graph;
    uint8_t first = (uint8_t)('0' + lo / unit), last = (uint8_t)('0' + hi / unit);

    if (lo % unit == 0 && hi % unit == unit - 1) {
        graph_add_bytes(graph, from, first, last, free_digits(range, places, to));
    } else if (first == last) {
        uint32_t next = graph_node(graph);
        graph_add_bytes(graph, from, first, first, next);
        emit_digits(range, next, lo % unit, hi % unit, unit / 10, places - 1, to);
    } else if (lo % unit != 0) {
        uint64_t end = lo - lo % unit + unit - 1;
        emit_digits(range, from, lo, end, unit, places, to);
        emit_digits(range, from, end + 1, hi, unit, places, to);
    } else {
        uint64_t begin = hi - hi % unit;
        emit_digits(range, from, lo, begin - 1, unit, places, to);
        emit_digits(range, from, begin, hi, unit, places, to);
    }
}

static void emit_whole(struct range *range, uint32_t from, uint64_t lo, uint64_t hi, uint32_t to)
{
    uint64_t unit = 1;

    for (uint32_t places = 0; places < JSON_DIGITS_MAX; places++, unit *= 10) {
        uint64_t least = places == 0 ? 0 : unit, most = unit * 9 + (unit - 1);
        uint64_t begin = lo > least ? lo : least, end = hi < most ? hi : most;
        if (begin <= end)
            emit_digits(range, from, begin, end, unit, places, to);
    }
}

/* ---- behind the point ---- */

static bool is_zeros(const char *digits)
{
    return digits[strspn(digits, "0")] == '\0';
}

static const char *rest_of(const char *digits)
{
    return digits && digits[0] ? digits + 1 : digits;
}

/* From here the number may stop, or go on with digits: more than `lo` (equal when not open) and
 * less than `hi`; NULL: no limit on that side. `place` digits are written. */
static void emit_behind(struct range *range, const struct limit *low, const char *lo,
                        const struct limit *high, const char *hi, uint32_t place, uint32_t from)
{
    struct graph *graph = range->schema->graph;
    bool stop = (!lo || (is_zeros(lo) && !low->open)) && (!hi || !is_zeros(hi) || !high->open);

    if (!lo && !hi) {
        if (place == 0) {
            uint32_t point = graph_node(graph);
            graph_add_empty(graph, from, range->to);
            graph_add_bytes(graph, from, '.', '.', point);
            json_text_digits(&range->schema->text, point, 1, JSON_DIGITS_MAX, range->to);
        } else {
            json_text_digits(&range->schema->text, from, 0, JSON_DIGITS_MAX - place, range->to);
        }
        return;
    }
    if (stop)
        graph_add_empty(graph, from, range->to);
    if (place == JSON_DIGITS_MAX)
        return;
    if (place == 0) {
        uint32_t point = graph_node(graph);
        graph_add_bytes(graph, from, '.', '.', point);
        from = point;
    }
    for (char digit = '0'; digit <= '9' && !graph->failed; digit++) {
        char least = lo && lo[0] ? lo[0] : '0', most = hi ? (hi[0] ? hi[0] : '0') : '9';
        if (digit < least || digit > most)
            continue;
        uint32_t next = graph_node(graph);
        graph_add_bytes(graph, from, (uint8_t)digit, (uint8_t)digit, next);
        emit_behind(range, low, lo && digit == least ? rest_of(lo) : NULL, high,
                    hi && digit == most ? rest_of(hi) : NULL, place + 1, next);
    }
}

/* ---- magnitudes ---- */

static void emit_at(struct range *range, uint32_t from, uint64_t whole, const struct limit *low,
                    const struct limit *high)
{
    uint32_t node = graph_node(range->schema->graph);

    emit_whole(range, from, whole, whole, node);
    emit_behind(range, low, low ? low->digits : NULL, high, high ? high->digits : NULL, 0, node);
}

static void emit_magnitudes(struct range *range, uint32_t from, const struct limit *low,
                            const struct limit *high)
{
    if (range->integer) {
        bool up = low->digits[0] != '\0' || low->open;
        bool down = high->digits[0] == '\0' && high->open;
        if (down && high->whole == 0)
            return;
        emit_whole(range, from, low->whole + up, high->whole - down, range->to);
        return;
    }
    if (low->whole == high->whole) {
        emit_at(range, from, low->whole, low, high);
        return;
    }
    if (low->whole > high->whole)
        return;
    emit_at(range, from, low->whole, low, NULL);
    emit_at(range, from, high->whole, NULL, high);
    if (high->whole - low->whole > 1) {
        uint32_t node = graph_node(range->schema->graph);
        emit_whole(range, from, low->whole + 1, high->whole - 1, node);
        emit_behind(range, NULL, NULL, NULL, NULL, 0, node);
    }
}

/* ---- limits of the schema ---- */

/* |value| as it is written, in full: the shortest decimal that is this double. */
static bool limit_of(const json_t *value, bool open, struct limit *ret)
{
    char text[64];
    double number = json_number_value(value);

    *ret = (struct limit){.open = open};
    if (json_is_integer(value)) {
        json_int_t whole = json_integer_value(value);
        ret->whole = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
        return ret->whole <= WHOLE_MAX;
    }
    if (!(fabs(number) < 1e15))
        return false;
    for (int digits = 0; digits <= (int)JSON_DIGITS_MAX; digits++) {
        (void)snprintf(text, sizeof(text), "%.*f", digits, fabs(number));
        if (strtod(text, NULL) != fabs(number))
            continue;
        char *point = NULL;
        ret->whole = strtoull(text, &point, 10);
        if (*point == '.')
            (void)snprintf(ret->digits, sizeof(ret->digits), "%s", point + 1);
        return true;
    }
    return false; /* smaller than the last digit */
}

struct limits {
    bool has_low, has_high;
    bool low_negative, high_negative;
    struct limit low, high; /* magnitudes */
};

static bool take_limit(struct schema *schema, const json_t *node, const char *word,
                       const char *open_word, bool *ret_has, bool *ret_negative, struct limit *ret)
{
    const json_t *value = json_object_get(node, word), *open = json_object_get(node, open_word);
    bool is_open = json_is_true(open); /* draft 4 */

    if (open && !json_is_boolean(open)) {
        bool low = word[1] == 'i'; /* minimum */
        double a = json_number_value(value), b = json_number_value(open);
        if (!value || (low ? b >= a : b <= a)) {
            value = open;
            is_open = true;
        }
    }
    if (!value)
        return true;
    if (!json_is_number(value)) {
        schema_fail(schema, "'%s' and '%s' must be numbers", word, open_word);
        return false;
    }
    if (!limit_of(value, is_open, ret)) {
        if (fabs(json_number_value(value)) > 1 &&
            (json_number_value(value) < 0) == (word[1] == 'i'))
            return true; /* further than any number that is written */
        schema_fail(schema,
                    "'%s' is out of the numbers that can be written: %u digits before and "
                    "behind the point",
                    word, JSON_DIGITS_MAX);
        return false;
    }
    *ret_has = true;
    *ret_negative = json_number_value(value) < 0;
    return true;
}

static void emit_limited(struct range *range, const struct limits *limits, uint32_t from)
{
    static const struct limit zero = {.whole = 0};
    struct limit most = {.whole = WHOLE_MAX};
    struct graph *graph = range->schema->graph;
    bool any_low = !limits->has_low, any_high = !limits->has_high;

    if (any_high || !limits->high_negative)
        emit_magnitudes(range, from, any_low || limits->low_negative ? &zero : &limits->low,
                        any_high ? &most : &limits->high);
    if (any_low || limits->low_negative) {
        uint32_t minus = graph_node(graph);
        graph_add_bytes(graph, from, '-', '-', minus);
        emit_magnitudes(range, minus, any_high || !limits->high_negative ? &zero : &limits->high,
                        any_low ? &most : &limits->low);
    }
}

static void check_multiple(struct schema *schema, const json_t *node, bool integer)
{
    const json_t *multiple = json_object_get(node, "multipleOf");

    if (multiple && !(integer && json_number_value(multiple) == 1))
        schema_fail(schema, "'multipleOf' is not supported");
}

void schema_number(struct schema *schema, const json_t *node, bool integer, uint32_t from,
                   uint32_t to)
{
    struct range range = {schema, integer, to};
    struct limits limits = {0};

    check_multiple(schema, node, integer);
    if (!take_limit(schema, node, "minimum", "exclusiveMinimum", &limits.has_low,
                    &limits.low_negative, &limits.low) ||
        !take_limit(schema, node, "maximum", "exclusiveMaximum", &limits.has_high,
                    &limits.high_negative, &limits.high))
        return;
    if (limits.has_low || limits.has_high)
        emit_limited(&range, &limits, from);
    else
        json_text_call(&schema->text, from, integer ? JSON_RULE_INTEGER : JSON_RULE_NUMBER, to);
}
