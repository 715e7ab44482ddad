/* jinja_str_methods.c - Python's string methods.
 *
 * Positions in arguments and results are code points; inside everything is bytes. `self` is flat.
 * Marks: split, strip and partition give views; the rest is written by jinja_text.c. */
#include <errno.h>
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_methods.h"
#include "router/text/jinja_utf8.h"

int jinja_str_upper(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return jinja_change_case(ev, self->string, CASE_UPPER, ret);
}

int jinja_str_lower(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return jinja_change_case(ev, self->string, CASE_LOWER, ret);
}

int jinja_str_capitalize(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    return jinja_change_case(ev, self->string, CASE_CAPITALIZE, ret);
}

int jinja_str_title(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return jinja_change_case(ev, self->string, CASE_TITLE, ret);
}

int jinja_str_swapcase(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    return jinja_change_case(ev, self->string, CASE_SWAP, ret);
}

static int strip(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                 bool left, bool right, struct value *ret)
{
    struct jinja_str *chars;
    int r = jinja_arg_str(ev, args, 0, &chars);
    return r < 0 ? r : jinja_strip(ev, self->string, chars, left, right, ret);
}

int jinja_str_strip(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return strip(ev, self, args, true, true, ret);
}

int jinja_str_lstrip(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return strip(ev, self, args, true, false, ret);
}

int jinja_str_rstrip(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return strip(ev, self, args, false, true, ret);
}

int jinja_str_replace(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *old, *new_text;
    int64_t count;
    if (jinja_arg_str(ev, args, 0, &old) < 0 || jinja_arg_str(ev, args, 1, &new_text) < 0 ||
        jinja_arg_int(ev, args, 2, -1, &count) < 0)
        return ev->code;
    if (old == NULL || new_text == NULL)
        return jinja_fail(ev, -EINVAL, "replace() argument must be str, not NoneType");
    return jinja_replace(ev, self->string, old, new_text, count, ret);
}

/* Arguments start, end of find, count and startswith, as bytes. False: an empty range past the
 * end, where nothing is found, not even ''. */
static int byte_range(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, uint32_t *ret_start, uint32_t *ret_end,
                      bool *ret_valid)
{
    int64_t bound[2] = {0, 0};
    int64_t chars = jinja_str_chars(self->string);
    for (uint32_t i = 0; i < 2; i++) {
        bool none = !jinja_given(args, i + 1) || args->values[i + 1].type == VALUE_NONE;
        bound[i] = i == 0 ? 0 : chars;
        if (!none && jinja_arg_int(ev, args, i + 1, 0, &bound[i]) < 0)
            return ev->code;
        if (bound[i] < 0)
            bound[i] = bound[i] + chars < 0 ? 0 : bound[i] + chars;
    }
    if (bound[1] > chars)
        bound[1] = chars;
    *ret_valid = bound[0] <= bound[1];
    if (!*ret_valid)
        return 0;
    *ret_start = jinja_str_offset(self->string, (uint32_t)bound[0]);
    *ret_end = jinja_str_offset(self->string, (uint32_t)bound[1]);
    return jinja_charge(ev, self->string->bytes / 64);
}

static int affix_matches(struct jinja_eval *ev, const struct value *self, const struct value *affix,
                         uint32_t start, uint32_t end, bool at_end, bool *ret)
{
    if (affix->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, affix);
    if (affix->type != VALUE_STRING)
        return jinja_fail(ev, -EINVAL, "%s first arg must be str or a tuple of str, not %s",
                          at_end ? "endswith" : "startswith", jinja_type_name(affix));
    const char *data = jinja_str_data(ev, affix->string);
    if (data == NULL)
        return ev->code;
    uint32_t bytes = affix->string->bytes;
    *ret = bytes <= end - start &&
           memcmp(self->string->data + (at_end ? end - bytes : start), data, bytes) == 0;
    return jinja_charge(ev, bytes / 64);
}

