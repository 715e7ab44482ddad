/* policy_session.c - the session decides, whatever the load; for comparison.
 *
 * Rendezvous hashing (Thaler and Ravishankar 1998): the worker with the highest mix of session and
 * worker wins, so that a worker that comes or goes moves only its own sessions. */
#include <errno.h>

#include "router/route/policy.h"

/* splitmix64's finaliser (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int choose(const struct policy_view *view, struct policy_choice *ret_choice)
{
    uint32_t best = view->workers_count;
    uint64_t best_score = 0;
    uint64_t session = view->session_hash ? view->session_hash : view->rotation;

    for (uint32_t w = 0; w < view->workers_count; w++) {
        uint64_t score = mix(session ^ mix(w + 1));
        if (view->workers[w].eligible && (best == view->workers_count || score > best_score)) {
            best = w;
            best_score = score;
        }
    }
    if (best == view->workers_count)
        return -EAGAIN;
    ret_choice->worker = best;
    ret_choice->own_seconds = policy_own_seconds(view, &view->workers[best]);
    ret_choice->cost_seconds = view->workers[best].queued_seconds + ret_choice->own_seconds;
    ret_choice->why = policy_eligible(view) == 1 ? "only" : "session";
    return 0;
}

const struct policy policy_session = {"session", choose};
