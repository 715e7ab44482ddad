/* scan.h - a text read one character at a time, with its place for sentences.
 *
 * The text is valid UTF-8: grammar_compile has looked. Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_SCAN_H
#define REFRAIN_PROTO_GRAMMAR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCAN_END UINT32_MAX

struct scan {
    const char *text;
    size_t bytes, at;
};

/* Is all of it UTF-8 (shortest forms, no surrogates)? *ret_at: the first byte that is not. */
bool scan_utf8_valid(const char *text, size_t bytes, size_t *ret_at);
/* The character at the place, or SCAN_END. */
uint32_t scan_peek(const struct scan *scan);
uint32_t scan_next(struct scan *scan);
/* Take `c` if it stands here. */
bool scan_take(struct scan *scan, char c);
/* Take `text` if it stands here. */
bool scan_take_text(struct scan *scan, const char *text);
/* Digits; *ret_value saturates at UINT32_MAX. False: none stands here. */
bool scan_number(struct scan *scan, uint32_t *ret_value);
/* Exactly `digits` hex digits. False: they do not stand here; the place is undefined then. */
bool scan_hex(struct scan *scan, unsigned digits, uint32_t *ret_value);
/* Line, and character in it, of the place; from 1. */
void scan_place(const struct scan *scan, size_t *ret_line, size_t *ret_column);

#endif
