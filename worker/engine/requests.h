/* requests.h - which router asked for which sequence.
 *
 * Request ids are unique per router only; the scheduler wants them unique, so a second router's
 * equal id gets a suffix there. A fixed pool: as many as the scheduler can hold. Thread: engine. */
#ifndef REFRAIN_WORKER_ENGINE_REQUESTS_H
#define REFRAIN_WORKER_ENGINE_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/base/list.h"
#include "worker/sched/sequence.h"

struct request {
    struct list link; /* free, or of all in use */
    uint32_t router;
    char id[REQUEST_ID_MAX + 1]; /* the router's */
    struct sequence *sequence;
    uint64_t told_ns;       /* its newest token was made; 0: none yet */
    int error_code;         /* with SEQ_FINISH_ERROR: what to report */
    const char *error_text; /* static */
};

struct requests;

struct requests *requests_new(uint32_t requests_max);
void requests_free(struct requests *requests);
/* NULL: all are in use. The caller sets `sequence`. The pair must not be there yet. */
struct request *requests_add(struct requests *requests, uint32_t router, const char *id);
struct request *requests_find(struct requests *requests, uint32_t router, const char *id);
void requests_remove(struct requests *requests, struct request *request);
/* All in use; the body may not add or remove. */
const struct list *requests_all(const struct requests *requests);

#endif