static int check_affix(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, bool at_end, struct value *ret)
{
    const struct value *affix = &args->values[0];
    uint32_t start = 0, end = 0;
    bool valid, matches = false;
    int r = byte_range(ev, self, args, &start, &end, &valid);
    if (r >= 0 && valid && affix->type == VALUE_TUPLE) {
        for (uint32_t i = 0; r >= 0 && !matches && i < affix->list->count; i++)
            r = affix_matches(ev, self, &affix->list->values[i], start, end, at_end, &matches);
    } else if (r >= 0 && valid) {
        r = affix_matches(ev, self, affix, start, end, at_end, &matches);
    }
    if (r >= 0)
        *ret = jinja_bool(matches);
    return r;
}

int jinja_str_startswith(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    return check_affix(ev, self, args, false, ret);
}

int jinja_str_endswith(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    return check_affix(ev, self, args, true, ret);
}

static int remove_affix(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, bool at_end, struct value *ret)
{
    bool matches = false;
    struct jinja_str *string = self->string;
    int r = affix_matches(ev, self, &args->values[0], 0, string->bytes, at_end, &matches);
    *ret = *self;
    if (r < 0 || !matches)
        return r;
    uint32_t bytes = args->values[0].string->bytes;
    struct jinja_str *rest = at_end ? jinja_str_sub(ev, string, 0, string->bytes - bytes)
                                    : jinja_str_sub(ev, string, bytes, string->bytes);
    if (rest == NULL)
        return ev->code;
    *ret = jinja_string(rest);
    return 0;
}

int jinja_str_removeprefix(struct jinja_eval *ev, const struct value *self,
                           const struct jinja_args *args, struct value *ret)
{
    return remove_affix(ev, self, args, false, ret);
}

int jinja_str_removesuffix(struct jinja_eval *ev, const struct value *self,
                           const struct jinja_args *args, struct value *ret)
{
    return remove_affix(ev, self, args, true, ret);
}

static const char *find_last(const char *data, size_t bytes, const char *needle,
                             size_t needle_bytes)
{
    if (needle_bytes > bytes)
        return NULL;
    if (needle_bytes == 0)
        return data + bytes;
    for (const char *end = data + bytes - needle_bytes + 1; end > data;) {
        const char *at = memrchr(data, needle[0], (size_t)(end - data));
        if (at == NULL)
            return NULL;
        if (memcmp(at, needle, needle_bytes) == 0)
            return at;
        end = at;
    }
    return NULL;
}

/* Worst case of find_last: every byte starts a comparison. */
static int charge_search(struct jinja_eval *ev, size_t bytes, size_t needle_bytes, bool last)
{
    uint64_t per_byte = last ? needle_bytes / 16 + 1 : 1;
    return jinja_charge(ev, (uint64_t)bytes * per_byte / 32);
}

static int find(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                bool last, bool must, struct value *ret)
{
    struct jinja_str *needle;
    uint32_t start = 0, end = 0;
    bool valid;
    int64_t position = -1;
    if (jinja_arg_str(ev, args, 0, &needle) < 0 ||
        byte_range(ev, self, args, &start, &end, &valid) < 0)
        return ev->code;
    if (needle == NULL)
        return jinja_fail(ev, -EINVAL, "must be str, not NoneType");
    if (charge_search(ev, end - start, needle->bytes, last) < 0)
        return ev->code;
    const char *data = self->string->data;
    const char *at = NULL;
    if (valid && last)
        at = find_last(data + start, end - start, needle->data, needle->bytes);
    else if (valid)
        at = jinja_find(data + start, end - start, needle->data, needle->bytes);
    if (at != NULL)
        position = jinja_utf8_count(data, (size_t)(at - data));
    if (at == NULL && must)
        return jinja_fail(ev, -EINVAL, "substring not found");
    *ret = jinja_int(position);
    return 0;
}

int jinja_str_find(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    return find(ev, self, args, false, false, ret);
}

int jinja_str_rfind(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return find(ev, self, args, true, false, ret);
}

int jinja_str_index(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return find(ev, self, args, false, true, ret);
}

