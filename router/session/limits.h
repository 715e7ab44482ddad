/* limits.h - how many turns and seconds one session may have.
 *
 * A session is what the client calls so (session_id), else the requests that extend one another: a
 * request belongs to the session of the longest known beginning of its messages. A chat's first
 * request (nothing of an assistant in it) begins a new session, so that two clients who both open
 * with "hi" are two; a request sent again is the same turn.
 *
 * Bounded: LIMITS_ENTRIES_MAX, the one not seen for the longest goes first (its session begins
 * anew). Thread: the loop's. */
#ifndef REFRAIN_ROUTER_SESSION_LIMITS_H
#define REFRAIN_ROUTER_SESSION_LIMITS_H

#include "router/session/conversation.h"

#define LIMITS_ENTRIES_MAX 65536u

struct limits_settings {
    uint32_t turns_max;  /* 0: off */
    uint64_t age_ms_max; /* 0: off */
};

/* What a session has so far, this request counted. */
struct session_use {
    uint32_t turns;
    uint64_t age_ms;
};

struct limits;

struct limits *limits_new(const struct limits_settings *settings);
void limits_free(struct limits *limits);

/* Count this request. session: hash of the client's session_id, 0: none. 0; -EDQUOT: past the
 * turns; -ETIME: past the age; then nothing was counted. *ret_use is set in all cases (zeroes when
 * both limits are off). */
int limits_take(struct limits *limits, uint64_t session, const struct conversation *conversation,
                uint64_t now_ms, struct session_use *ret_use);
size_t limits_entries(const struct limits *limits);

#endif
