/* fuzz_chat_request: any bytes as the body of each endpoint. Accepted or refused with a sentence;
 * what was accepted keeps the limits that later code relies on. */
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/sampling_limits.h"
#include "router/api/request_json.h"
#include "router/api/token_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const struct api_request *request)
{
    ASSERT(request->n >= 1 && request->n <= API_N_MAX);
    ASSERT(request->best_of >= request->n && request->best_of <= API_N_MAX);
    ASSERT(!request->beam_search || (request->n <= BEAMS_MAX && !request->stream));
    ASSERT(!request->logprob_ids || (request->logprobs > 0 && request->logprob_ids_count > 0));
    ASSERT(request->logprob_ids_count <= LOGPROB_IDS_MAX);
    ASSERT(request->repetition_max <= REPETITION_PATTERN_MAX);
    ASSERT(request->repetition_max == 0 ||
           (request->repetition_count >= 2 && request->repetition_min >= 1 &&
            request->repetition_min <= request->repetition_max));
    ASSERT(request->stop_count <= API_STOP_MAX && request->stop_ids_count <= API_STOP_IDS_MAX);
    ASSERT(request->logprobs <= API_TOP_LOGPROBS_MAX + 1);
    ASSERT(!(request->temperature < 0) && !isinf(request->temperature));
    ASSERT(!(request->top_p <= 0) && !(request->top_p > 1));
    ASSERT(request->tools || request->tool_choice == API_TOOLS_NONE);
    ASSERT(request->tool_choice != API_TOOLS_NAMED || json_is_string(request->tool_name));
    ASSERT(request->prompt_logprobs <= PROMPT_LOGPROBS_MAX + 1);
    ASSERT(!request->prompt_logprobs || !request->stream);
    ASSERT(!request->score_only || (request->kind == API_COMPLETIONS && request->echo));
    ASSERT(request->tokens_max > 0 || request->tokens_min == 0 || !request->score_only);
    ASSERT(request->bias_count <= LOGIT_BIAS_ENTRIES_MAX);
    ASSERT(request->allowed_count <= ALLOWED_IDS_MAX);
    ASSERT(request->bad_words_count <= BAD_WORDS_MAX);
    for (size_t i = 0; i < request->bias_count; i++)
        ASSERT(fabs((double)request->bias_values[i]) <= LOGIT_BIAS_MAX);
    for (size_t i = 0; i < request->bad_words_count; i++)
        ASSERT(request->bad_words[i].bytes > 0 &&
               request->bad_words[i].bytes <= BAD_WORD_BYTES_MAX);
    for (size_t i = 0; i < request->stop_count; i++)
        ASSERT(request->stop_bytes[i] > 0 && request->stop_bytes[i] <= 1024);
    switch (request->kind) {
    case API_CHAT:
        ASSERT(json_array_size(request->messages) > 0);
        break;
    case API_COMPLETIONS:
    case API_DETOKENIZE:
        ASSERT(request->prompts_count > 0);
        break;
    case API_TOKENIZE:
        ASSERT((request->messages != NULL) != (request->prompts_count > 0));
        break;
    }
    for (size_t i = 0; i < json_array_size(request->messages); i++) {
        const json_t *message = json_array_get(request->messages, i);
        ASSERT(json_is_string(json_object_get(message, "content")));
        ASSERT(json_is_string(json_object_get(message, "role")));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    for (enum api_kind kind = API_CHAT; kind <= API_DETOKENIZE; kind++) {
        struct api_request request;
        struct api_error error = {0};
        struct arena arena;

        arena_init(&arena, (size_t)16 << 20);
        int r = request_json_parse(kind, data, bytes, &arena, &request, &error);
        if (r == 0)
            check(&request);
        else
            ASSERT(error.status >= 400 && error.message[0] != '\0');
        api_request_done(&request);
        arena_done(&arena);
    }
    return 0;
}
