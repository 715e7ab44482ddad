/* settings_value.c - one value of a settings table: from text to the field and back.
 *
 * Strict on purpose: "10k", "0x10", " 5" or "1.5" for a count are mistakes that must not become
 * another number. The field is written only after all checks. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/number.h"
#include "proto/base/settings_private.h"

struct byte_unit {
    const char *name;
    uint64_t bytes;
};

/* Largest binary unit first: setting_append() takes the first that divides. */
static const struct byte_unit byte_units[] = {
    {"TiB", (uint64_t)1 << 40},
    {"GiB", (uint64_t)1 << 30},
    {"MiB", (uint64_t)1 << 20},
    {"KiB", (uint64_t)1 << 10},
    {"B", 1},
    {"T", (uint64_t)1 << 40},
    {"G", (uint64_t)1 << 30},
    {"M", (uint64_t)1 << 20},
    {"K", (uint64_t)1 << 10},
    {"TB", 1000000000000u},
    {"GB", 1000000000u},
    {"MB", 1000000u},
    {"KB", 1000u},
};
#define BYTE_UNITS (sizeof(byte_units) / sizeof(byte_units[0]))
#define BYTE_UNITS_EXACT 5u /* TiB ... B */

#define BARE_GIB_BELOW 1024u /* vLLM's users write --swap-space 4 and mean GiB */

static int find_unit(const char *name, uint64_t *ret_unit)
{
    for (size_t i = 0; i < BYTE_UNITS; i++) {
        if (strcasecmp(name, byte_units[i].name) == 0) {
            *ret_unit = byte_units[i].bytes;
            return 0;
        }
    }
    return -EINVAL;
}

int settings_parse_bytes(const char *text, uint64_t *ret_bytes)
{
    size_t whole_digits = strspn(text, "0123456789");
    const char *at = text + whole_digits;
    char digits[24];
    uint64_t whole;
    uint64_t unit = 1;
    double fraction = 0;
    bool has_point = *at == '.';

    if (whole_digits == 0 || whole_digits >= sizeof(digits))
        return -EINVAL;
    memcpy(digits, text, whole_digits);
    digits[whole_digits] = '\0';
    if (number_parse_u64(digits, &whole) < 0)
        return -EINVAL;
    if (has_point) {
        double scale = 0.1;

        at++;
        if (*at < '0' || *at > '9')
            return -EINVAL;
        for (; *at >= '0' && *at <= '9'; at++, scale /= 10)
            fraction += scale * (*at - '0');
    }
    if (*at == ' ')
        at++;
    if (*at != '\0') {
        if (find_unit(at, &unit) < 0)
            return -EINVAL;
    } else if (at[-1] == ' ') {
        return -EINVAL;
    } else if (has_point || whole < BARE_GIB_BELOW) {
        unit = (uint64_t)1 << 30;
    }
    /* A fraction is below one unit, so its product fits; the sum may not. */
    if (__builtin_mul_overflow(whole, unit, &whole) ||
        __builtin_add_overflow(whole, (uint64_t)llround(fraction * (double)unit), &whole))
        return -EINVAL;
    *ret_bytes = whole;
    return 0;
}

bool setting_names_equal(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
            return false;
    }
    return *a == *b;
}

static int check_range(const struct setting *row, double value, const char *text,
                       struct errmsg *err)
{
    char min[NUMBER_TEXT_MAX];
    char max[NUMBER_TEXT_MAX];

    if (row->min == 0 && row->max == 0)
        return 0; /* the row has no range */
    if (value >= row->min && value <= row->max)
        return 0;
    number_format(row->min, min);
    number_format(row->max, max);
    return errmsg_set(err, -EINVAL, "%.64s is not between %s and %s", text, min, max);
}

static int assign_whole(const struct setting *row, void *field, const char *text,
                        struct errmsg *err)
{
    uint64_t value;
    int r = number_parse_u64(text, &value);

    if (r == 0 && row->type == SETTING_TYPE_U32 && value > UINT32_MAX)
        r = -ERANGE;
    if (r == -ERANGE)
        return errmsg_set(err, -EINVAL, "%.64s is too large", text);
    if (r < 0)
        return errmsg_set(err, -EINVAL, "'%.64s' is not a whole number", text);
    r = check_range(row, (double)value, text, err);
    if (r < 0)
        return r;
    if (row->type == SETTING_TYPE_U32)
        *(uint32_t *)field = (uint32_t)value;
    else
        *(uint64_t *)field = value;
    return 0;
}

