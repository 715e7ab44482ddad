/* number.h - numbers from and to text, the same way everywhere. Thread: any. */
#ifndef REFRAIN_PROTO_BASE_NUMBER_H
#define REFRAIN_PROTO_BASE_NUMBER_H

#include <stdint.h>

#define NUMBER_TEXT_MAX 32

/* The shortest decimal text that reads back as the same double; integers below 1e15 without point
 * or exponent; "NaN", "+Inf", "-Inf" (Prometheus' spelling). Terminated. */
void number_format(double value, char ret_text[NUMBER_TEXT_MAX]);
/* All of `text`: decimal digits only. -EINVAL: anything else; -ERANGE: does not fit. */
int number_parse_u64(const char *text, uint64_t *ret_value);
/* All of `text`: a finite decimal number, sign and exponent allowed. -EINVAL, or -ERANGE. */
int number_parse_double(const char *text, double *ret_value);

#endif
