/* utf8.h - is a text UTF-8 (Unicode 15, table 3-7)? Pure. Thread: any. */
#ifndef REFRAIN_PROTO_BASE_UTF8_H
#define REFRAIN_PROTO_BASE_UTF8_H

#include <stddef.h>

/* How many bytes from the first on are valid UTF-8. */
size_t utf8_span(const char *text, size_t bytes);

#endif
