/* clock.h - time in one place. */
#ifndef REFRAIN_PROTO_BASE_CLOCK_H
#define REFRAIN_PROTO_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);     /* monotonic */
uint64_t clock_ms(void);     /* monotonic */
uint64_t clock_unix_s(void); /* wall clock */
double clock_unix(void);     /* wall clock, seconds with fraction */

#endif
