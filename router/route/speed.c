/* speed.c - see the header. */
#include "router/route/speed.h"

#include <math.h>

void speed_begin(struct speed *speed, double seconds_per_token, uint64_t now_ms)
{
    *speed = (struct speed){.seconds_per_token = seconds_per_token, .told_ms = now_ms};
}

void speed_tell(struct speed *speed, double seconds_per_token, uint64_t now_ms)
{
    if (seconds_per_token == speed->seconds_per_token)
        return;
    *speed = (struct speed){seconds_per_token, now_ms, true};
}

void speed_take_better(struct speed *best, const struct speed *speed)
{
    if (speed->seconds_per_token <= 0 || (best->measured && !speed->measured))
        return;
    if (best->seconds_per_token <= 0 || (speed->measured && !best->measured) ||
        speed->seconds_per_token < best->seconds_per_token)
        *best = *speed;
}

double speed_believed(const struct speed *speed, const struct speed *best, uint64_t now_ms)
{
    double excess = speed->seconds_per_token - best->seconds_per_token;

    if (!speed->measured || speed->seconds_per_token <= 0)
        return best->seconds_per_token;
    if (excess <= 0)
        return speed->seconds_per_token;
    double age_ms = now_ms > speed->told_ms ? (double)(now_ms - speed->told_ms) : 0;
    return best->seconds_per_token + excess * exp2(-age_ms / SPEED_HALF_MS);
}
