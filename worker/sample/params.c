/* params.c - are a request's sampling numbers usable?
 *
 * Refused here, where the sentence can still reach the client, so that the sampler has no bad case
 * left. Comparisons are written so that NaN fails them. */
#include <errno.h>

#include "worker/sample/sampler.h"

/* The range is [low, high], without `low` itself when `open`. */
struct range {
    const char *name;
    double value, low, high;
    int open;
};

int sample_params_check(const struct sample_params *params, struct errmsg *err)
{
    const struct range ranges[] = {
        {"temperature", params->temperature, 0, 1e6, 0},
        {"top_p", params->top_p, 0, 1, 1},
        {"min_p", params->min_p, 0, 1, 0},
        {"repetition_penalty", params->repetition_penalty, 0.01, 100, 0},
        {"presence_penalty", params->presence_penalty, -1e6, 1e6, 0},
        {"frequency_penalty", params->frequency_penalty, -1e6, 1e6, 0},
    };

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct range *r = &ranges[i];
        if (r->value >= r->low && r->value <= r->high && !(r->open && r->value == r->low))
            continue;
        return errmsg_set(err, -EINVAL, "%s is %g: must be %s %g and at most %g", r->name, r->value,
                          r->open ? "above" : "at least", r->low, r->high);
    }
    if (params->logprobs > LOGPROBS_MAX + 1)
        return errmsg_set(err, -EINVAL, "logprobs is %u: at most %u", params->logprobs - 1,
                          LOGPROBS_MAX);
    if (params->logprob_ids_count > LOGPROB_IDS_MAX)
        return errmsg_set(err, -EINVAL, "logprob_token_ids: %u token ids; at most %u fit",
                          params->logprob_ids_count, LOGPROB_IDS_MAX);
    return 0;
}
