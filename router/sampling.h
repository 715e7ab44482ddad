/* sampling.h - what a worker is told about the choice of tokens: the client's numbers, else the
 * model's own defaults, else the API's.
 *
 * Ownership: *ret_sampling points into the parts, which must outlive it. Thread: any. */
#ifndef REFRAIN_ROUTER_SAMPLING_H
#define REFRAIN_ROUTER_SAMPLING_H

#include "proto/model_card.h"
#include "proto/wire.pb-c.h"
#include "router/api/request_json.h"
#include "router/api/token_rules.h"

/* The same for all choices of a request. */
struct sampling_parts {
    const struct api_request *fields;
    const struct model_card *card;
    const struct token_rules *rules;
    uint64_t seed;                  /* of the request; each choice draws with one of its own */
    Refrain__Repetition repetition; /* of sampling_parts_make */
};

/* Fills in what the choices only point to. */
void sampling_parts_make(struct sampling_parts *parts);
/* choice: its place in the request. tokens_max: what is left of the context, or less. */
void sampling_fill(const struct sampling_parts *parts, uint32_t choice, uint32_t tokens_max,
                   Refrain__Sampling *ret_sampling);

#endif
