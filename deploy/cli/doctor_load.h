/* doctor_load.h - chats of a given size at a router, as many at a time as asked for.
 *
 * Prompts are random words, so nothing is reused but the template's head. Blocks until all have
 * ended. Thread: one; makes its own. */
#ifndef REFRAIN_DEPLOY_CLI_DOCTOR_LOAD_H
#define REFRAIN_DEPLOY_CLI_DOCTOR_LOAD_H

#include <stdint.h>

#include "proto/base/errmsg.h"

#define DOCTOR_CONCURRENCY_MAX 256u

struct doctor_load {
    const char *url, *api_key; /* api_key: NULL or the bearer key */
    uint32_t concurrency;
    uint32_t requests; /* this many, or */
    double seconds;    /* until this much time has passed; 0: by number */
    uint32_t prompt_words, answer_tokens;
};

struct doctor_load_result {
    uint64_t sent, answered; /* answered: with status 200 */
    int last_status;         /* of one that was not; 0: no answer at all */
    struct errmsg last_text; /* what it said, "" if nothing */
};

/* 0; -EINVAL: concurrency; -EAGAIN: no thread. Failed requests are no error here. */
int doctor_load_run(const struct doctor_load *load, struct doctor_load_result *ret_result,
                    struct errmsg *err);

#endif