int jinja_str_rindex(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return find(ev, self, args, true, true, ret);
}

int jinja_str_count(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    struct jinja_str *needle;
    uint32_t start = 0, end = 0;
    bool valid;
    int64_t count = 0;
    if (jinja_arg_str(ev, args, 0, &needle) < 0 ||
        byte_range(ev, self, args, &start, &end, &valid) < 0)
        return ev->code;
    if (needle == NULL)
        return jinja_fail(ev, -EINVAL, "must be str, not NoneType");
    const char *at = self->string->data + start;
    const char *stop = self->string->data + end;
    if (valid && needle->bytes == 0)
        count = jinja_utf8_count(at, (size_t)(stop - at)) + 1;
    while (valid && needle->bytes > 0 &&
           (at = jinja_find(at, (size_t)(stop - at), needle->data, needle->bytes)) != NULL) {
        at += needle->bytes;
        count++;
    }
    *ret = jinja_int(count);
    return 0;
}

static int push_piece(struct jinja_eval *ev, struct jinja_vec *pieces, struct jinja_str *string,
                      uint32_t start, uint32_t end)
{
    struct jinja_str *piece = jinja_str_sub(ev, string, start, end);
    if (piece == NULL || jinja_charge(ev, 1) < 0)
        return ev->code;
    struct value item = jinja_string(piece);
    return jinja_vec_push(ev, pieces, &item);
}

static void reverse_items(struct jinja_vec *items)
{
    for (uint32_t i = 0, k = items->count; i + 1 < k; i++, k--) {
        struct value swap = items->values[i];
        items->values[i] = items->values[k - 1];
        items->values[k - 1] = swap;
    }
}

static int split_at(struct jinja_eval *ev, struct jinja_str *string, const struct jinja_str *sep,
                    int64_t splits, bool from_end, struct jinja_vec *pieces)
{
    uint32_t start = 0, end = string->bytes;
    int r = 0;
    while (r >= 0 && splits-- != 0) {
        const char *at = from_end
                             ? find_last(string->data, end, sep->data, sep->bytes)
                             : jinja_find(string->data + start, end - start, sep->data, sep->bytes);
        if (at == NULL)
            break;
        uint32_t found = (uint32_t)(at - string->data);
        if (from_end) {
            r = push_piece(ev, pieces, string, found + sep->bytes, end);
            end = found;
        } else {
            r = push_piece(ev, pieces, string, start, found);
            start = found + sep->bytes;
        }
    }
    return r < 0 ? r : push_piece(ev, pieces, string, start, end);
}

static uint32_t space_at(const char *data, uint32_t start, uint32_t end) /* bytes, 0: none */
{
    uint32_t bytes;
    if (start == end)
        return 0;
    return jinja_is_space(jinja_utf8_decode(data + start, data + end, &bytes)) ? bytes : 0;
}

static uint32_t space_before(const char *data, uint32_t start, uint32_t end)
{
    uint32_t bytes;
    if (start == end)
        return 0;
    return jinja_is_space(jinja_utf8_decode_last(data + start, data + end, &bytes)) ? bytes : 0;
}

/* Without a separator: runs of whitespace; the last piece keeps the blanks at its far end. */
static int split_words(struct jinja_eval *ev, struct jinja_str *string, int64_t splits,
                       struct jinja_vec *pieces)
{
    uint32_t start = 0, bytes;
    const uint32_t end = string->bytes;
    int r = 0;
    while (r >= 0) {
        while ((bytes = space_at(string->data, start, end)) > 0)
            start += bytes;
        if (start == end)
            break;
        uint32_t at = splits == 0 ? end : start;
        while (at < end && space_at(string->data, at, end) == 0) {
            at++;
            while (at < end && ((unsigned char)string->data[at] & 0xc0) == 0x80)
                at++;
        }
        r = push_piece(ev, pieces, string, start, at);
        start = at;
        splits--;
    }
    return r;
}