static int assign_double(const struct setting *row, double *field, const char *text,
                         struct errmsg *err)
{
    double value;
    int r;

    if (number_parse_double(text, &value) < 0)
        return errmsg_set(err, -EINVAL, "'%.64s' is not a number", text);
    r = check_range(row, value, text, err);
    if (r < 0)
        return r;
    *field = value;
    return 0;
}

static int assign_bool(bool *field, const char *text, struct errmsg *err)
{
    static const char *const words[] = {"false", "true", "off", "on", "no", "yes", "0", "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *field = i % 2 != 0;
            return 0;
        }
    }
    return errmsg_set(err, -EINVAL, "'%.64s' is neither true nor false", text);
}

static int assign_enum(const struct setting *row, int *field, const char *text, struct errmsg *err)
{
    char choices[256] = "";
    size_t bytes = 0;

    for (int i = 0; row->names[i] != NULL; i++) {
        if (setting_names_equal(text, row->names[i])) {
            *field = i;
            return 0;
        }
        if (bytes < sizeof(choices))
            bytes += (size_t)snprintf(choices + bytes, sizeof(choices) - bytes, "%s%s",
                                      i > 0 ? ", " : "", row->names[i]);
    }
    return errmsg_set(err, -EINVAL, "'%.64s' is none of: %s", text, choices);
}

int setting_assign(const struct setting *row, void *out, const char *value, struct errmsg *err)
{
    void *field = (char *)out + row->offset;
    char *copy;

    switch (row->type) {
    case SETTING_TYPE_TEXT:
        copy = mem_strdup(value); /* first: `value` may be the old text */
        mem_free(*(char **)field);
        *(char **)field = copy;
        return 0;
    case SETTING_TYPE_U32:
    case SETTING_TYPE_U64:
        return assign_whole(row, field, value, err);
    case SETTING_TYPE_DOUBLE:
        return assign_double(row, field, value, err);
    case SETTING_TYPE_BOOL:
        return assign_bool(field, value, err);
    case SETTING_TYPE_BYTES:
        if (settings_parse_bytes(value, field) < 0)
            return errmsg_set(err, -EINVAL, "'%.64s' is not a size such as 512MiB or 1.5GiB",
                              value);
        return 0;
    case SETTING_TYPE_ENUM:
        return assign_enum(row, field, value, err);
    case SETTING_TYPE_END:
        break;
    }
    ASSERT(!"a row of unknown type");
    return -EINVAL;
}

static void append_bytes(uint64_t bytes, struct buffer *out)
{
    for (size_t i = 0; i < BYTE_UNITS_EXACT; i++) {
        uint64_t unit = byte_units[i].bytes;

        if (bytes % unit == 0 && (bytes >= unit || unit == 1)) {
            buffer_printf(out, "%llu%s", (unsigned long long)(bytes / unit), byte_units[i].name);
            return;
        }
    }
}

void setting_append(const struct setting *row, const void *settings, struct buffer *out)
{
    const void *field = (const char *)settings + row->offset;
    char text[NUMBER_TEXT_MAX];

    switch (row->type) {
    case SETTING_TYPE_TEXT:
        if (*(char *const *)field != NULL)
            buffer_append_text(out, *(char *const *)field);
        break;
    case SETTING_TYPE_U32:
        buffer_printf(out, "%u", *(const uint32_t *)field);
        break;
    case SETTING_TYPE_U64:
        buffer_printf(out, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case SETTING_TYPE_DOUBLE:
        number_format(*(const double *)field, text);
        buffer_append_text(out, text);
        break;
    case SETTING_TYPE_BOOL:
        buffer_append_text(out, *(const bool *)field ? "true" : "false");
        break;
    case SETTING_TYPE_BYTES:
        append_bytes(*(const uint64_t *)field, out);
        break;
    case SETTING_TYPE_ENUM:
        buffer_append_text(out, row->names[*(const int *)field]);
        break;
    case SETTING_TYPE_END:
        break;
    }
}
