/* submit.c - the worker trusts no router: counts, ids and ranges are checked again here.
 *
 * Stop ids: the model's own end-of-answer ids are always in force unless ignore_eos, then they are
 * taken out of what the router sent, too. */
#include "worker/submit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/sampling_limits.h"
#include "worker/sample/rules.h"
#include "worker/sample/sampler.h"
#include "worker/sample/thinking.h"

bool submit_id_is_good(const char *request_id)
{
    size_t bytes = strlen(request_id);
    if (bytes == 0 || bytes > REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        char c = request_id[i];
        if (c <= ' ' || c > '~' || c == '"' || c == '\\')
            return false;
    }
    return true;
}

static bool is_eos(const struct model_card *card, uint32_t id)
{
    for (uint32_t i = 0; i < card->eos_count; i++) {
        if (card->eos_ids[i] == id)
            return true;
    }
    return false;
}

static bool has_stop(const struct sequence_params *params, uint32_t id)
{
    for (uint32_t i = 0; i < params->stop_ids_count; i++) {
        if (params->stop_ids[i] == id)
            return true;
    }
    return false;
}

static int add_stop(struct sequence_params *params, uint32_t id, struct errmsg *err)
{
    if (has_stop(params, id))
        return 0;
    if (params->stop_ids_count == SEQUENCE_STOP_IDS_MAX)
        return errmsg_set(err, -EINVAL, "more than %u stop token ids", SEQUENCE_STOP_IDS_MAX);
    params->stop_ids[params->stop_ids_count++] = id;
    return 0;
}

static int take_stops(const Refrain__Sampling *sampling, const struct model_card *card,
                      struct sequence_params *params, struct errmsg *err)
{
    int r = 0;
    for (size_t i = 0; i < sampling->n_stop_ids && r == 0; i++) {
        uint32_t id = sampling->stop_ids[i];
        if (id >= card->vocab_size)
            return errmsg_set(err, -EINVAL, "stop token id %u; the vocabulary has %u", id,
                              card->vocab_size);
        if (!sampling->ignore_eos || !is_eos(card, id))
            r = add_stop(params, id, err);
    }
    for (uint32_t i = 0; i < card->eos_count && r == 0 && !sampling->ignore_eos; i++)
        r = add_stop(params, card->eos_ids[i], err);
    return r;
}

static struct sample_rules_bytes bytes_of(ProtobufCBinaryData data)
{
    return (struct sample_rules_bytes){data.data, data.len};
}

static int take_rules(const Refrain__Sampling *sampling, const struct model_card *card,
                      struct sequence_params *params, struct errmsg *err)
{
    struct sample_rules_bytes words[BAD_SEQUENCES_MAX];
    struct sample_rules_input input = {.allowed = bytes_of(sampling->allowed_ids),
                                       .bias_ids = bytes_of(sampling->logit_bias_ids),
                                       .bias_values = bytes_of(sampling->logit_bias_values),
                                       .bad_words = words,
                                       .bad_words_count = sampling->n_bad_words};
    for (size_t i = 0; i < sampling->n_bad_words && i < BAD_SEQUENCES_MAX; i++)
        words[i] = bytes_of(sampling->bad_words[i]);
    return sample_rules_new(&input, card->vocab_size, &params->rules, err);
}

static int take_logprob_ids(const Refrain__Sampling *sampling, const struct model_card *card,
                            struct sequence_params *params, struct errmsg *err)
{
    const ProtobufCBinaryData *list = &sampling->logprob_ids;
    size_t count = list->len / sizeof(uint32_t);

    if (list->len % sizeof(uint32_t) != 0 || count > LOGPROB_IDS_MAX)
        return errmsg_set(err, -EINVAL, "logprob_token_ids: %zu bytes; at most %u token ids fit",
                          list->len, LOGPROB_IDS_MAX);
    if (count > 0)
        memcpy(params->logprob_ids, list->data, list->len);
    for (size_t i = 0; i < count; i++) {
        if (params->logprob_ids[i] >= card->vocab_size)
            return errmsg_set(err, -EINVAL, "logprob_token_ids: token id %u; the vocabulary has %u",
                              params->logprob_ids[i], card->vocab_size);
    }
    params->sampling.logprob_ids = params->logprob_ids; /* the sequence has its own */
    params->sampling.logprob_ids_count = (uint32_t)count;
    return 0;
}

static int take_thinking(const Refrain__Sampling *sampling, const struct model_card *card,
                         struct sequence_params *params, struct errmsg *err)
{
    const Refrain__Thinking *from = sampling->thinking;

    if (from == NULL)
        return 0;
    if (sampling->grammar_kind != GRAMMAR_NONE)
        return errmsg_set(err, -EINVAL, "a grammar leaves no room to think");
    const struct thinking_input input = {.tokens_max = from->tokens_max,
                                         .begin = (const char *)from->begin.data,
                                         .begin_bytes = from->begin.len,
                                         .end = (const char *)from->end.data,
                                         .end_bytes = from->end.len,
                                         .inside = from->inside,
                                         .opened = from->opened,
                                         .end_ids = from->end_ids.data,
                                         .end_ids_bytes = from->end_ids.len};
    return thinking_new(&input, card, &params->thinking, err);
}

static int take_repetition(const Refrain__Sampling *sampling, struct sequence_params *params,
                           struct errmsg *err)
{
    const Refrain__Repetition *from = sampling->repetition;

    if (from == NULL)
        return 0;
    const struct repetition_rule rule = {from->pattern_min, from->pattern_max, from->count_min};
    return repetition_new(&rule, &params->repetition, err);
}