static int rsplit_words(struct jinja_eval *ev, struct jinja_str *string, int64_t splits,
                        struct jinja_vec *pieces)
{
    uint32_t end = string->bytes, bytes;
    int r = 0;
    while (r >= 0) {
        while ((bytes = space_before(string->data, 0, end)) > 0)
            end -= bytes;
        if (end == 0)
            break;
        uint32_t at = splits == 0 ? 0 : end;
        while (at > 0 && space_before(string->data, 0, at) == 0) {
            at--;
            while (at > 0 && ((unsigned char)string->data[at] & 0xc0) == 0x80)
                at--;
        }
        r = push_piece(ev, pieces, string, at, end);
        end = at;
        splits--;
    }
    return r;
}

static int split(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                 bool from_end, struct value *ret)
{
    struct jinja_vec pieces = {0};
    struct jinja_str *sep;
    int64_t splits;
    if (jinja_arg_str(ev, args, 0, &sep) < 0 || jinja_arg_int(ev, args, 1, -1, &splits) < 0)
        return ev->code;
    if (sep != NULL && sep->bytes == 0)
        return jinja_fail(ev, -EINVAL, "empty separator");
    if (splits < 0)
        splits = INT64_MAX;
    if (charge_search(ev, self->string->bytes, sep ? sep->bytes : 1, from_end) < 0)
        return ev->code;
    int r = sep        ? split_at(ev, self->string, sep, splits, from_end, &pieces)
            : from_end ? rsplit_words(ev, self->string, splits, &pieces)
                       : split_words(ev, self->string, splits, &pieces);
    if (from_end)
        reverse_items(&pieces);
    return r < 0 ? r : jinja_make_list(ev, VALUE_LIST, pieces.values, pieces.count, ret);
}

int jinja_str_split(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return split(ev, self, args, false, ret);
}

int jinja_str_rsplit(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return split(ev, self, args, true, ret);
}

int jinja_str_splitlines(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec lines;
    int r = jinja_split_lines(ev, self->string, jinja_arg_truth(args, 0, false), &lines);
    return r < 0 ? r : jinja_make_list(ev, VALUE_LIST, lines.values, lines.count, ret);
}

static int partition(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     bool last, struct value *ret)
{
    struct jinja_vec parts = {0};
    struct jinja_str *sep, *string = self->string;
    int r = jinja_arg_str(ev, args, 0, &sep);
    if (r >= 0 && (sep == NULL || sep->bytes == 0))
        r = jinja_fail(ev, -EINVAL, "empty separator");
    if (r >= 0)
        r = charge_search(ev, string->bytes, sep->bytes, last);
    if (r < 0)
        return r;
    const char *at = last ? find_last(string->data, string->bytes, sep->data, sep->bytes)
                          : jinja_find(string->data, string->bytes, sep->data, sep->bytes);
    uint32_t start = at ? (uint32_t)(at - string->data) : last ? 0 : string->bytes;
    uint32_t end = at ? start + sep->bytes : start;
    r = push_piece(ev, &parts, string, 0, start);
    if (r >= 0)
        r = push_piece(ev, &parts, string, start, end);
    if (r >= 0)
        r = push_piece(ev, &parts, string, end, string->bytes);
    return r < 0 ? r : jinja_make_list(ev, VALUE_TUPLE, parts.values, parts.count, ret);
}

int jinja_str_partition(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return partition(ev, self, args, false, ret);
}

int jinja_str_rpartition(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    return partition(ev, self, args, true, ret);
}

int jinja_str_join(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_vec items;
    int r = jinja_iterate(ev, &args->values[0], &items);
    jinja_capture_begin(ev, &capture);
    for (uint32_t i = 0; r >= 0 && i < items.count; i++) {
        if (items.values[i].type != VALUE_STRING)
            return jinja_fail(ev, -EINVAL, "sequence item %u: expected str instance, %s found", i,
                              jinja_type_name(&items.values[i]));
        if (i > 0)
            r = jinja_write_str(ev, self->string);
        if (r >= 0)
            r = jinja_write_str(ev, items.values[i].string);
        if (r >= 0)
            r = jinja_charge(ev, 1);
    }
    if (r >= 0)
        r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = self->string->markup;
    return r;
}

