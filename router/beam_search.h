/* beam_search.h - the search alone: which tokens each beam could go on with -> which beams live on.
 *
 *   each step: every living beam is told its likeliest next tokens, 2 * width of them at least
 *     one that ends the answer   -> the beam with it is complete
 *     the others                 -> of all beams together, the `width` likeliest live on
 *   after steps_max steps, or when none lives: the `width` best of the complete and the living
 *
 * vLLM's scheme (vllm/beam_search.py): beams live on by the sum of their log probabilities; results
 * are ordered by sum / length^length_penalty, where the length counts the prompt, too, but no end
 * token. Equal ones keep the order in which they were found, so the same numbers give the same
 * answers. 2 * width: when up to width of them end the answer, as many are left.
 *
 * Pure: nothing of workers or text. Bound: width <= BEAMS_MAX beams of ids_count + steps_max ids;
 * of the complete ones only the `width` best are kept. Ownership: the caller's ids outlive it.
 * Thread: any. */
#ifndef REFRAIN_ROUTER_BEAM_SEARCH_H
#define REFRAIN_ROUTER_BEAM_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/sampling_limits.h"

struct beam_search_settings {
    uint32_t width, steps_max;
    double length_penalty;
    const uint32_t *ids; /* the prompt */
    size_t ids_count;
    const uint32_t *end_ids; /* tokens that end an answer */
    uint32_t end_ids_count;
    uint32_t tops; /* alternatives per token that results tell, at most */
};

struct beam_token {
    uint32_t id;
    float logprob;
};

/* One token of a result, and what stood beside it. */
struct beam_step {
    struct beam_token token;
    uint32_t rank; /* 1 = likeliest */
    const struct beam_token *tops;
    uint32_t tops_count;
};

struct beam_search;

struct beam_search *beam_search_new(const struct beam_search_settings *settings);
void beam_search_free(struct beam_search *search); /* NULL is fine */

/* Beams 0..count-1 live and want a step; 0: it is over. */
uint32_t beam_search_living(const struct beam_search *search);
/* The beam's prompt for the step; good until beam_search_step. */
const uint32_t *beam_search_ids(const struct beam_search *search, uint32_t beam, size_t *ret_count);
/* What could come next, the likeliest first; at most LOGPROBS_MAX. Once per beam and step. */
void beam_search_tell(struct beam_search *search, uint32_t beam, const struct beam_token *tops,
                      uint32_t count);
/* All living beams were told. */
void beam_search_step(struct beam_search *search);

/* Over: results 0..width-1, the best first (fewer if there were no more tokens to try). */
uint32_t beam_search_results(const struct beam_search *search);
/* Its tokens, the end token included; *ret_ended says whether there is one. `ret_steps` has room
 * for steps_max. */
uint32_t beam_search_result(const struct beam_search *search, uint32_t result,
                            struct beam_step *ret_steps, bool *ret_ended);

#endif
