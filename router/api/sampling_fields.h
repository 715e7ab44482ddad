/* sampling_fields.h - rows of the field table about how many answers there are and what is told of
 * their tokens (log probabilities, best_of), and when they end by themselves (repetition).
 *
 * Thread: any. */
#ifndef REFRAIN_ROUTER_API_SAMPLING_FIELDS_H
#define REFRAIN_ROUTER_API_SAMPLING_FIELDS_H

#include "router/api/fields.h"
#include "router/api/request_json.h"

/* Chat: `logprobs` is a switch, `top_logprobs` the number. Completions: `logprobs` is the number.
 */
int sampling_fields_read_logprobs(struct field_reader *reader, const struct field *field,
                                  const json_t *value);
int sampling_fields_read_top_logprobs(struct field_reader *reader, const struct field *field,
                                      const json_t *value);
int sampling_fields_read_prompt_logprobs(struct field_reader *reader, const struct field *field,
                                         const json_t *value);
/* Which tokens log probabilities are told of, besides the one that was written. */
int sampling_fields_read_logprob_ids(struct field_reader *reader, const struct field *field,
                                     const json_t *value);
/* {"max_pattern_size", "min_pattern_size", "min_count"} */
int sampling_fields_read_repetition(struct field_reader *reader, const struct field *field,
                                    const json_t *value);
/* What they say together, once all fields are read; fills in what was not given. -EINVAL: *error is
 * filled. */
int sampling_fields_check(struct api_request *request, struct api_error *error);

#endif
