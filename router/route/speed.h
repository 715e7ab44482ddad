/* speed.h - how fast a group computes prompts, as far as it can be believed.
 *
 * A group says what it has measured. Whoever gets no prompts measures nothing: a bad first value (a
 * step that was scheduled away, a cold start) would then keep prompts away for ever. So a value
 * that is worse than the best one known loses half of its excess every SPEED_HALF_MS without news,
 * and a guess from before the first prompt counts as the best. A group that is slow indeed gets a
 * prompt now and then, and says so again. Thread: loop. */
#ifndef REFRAIN_ROUTER_ROUTE_SPEED_H
#define REFRAIN_ROUTER_ROUTE_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#define SPEED_HALF_MS 3000.0

struct speed {
    double seconds_per_token; /* 0: not known */
    uint64_t told_ms;         /* when it last changed */
    bool measured;            /* by a prompt; else a guess */
};

/* At the start of a link: a guess. */
void speed_begin(struct speed *speed, double seconds_per_token, uint64_t now_ms);
/* What a heartbeat says: news when it differs from before. */
void speed_tell(struct speed *speed, double seconds_per_token, uint64_t now_ms);
/* The better of *best and this one, measured ones before guesses. Start with a zeroed *best. */
void speed_take_better(struct speed *best, const struct speed *speed);
/* Seconds per token to reckon with beside `best`; 0: not known. */
double speed_believed(const struct speed *speed, const struct speed *best, uint64_t now_ms);

#endif