static int take_sampling(const Refrain__Sampling *sampling, const struct model_card *card,
                         struct sequence_params *params, struct errmsg *err)
{
    params->sampling = (struct sample_params){
        .temperature = sampling->temperature,
        .top_k = sampling->top_k,
        .top_p = sampling->top_p,
        .min_p = sampling->min_p,
        .seed = sampling->seed,
        .repetition_penalty = sampling->repetition_penalty,
        .presence_penalty = sampling->presence_penalty,
        .frequency_penalty = sampling->frequency_penalty,
        .logprobs = sampling->logprobs,
    };
    params->tokens_max = sampling->tokens_max;
    params->tokens_min = sampling->tokens_min;
    if (params->tokens_max == 0)
        return errmsg_set(err, -EINVAL, "at least 1 new token must be asked for");
    if (params->tokens_min > params->tokens_max)
        return errmsg_set(err, -EINVAL, "min_tokens %u is more than max_tokens %u",
                          params->tokens_min, params->tokens_max);
    params->prompt_logprobs = sampling->prompt_logprobs;
    if (params->prompt_logprobs > PROMPT_LOGPROBS_MAX + 1)
        return errmsg_set(err, -EINVAL, "prompt_logprobs is %u: at most %u",
                          params->prompt_logprobs - 1, PROMPT_LOGPROBS_MAX);
    int r = sample_params_check(&params->sampling, err);
    if (r == 0)
        r = take_logprob_ids(sampling, card, params, err);
    if (r == 0)
        r = take_thinking(sampling, card, params, err);
    if (r == 0)
        r = take_repetition(sampling, params, err);
    if (r == 0)
        r = take_stops(sampling, card, params, err);
    return r < 0 ? r : take_rules(sampling, card, params, err);
}

/* It is known by now: grammars.h makes it before, on a thread of its own. */
static int take_grammar(const Refrain__Sampling *sampling, const struct submit_limits *limits,
                        struct sequence_params *params, struct errmsg *err)
{
    const struct model_card *card = limits->card;
    const struct grammar_spec spec = {(enum grammar_kind)sampling->grammar_kind,
                                      (const char *)sampling->grammar_text.data,
                                      sampling->grammar_text.len};
    if (sampling->grammar_kind == GRAMMAR_NONE)
        return 0;
    params->end_ids_count = card->eos_count;
    memcpy(params->end_ids, card->eos_ids, card->eos_count * sizeof(params->end_ids[0]));
    return grammars_get(limits->grammars, &spec, &params->grammar, &params->grammars, err);
}

static int take_ids(const Refrain__Submit *submit, const struct submit_limits *limits,
                    struct command *command, struct errmsg *err)
{
    uint32_t count = command->params.prompt_tokens;
    size_t unpacked = 0;
    int r = frame_unpack_ids(&submit->ids, command->prompt, count, &unpacked);
    if (r < 0)
        return errmsg_set(err, -EINVAL, "the prompt's %zu bytes are no list of token ids",
                          submit->ids.len);
    for (uint32_t i = 0; i < count; i++) {
        if (command->prompt[i] >= limits->card->vocab_size)
            return errmsg_set(err, -EINVAL, "token id %u at position %u; the vocabulary has %u",
                              command->prompt[i], i, limits->card->vocab_size);
    }
    return 0;
}

/* The adapter's user is counted from here on; what blocks are called begins with its key. */
static int take_adapter(const Refrain__Submit *submit, const struct submit_limits *limits,
                        struct sequence_params *params, struct errmsg *err)
{
    struct adapter_view view = {.key = NULL};
    if (submit->adapter[0] != '\0' &&
        (limits->adapters == NULL || !adapters_find(limits->adapters, submit->adapter, &view)))
        return errmsg_set(err, -ENOENT, "the adapter '%.100s' is not loaded here", submit->adapter);
    if (view.use != NULL)
        params->adapter = adapter_enter(view.use);
    params->root = block_hash_root(limits->card->fingerprint, view.key, submit->cache_salt);
    return 0;
}

int submit_to_command(const Refrain__Submit *submit, const struct submit_limits *limits,
                      uint64_t now_ns, struct command **ret_command, struct errmsg *err)
{
    size_t count = submit->ids.len / 4;
    if (count == 0)
        return errmsg_set(err, -EINVAL, "the prompt has no tokens");
    if (count > limits->context_tokens_max)
        return errmsg_set(err, -EINVAL,
                          "the prompt has %zu tokens; this model's context is %u tokens", count,
                          limits->context_tokens_max);
    if (submit->sampling == NULL)
        return errmsg_set(err, -EINVAL, "sampling parameters are missing");
    if (strlen(submit->cache_salt) > CACHE_SALT_BYTES_MAX)
        return errmsg_set(err, -EINVAL, "cache_salt is longer than %u bytes", CACHE_SALT_BYTES_MAX);

    struct command *command = command_new(COMMAND_SUBMIT, (uint32_t)count);
    struct sequence_params *params = &command->params;
    (void)snprintf(command->request_id, sizeof(command->request_id), "%s", submit->request_id);
    params->priority = submit->priority;
    params->arrival_ns = now_ns;
    if (submit->deadline_ms > 0)
        params->deadline_ns = now_ns + (uint64_t)submit->deadline_ms * 1000000;
    params->no_prefix_reuse = submit->no_prefix_reuse;
    int r = take_adapter(submit, limits, params, err);
    if (r == 0)
        r = take_ids(submit, limits, command, err);
    if (r == 0)
        r = take_sampling(submit->sampling, limits->card, params, err);
    if (r == 0)
        r = take_grammar(submit->sampling, limits, params, err);
    if (r < 0) {
        command_free(command);
        return r;
    }
    *ret_command = command;
    return 0;
}
