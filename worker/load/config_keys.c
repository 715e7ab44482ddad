/* config_keys.c - one look-up for numbers of both formats. */
#include "worker/load/config_keys.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KEY_MAX 128

void config_fail(struct config_keys *keys, int code, const char *format, ...)
{
    char text[ERRMSG_MAX];
    va_list args;
    if (keys->result < 0)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    keys->result = errmsg_set(keys->err, code, "%s", text);
}

/* The i-th of the names in "a|b"; false past the last. */
static bool alternative(const char *names, unsigned i, char *ret_name)
{
    for (; i > 0 && names != NULL; i--) {
        names = strchr(names, '|');
        names = names == NULL ? NULL : names + 1;
    }
    if (names == NULL)
        return false;
    (void)snprintf(ret_name, KEY_MAX, "%.*s", (int)strcspn(names, "|"), names);
    return true;
}

static int hf_number(const struct config_keys *keys, const char *name, double *ret_value)
{
    const json_t *value = json_object_get(keys->object, name);
    if (value == NULL || json_is_null(value))
        return -ENOENT;
    if (json_is_boolean(value))
        *ret_value = json_is_true(value) ? 1 : 0;
    else if (json_is_number(value))
        *ret_value = json_number_value(value);
    else
        return -EINVAL;
    return 0;
}

static int gguf_number(const struct config_keys *keys, const char *name, double *ret_value)
{
    uint32_t integer = 0;
    float real = 0;
    int r = gguf_get_u32(keys->gguf, name, &integer);
    if (r == 0) {
        *ret_value = integer;
        return 0;
    }
    r = gguf_get_f32(keys->gguf, name, &real);
    if (r == 0)
        *ret_value = (double)real;
    return r;
}

/* 0 and the value, -ENOENT, or -EINVAL: not a number. ret_key: the name as the file spells it. */
static int look_up(const struct config_keys *keys, struct config_name name, char *ret_key,
                   double *ret_value)
{
    char plain[KEY_MAX];
    int r = -ENOENT;
    const char *names = keys->gguf != NULL ? name.gguf : name.hf;
    ret_key[0] = '\0';
    for (unsigned i = 0; r == -ENOENT && alternative(names, i, plain); i++) {
        if (keys->gguf != NULL) {
            (void)snprintf(ret_key, 2 * KEY_MAX, "%s.%s", keys->prefix, plain);
            r = gguf_number(keys, ret_key, ret_value);
        } else {
            (void)snprintf(ret_key, 2 * KEY_MAX, "%s", plain);
            r = hf_number(keys, ret_key, ret_value);
        }
    }
    return r;
}

static double read_number(struct config_keys *keys, struct config_name name, bool required,
                          bool whole, double min, double max, double absent)
{
    char key[2 * KEY_MAX];
    double value = absent;
    int r = look_up(keys, name, key, &value);
    if (r == -ENOENT && !required)
        return absent;
    if (r == -ENOENT)
        config_fail(keys, -EINVAL, "key '%s' is missing", key);
    else if (r < 0 || isnan(value) || (whole && value != floor(value)))
        config_fail(keys, -EINVAL, "key '%s' is not one %s", key, whole ? "integer" : "number");
    else if (value < min || value > max)
        config_fail(keys, -EINVAL, "key '%s' is %.9g, %.9g to %.9g are possible", key, value, min,
                    max);
    else
        return value;
    return absent;
}

double config_number(struct config_keys *keys, struct config_name name, double min, double max,
                     double absent)
{
    return read_number(keys, name, false, false, min, max, absent);
}

uint32_t config_u32(struct config_keys *keys, struct config_name name, uint32_t min, uint32_t max,
                    uint32_t absent)
{
    return (uint32_t)read_number(keys, name, false, true, min, max, absent);
}

uint32_t config_u32_required(struct config_keys *keys, struct config_name name, uint32_t min,
                             uint32_t max)
{
    return (uint32_t)read_number(keys, name, true, true, min, max, min);
}

bool config_bool(struct config_keys *keys, struct config_name name, bool absent)
{
    return read_number(keys, name, false, true, 0, 1, absent ? 1 : 0) != 0;
}