int jinja_str_format(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return jinja_brace_format(ev, self->string, args, ret);
}

/* left, right: shares of the missing width in halves. */
static int pad(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
               int left_halves, struct value *ret)
{
    struct jinja_str *fill;
    int64_t width;
    uint32_t bytes, code_point = ' ';
    if (jinja_arg_int(ev, args, 0, 0, &width) < 0 || jinja_arg_str(ev, args, 1, &fill) < 0)
        return ev->code;
    if (fill != NULL && jinja_str_chars(fill) != 1)
        return jinja_fail(ev, -EINVAL, "The fill character must be exactly one character long");
    if (fill != NULL)
        code_point = jinja_utf8_decode(fill->data, fill->data + fill->bytes, &bytes);
    int64_t space = width - (int64_t)jinja_str_chars(self->string);
    space = space > 0 ? space : 0;
    int64_t left = left_halves == 1 ? space / 2 + (space & width & 1) : left_halves ? space : 0;
    struct jinja_str *string = self->string;
    if (fill != NULL && jinja_str_origin(string).source == 0 &&
        jinja_str_origin(fill).source != 0) {
        struct jinja_str *copy = jinja_alloc(ev, sizeof(*copy)); /* padded with a request's text */
        if (copy == NULL)
            return ev->code;
        *copy = *string;
        copy->source = fill->source;
        copy->message = fill->message;
        string = copy;
    }
    return jinja_pad(ev, string, left, space - left, code_point, ret);
}

int jinja_str_center(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return pad(ev, self, args, 1, ret);
}

int jinja_str_ljust(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return pad(ev, self, args, 0, ret);
}

int jinja_str_rjust(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    return pad(ev, self, args, 2, ret);
}

int jinja_str_zfill(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    struct value rest, padded;
    struct jinja_str *string = self->string;
    int64_t width;
    if (jinja_arg_int(ev, args, 0, 0, &width) < 0)
        return ev->code;
    bool sign = string->bytes > 0 && (string->data[0] == '-' || string->data[0] == '+');
    struct jinja_str *head = jinja_str_sub(ev, string, 0, sign ? 1 : 0);
    struct jinja_str *tail = jinja_str_sub(ev, string, sign ? 1 : 0, string->bytes);
    if (head == NULL || tail == NULL)
        return ev->code;
    int64_t space = width - (int64_t)jinja_str_chars(string);
    rest = jinja_string(tail);
    if (jinja_pad(ev, rest.string, space > 0 ? space : 0, 0, '0', &padded) < 0)
        return ev->code;
    rest = jinja_string(head);
    return jinja_binary(ev, OP_ADD, &rest, &padded, ret);
}

static int every(struct jinja_eval *ev, const struct value *self, bool (*holds)(uint32_t),
                 struct value *ret)
{
    const char *data = self->string->data;
    uint32_t bytes;
    bool all = self->string->bytes > 0;
    for (uint32_t at = 0; all && at < self->string->bytes; at += bytes)
        all = holds(jinja_utf8_decode(data + at, data + self->string->bytes, &bytes));
    *ret = jinja_bool(all);
    return jinja_charge(ev, self->string->bytes / 4);
}

static bool is_alnum(uint32_t c)
{
    return jinja_is_alpha(c) || jinja_is_numeric(c);
}

int jinja_str_isalnum(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    return every(ev, self, is_alnum, ret);
}

int jinja_str_isalpha(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    return every(ev, self, jinja_is_alpha, ret);
}

int jinja_str_isascii(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    *ret = jinja_bool(jinja_str_chars(self->string) == self->string->bytes);
    return 0;
}

int jinja_str_isdecimal(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return every(ev, self, jinja_is_decimal, ret);
}

int jinja_str_isnumeric(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return every(ev, self, jinja_is_numeric, ret);
}

int jinja_str_isspace(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    return every(ev, self, jinja_is_space, ret);
}
