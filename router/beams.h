/* beams.h - a request that is answered by beam search: one search per prompt, each beam's step a
 * one-token request of its own, and the best beams given out as choices.
 *
 *   run --every living beam is dispatched--> STEPPING --all have answered--> STEPPING (next step)
 *                                               |             +--no beam lives--> OVER: the results
 *                                               |                 become the request's choices
 *                                               +--an error, too many losses--> the request's end
 *
 * Why no state in the worker: a beam is its ids, and what they have in common with the step before
 * is in the prefix cache, so a step costs one token and the head of one block. All limits, retries
 * and cancels are those of ordinary requests. Ownership: the request's. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_BEAMS_H
#define REFRAIN_ROUTER_BEAMS_H

#include "router/api/errors.h"

struct beams;
struct request;

/* Every prompt's first step is dispatched. -EINVAL: *error is filled; the caller ends the request.
 * `ret_beams` is set in both cases. */
int beams_run(struct request *request, struct beams **ret_beams, struct api_error *error);
/* Cancels what is dispatched. NULL is fine. */
void beams_free(struct beams *beams);

#endif
