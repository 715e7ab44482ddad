/* jinja_string.h - strings with provenance, and the text under construction.
 *
 * Everything that makes text writes it to the end of one buffer (`ev->out`). A capture remembers
 * where it began and cuts the tail off as a string when it ends: macro results, joins, repr,
 * tojson and the final prompt are made in the same way, and marks go along. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_STRING_H
#define REFRAIN_ROUTER_TEXT_JINJA_STRING_H

#include "router/text/jinja_value.h"

/* NULL: out of memory, the error is set. `data` must outlive the render. */
struct jinja_str *jinja_str_view(struct jinja_eval *ev, const char *data, size_t bytes,
                                 struct jinja_origin origin);
struct jinja_str *jinja_str_copy(struct jinja_eval *ev, const char *data, size_t bytes,
                                 struct jinja_origin origin);
/* Bytes [start, end), no copy; marks as they are. */
struct jinja_str *jinja_str_sub(struct jinja_eval *ev, struct jinja_str *string, uint32_t start,
                                uint32_t end);
struct jinja_str *jinja_str_concat(struct jinja_eval *ev, struct jinja_str *left,
                                   struct jinja_str *right);
/* Contiguous bytes; flattens a rope in place, once. NULL: error set. */
const char *jinja_str_data(struct jinja_eval *ev, struct jinja_str *string);
/* Number of code points of a flat string. */
uint32_t jinja_str_chars(struct jinja_str *string);
/* Byte offset of code point `index`, of a flat string. */
uint32_t jinja_str_offset(struct jinja_str *string, uint32_t index);
/* Who made byte `at` of a flat string. `*run` remembers the place: start with 0, ask rising. */
struct jinja_origin jinja_str_origin_at(const struct jinja_str *string, uint32_t at, uint32_t *run);
/* One origin for the whole, for results that are not copies: the first mark there is. */
struct jinja_origin jinja_str_origin(const struct jinja_str *string);

/* Append to the text under construction. 0, or -E2BIG. */
int jinja_write(struct jinja_eval *ev, const char *data, size_t bytes, struct jinja_origin origin);
int jinja_write_text(struct jinja_eval *ev, const char *text); /* the template's own */
int jinja_write_char(struct jinja_eval *ev, uint32_t code_point, struct jinja_origin origin);
int jinja_write_str(struct jinja_eval *ev, struct jinja_str *string);
int jinja_write_sub(struct jinja_eval *ev, const struct jinja_str *string, uint32_t start,
                    uint32_t end); /* of a flat string */
/* str(value), repr(value). */
int jinja_write_value(struct jinja_eval *ev, const struct value *value);
int jinja_write_repr(struct jinja_eval *ev, const struct value *value);
void jinja_format_float(double number, char ret_text[40]); /* repr(float) */
/* str(value) as a flat string; a string stays itself. */
int jinja_to_str(struct jinja_eval *ev, const struct value *value, struct jinja_str **ret);
/* `string` with & < > ' " as HTML entities, marked as Markup. */
int jinja_write_escaped(struct jinja_eval *ev, struct jinja_str *string);
int jinja_escape(struct jinja_eval *ev, struct jinja_str *string, struct jinja_str **ret);

struct jinja_capture {
    size_t bytes, spans, floor;
};
void jinja_capture_begin(struct jinja_eval *ev, struct jinja_capture *capture);
/* Take what was written since begin out of the buffer. Not called after an error. */
int jinja_capture_end(struct jinja_eval *ev, const struct jinja_capture *capture,
                      struct value *ret);

#endif
