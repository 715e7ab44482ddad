/* world.h - requests that have prefixes in common, and what each one's answer is alone. */
#ifndef REFRAIN_TESTS_EXACT_WORLD_H
#define REFRAIN_TESTS_EXACT_WORLD_H

#include "proto/base/rng.h"
#include "worker/sched/sequence.h"

#define PROMPT_TOKENS_MIN 32u
#define PROMPT_TOKENS_MAX 128u
#define ANSWER_TOKENS_MIN 4u
#define ANSWER_TOKENS_MAX 9u
#define CONTEXT_TOKENS_MAX (PROMPT_TOKENS_MAX + ANSWER_TOKENS_MAX)
#define WORLD_REQUESTS 16u
#define NO_REQUEST UINT32_MAX
#define NO_THINKING UINT32_MAX

struct random {
    uint64_t seed, position;
};

/* 0..count-1. */
static inline uint32_t draw(struct random *random, uint32_t count)
{
    return (uint32_t)(rng_uniform(random->seed, random->position++) * count);
}

/* Computed alone. */
struct alone {
    uint64_t hashes[CONTEXT_TOKENS_MAX]; /* of the logits of this position; 0: not asked for */
    uint32_t ids[ANSWER_TOKENS_MAX], count;
    enum sequence_finish finish;
};

struct world_request {
    uint32_t ids[PROMPT_TOKENS_MAX], prompt_tokens;
    uint32_t tokens_max, prompt_logprobs;
    struct sample_params sampling;
    uint32_t thinking_tokens;          /* then two tokens are forced; NO_THINKING */
    struct repetition_rule repetition; /* pattern_max 0: none */
    struct block_hash root;
    uint32_t turn_of; /* the request that this one continues, answer included; NO_REQUEST */
    struct alone alone;
};

/* The next one of a world, from the `before` ones that are there, with their answers: it opens like
 * one of them, continues it as a chat's next turn, repeats it, or begins anew. */
void world_make_request(struct world_request *requests, uint32_t before, uint32_t vocab_size,
                        struct random *random);

#endif
