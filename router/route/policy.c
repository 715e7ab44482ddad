/* policy.c - the table of policies and what they share. */
#include "router/route/policy.h"

#include <stddef.h>
#include <string.h>

static const struct policy *const policies[] = {
    &policy_prefix,
    &policy_round_robin,
    &policy_least_loaded,
    &policy_session,
};

const char *const policy_names[] = {"prefix", "round_robin", "least_loaded", "session", NULL};

const struct policy *policy_find(const char *name)
{
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    }
    return NULL;
}

double policy_own_seconds(const struct policy_view *view, const struct policy_worker *worker)
{
    uint32_t hit = worker->hit_tokens < view->prompt_tokens ? worker->hit_tokens : 0;
    return (double)(view->prompt_tokens - hit) * worker->seconds_per_token;
}

uint32_t policy_eligible(const struct policy_view *view)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < view->workers_count; w++)
        count += view->workers[w].eligible;
    return count;
}
