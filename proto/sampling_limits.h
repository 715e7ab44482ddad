/* sampling_limits.h - how much a request may say about tokens: the router refuses more with the
 * field's name, the worker checks again. */
#ifndef REFRAIN_PROTO_SAMPLING_LIMITS_H
#define REFRAIN_PROTO_SAMPLING_LIMITS_H

#define LOGIT_BIAS_ENTRIES_MAX 1024u
#define LOGIT_BIAS_MAX 100.0 /* and its negative */
#define ALLOWED_IDS_MAX (1u << 18)
#define BAD_SEQUENCES_MAX 512u    /* two per word: with and without a space before it */
#define BAD_SEQUENCE_IDS_MAX 512u /* tokens of one */
#define CACHE_SALT_BYTES_MAX 1024u
#define PROMPT_LOGPROBS_MAX 20u /* best tokens per position of a prompt */
#define LOGPROBS_MAX 32u        /* of an answer: 20 for clients, two per beam */
#define BEAMS_MAX (LOGPROBS_MAX / 2)
#define LOGPROB_IDS_MAX 128u         /* tokens named by the client, vLLM's limit */
#define REPETITION_PATTERN_MAX 1024u /* tokens */
#define REPETITION_COUNT_MAX (1u << 20)
#define THINKING_END_IDS_MAX 32u /* tokens of a tag */
#define THINKING_TAG_BYTES_MAX 31u

#endif
