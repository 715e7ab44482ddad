/* jinja_utf8.h - code points of valid UTF-8, counted and classified as Python's str does.
 *
 * All texts here are valid UTF-8 (template sources are checked at load, JSON by its parser). */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_UTF8_H
#define REFRAIN_ROUTER_TEXT_JINJA_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool jinja_utf8_valid(const char *data, size_t bytes);
/* Code points in `bytes` bytes. */
uint32_t jinja_utf8_count(const char *data, size_t bytes);
/* The code point at `data`, its length in *ret_bytes (never past `end`). */
uint32_t jinja_utf8_decode(const char *data, const char *end, uint32_t *ret_bytes);
/* The code point that ends at `end`. */
uint32_t jinja_utf8_decode_last(const char *data, const char *end, uint32_t *ret_bytes);
uint32_t jinja_utf8_encode(uint32_t code_point, char ret_data[4]); /* bytes written */
/* Byte offset of code point `index` (index <= count). */
uint32_t jinja_utf8_offset(const char *data, size_t bytes, uint32_t index);

/* str.isspace, str.isprintable, str.isalpha... of one code point. */
bool jinja_is_space(uint32_t code_point);
bool jinja_is_line_end(uint32_t code_point); /* str.splitlines */
bool jinja_is_printable(uint32_t code_point);
bool jinja_is_alpha(uint32_t code_point);
bool jinja_is_decimal(uint32_t code_point);
bool jinja_is_numeric(uint32_t code_point);
bool jinja_is_upper(uint32_t code_point);
bool jinja_is_lower(uint32_t code_point);
/* Up to three code points; the count is returned. */
uint32_t jinja_to_upper(uint32_t code_point, uint32_t ret_code_points[3]);
uint32_t jinja_to_lower(uint32_t code_point, uint32_t ret_code_points[3]);
uint32_t jinja_to_title(uint32_t code_point, uint32_t ret_code_points[3]);

#endif
