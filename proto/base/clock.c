/* clock.c - monotonic time for deadlines, wall time for people. */
#include "proto/base/clock.h"

#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with a valid clock and pointer */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_ms(void)
{
    return clock_ns() / 1000000u;
}

uint64_t clock_unix_s(void)
{
    return (uint64_t)time(NULL);
}

double clock_unix(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
