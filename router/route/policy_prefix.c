/* policy_prefix.c - the default: the cheapest worker in seconds, prefix hits counted in.
 *
 * The holder of a chat's history is cheaper by that whole history, so chats stick; a hot holder is
 * left exactly when its queue costs more than computing the prefix again elsewhere. Terms:
 *   queue      seconds of prefill promised to it that have not produced a first token
 *   slowdown   decodes share every step with our prefill: 1 + requests there / 32
 *   pressure   0.02 k / (1 - k) with k = share of blocks that cannot be reclaimed after this
 *              request, plus 10 s per pool that it lacks: a full worker is a last resort
 *   damage     recomputing what our new blocks push out of its cache, at full price
 *   sharing    each request there takes a row of every step of our answer: 8 tokens' prefill each,
 * so that chats which share only a system prompt spread out, and a long history does not Weights
 * were found flat in simulation (a factor of 2 on any changes mean TTFT by a few percent).
 */
#include <errno.h>

#include "router/route/policy.h"

#define SLOWDOWN_RUNNING 32.0
#define PRESSURE_SECONDS 0.02
#define PRESSURE_SHARE_MAX 0.99
#define OVERFLOW_SECONDS 10.0
#define SHARING_TOKENS 8.0
#define TIE_SECONDS 1e-6

static double pressure(const struct policy_worker *worker, double need_blocks)
{
    if (!worker->blocks_total)
        return 0;
    double share = (worker->blocks_referenced + worker->blocks_queued + need_blocks) /
                   (double)worker->blocks_total;
    double over = share > 1 ? share - 1 : 0;
    if (share > PRESSURE_SHARE_MAX)
        share = PRESSURE_SHARE_MAX;
    return PRESSURE_SECONDS * share / (1 - share) + OVERFLOW_SECONDS * over;
}

static double damage(const struct policy_view *view, const struct policy_worker *worker,
                     double need_blocks)
{
    double used = (double)worker->blocks_referenced + worker->blocks_cached + worker->blocks_queued;
    double lost = used + need_blocks - worker->blocks_total;
    if (lost <= 0 || !worker->blocks_total)
        return 0;
    if (lost > need_blocks)
        lost = need_blocks;
    return lost * view->block_tokens * worker->seconds_per_token;
}

static double cost(const struct policy_view *view, const struct policy_worker *worker)
{
    uint32_t hit = worker->hit_tokens < view->prompt_tokens ? worker->hit_tokens : 0;
    double need_blocks = (double)(view->prompt_tokens - hit) / view->block_tokens + 1;
    /* Heartbeats are up to 250 ms old; our own requests are known at once. */
    uint32_t busy = worker->running > worker->inflight ? worker->running : worker->inflight;
    double slowdown = 1 + busy / SLOWDOWN_RUNNING;
    double sharing = busy * SHARING_TOKENS * worker->seconds_per_token;
    return worker->queued_seconds + slowdown * policy_own_seconds(view, worker) + sharing +
           pressure(worker, need_blocks) + damage(view, worker, need_blocks);
}

static const char *reason(const struct policy_view *view, uint32_t chosen)
{
    uint32_t best_hit = 0;
    for (uint32_t w = 0; w < view->workers_count; w++) {
        if (view->workers[w].eligible && view->workers[w].hit_tokens > best_hit)
            best_hit = view->workers[w].hit_tokens;
    }
    if (policy_eligible(view) == 1)
        return "only";
    if (best_hit == 0)
        return "cold";
    return view->workers[chosen].hit_tokens == best_hit ? "prefix" : "spill";
}

static int choose(const struct policy_view *view, struct policy_choice *ret_choice)
{
    uint32_t best = view->workers_count;
    double best_cost = 0;

    for (uint32_t i = 0; i < view->workers_count; i++) {
        uint32_t w = (i + view->rotation) % view->workers_count;
        const struct policy_worker *worker = &view->workers[w];
        if (!worker->eligible)
            continue;
        double c = cost(view, worker);
        bool tie = best < view->workers_count && c < best_cost + TIE_SECONDS &&
                   c > best_cost - TIE_SECONDS;
        if (best == view->workers_count || (!tie && c < best_cost) ||
            (tie && worker->index_blocks < view->workers[best].index_blocks)) {
            best = w;
            best_cost = c;
        }
    }
    if (best == view->workers_count)
        return -EAGAIN;
    ret_choice->worker = best;
    ret_choice->own_seconds = policy_own_seconds(view, &view->workers[best]);
    ret_choice->cost_seconds = best_cost;
    ret_choice->why = reason(view, best);
    return 0;
}

const struct policy policy_prefix = {"prefix", choose};
