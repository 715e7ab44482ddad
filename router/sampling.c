/* sampling.c - one number after the other, each from the first who says something.
 *
 *   the request's field -> the card (generation_config.json of the model) -> the API's default */
#include "router/sampling.h"

#include <math.h>

static double pick(double asked, double models, double otherwise)
{
    if (!isnan(asked))
        return asked;
    return isnan(models) || models == 0 ? otherwise : models;
}

static void fill_numbers(const struct api_request *fields, const struct model_card *card,
                         Refrain__Sampling *sampling)
{
    /* A stated temperature of 0 is greedy, so it is no "none" as 0 is for the others. */
    sampling->temperature = !isnan(fields->temperature) ? fields->temperature
                            : !isnan(card->temperature) ? card->temperature
                                                        : 1.0;
    sampling->top_p = pick(fields->top_p, card->top_p, 1);
    sampling->min_p = pick(fields->min_p, card->min_p, 0);
    sampling->top_k = fields->top_k == API_TOP_K_UNSET ? card->top_k : (uint32_t)fields->top_k;
    sampling->repetition_penalty = pick(fields->repetition_penalty, card->repetition_penalty, 1);
    sampling->presence_penalty = pick(fields->presence_penalty, NAN, 0);
    sampling->frequency_penalty = pick(fields->frequency_penalty, NAN, 0);
}

static void fill_rules(const struct token_rules *rules, Refrain__Sampling *sampling)
{
    sampling->logit_bias_ids = rules->bias_ids;
    sampling->logit_bias_values = rules->bias_values;
    sampling->allowed_ids = rules->allowed_ids;
    sampling->bad_words = rules->bad_words;
    sampling->n_bad_words = rules->bad_words_count;
    sampling->logprob_ids = rules->logprob_ids;
}

void sampling_parts_make(struct sampling_parts *parts)
{
    refrain__repetition__init(&parts->repetition);
    parts->repetition.pattern_max = parts->fields->repetition_max;
    parts->repetition.pattern_min = parts->fields->repetition_min;
    parts->repetition.count_min = parts->fields->repetition_count;
}

void sampling_fill(const struct sampling_parts *parts, uint32_t choice, uint32_t tokens_max,
                   Refrain__Sampling *ret_sampling)
{
    const struct api_request *fields = parts->fields;
    Refrain__Sampling *sampling = ret_sampling;

    refrain__sampling__init(sampling);
    fill_numbers(fields, parts->card, sampling);
    fill_rules(parts->rules, sampling);
    sampling->seed = parts->seed + choice;
    sampling->tokens_max = tokens_max;
    sampling->tokens_min = fields->tokens_min;
    sampling->stop_ids = (uint32_t *)fields->stop_ids;
    sampling->n_stop_ids = fields->stop_ids_count;
    sampling->ignore_eos = fields->ignore_eos;
    sampling->logprobs = fields->logprobs;
    if (sampling->logprobs == 0 && fields->best_of > fields->n)
        sampling->logprobs = 1; /* the router chooses by them */
    if (fields->repetition_max > 0)
        sampling->repetition = (Refrain__Repetition *)(uintptr_t)&parts->repetition;
    sampling->grammar_kind = fields->grammar.kind;
    sampling->grammar_text.data = (uint8_t *)fields->grammar.text;
    sampling->grammar_text.len = fields->grammar.bytes;
    if (choice == 0 || fields->kind != API_CHAT) /* a chat's stand beside the choices */
        sampling->prompt_logprobs = api_request_prompt_logprobs(fields);
}
