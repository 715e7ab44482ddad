/* sampling_limits.h - how much a request may say about tokens: the router refuses more with the
 * field's name, the worker checks again. */
#ifndef REFRAIN_PROTO_SAMPLING_LIMITS_H
#define REFRAIN_PROTO_SAMPLING_LIMITS_H

#define LOGIT_BIAS_ENTRIES_MAX 1024u
#define LOGIT_BIAS_MAX 100.0 /* and its negative */
#define ALLOWED_IDS_MAX (1u << 18)
#define BAD_SEQUENCES_MAX 512u    /* two per word: with and without a space before it */
#define BAD_SEQUENCE_IDS_MAX 512u /* tokens of one */
#define PROMPT_LOGPROBS_MAX 20u   /* best tokens per position of a prompt */

#endif
