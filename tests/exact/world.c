/* world.c - making requests. */
#include "tests/exact/world.h"

#include <string.h>

#define SUFFIX_MAX 16u

static void append(struct world_request *request, const uint32_t *ids, uint32_t count)
{
    uint32_t room = PROMPT_TOKENS_MAX - request->prompt_tokens;
    count = count < room ? count : room;
    memcpy(request->ids + request->prompt_tokens, ids, count * sizeof(*ids));
    request->prompt_tokens += count;
}

static void append_random(struct world_request *request, uint32_t count, uint32_t vocab_size,
                          struct random *random)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = draw(random, vocab_size);
        append(request, &id, 1);
    }
}

/* A prefix of another prompt, now and then up to a block's border. */
static void append_head(struct world_request *request, const struct world_request *base,
                        uint32_t vocab_size, struct random *random)
{
    uint32_t longest = base->prompt_tokens < PROMPT_TOKENS_MAX - SUFFIX_MAX
                           ? base->prompt_tokens
                           : PROMPT_TOKENS_MAX - SUFFIX_MAX;
    uint32_t count = 1 + draw(random, longest);
    if (draw(random, 4) == 0 && count > BLOCK_TOKENS)
        count -= count % BLOCK_TOKENS;
    append(request, base->ids, count);
    append_random(request, 1 + draw(random, SUFFIX_MAX), vocab_size, random);
}

static void make_prompt(struct world_request *requests, uint32_t before, uint32_t vocab_size,
                        struct random *random)
{
    struct world_request *request = &requests[before];
    uint32_t kind = before == 0 ? 0 : draw(random, 10);
    const struct world_request *base = &requests[before == 0 ? 0 : draw(random, before)];
    uint32_t turn = base->prompt_tokens + base->alone.count;

    if (kind == 0) {
        append_random(request, PROMPT_TOKENS_MIN + draw(random, 32), vocab_size, random);
    } else if (kind == 1) {
        append(request, base->ids, base->prompt_tokens);
    } else if (kind < 6 && turn < PROMPT_TOKENS_MAX) {
        append(request, base->ids, base->prompt_tokens);
        append(request, base->alone.ids, base->alone.count);
        append_random(request, 1 + draw(random, SUFFIX_MAX), vocab_size, random);
        request->turn_of = (uint32_t)(base - requests);
    } else {
        append_head(request, base, vocab_size, random);
    }
    if (request->prompt_tokens < PROMPT_TOKENS_MIN)
        append_random(request, PROMPT_TOKENS_MIN - request->prompt_tokens, vocab_size, random);
}

static struct sample_params make_sampling(struct random *random)
{
    /* One draw a line: the order must not be the compiler's choice. */
    struct sample_params sampling = {.top_p = 1.0, .repetition_penalty = 1.0};
    sampling.seed = draw(random, UINT32_MAX);
    if (draw(random, 2) == 0)
        sampling.temperature = 0.5 + draw(random, 100) / 100.0;
    if (draw(random, 3) == 0)
        sampling.top_k = 40;
    if (draw(random, 3) == 0)
        sampling.top_p = 0.9;
    if (draw(random, 4) == 0)
        sampling.min_p = 0.02;
    if (draw(random, 4) == 0) {
        sampling.repetition_penalty = 1.2;
        sampling.presence_penalty = 0.5;
        sampling.frequency_penalty = 0.25;
    }
    if (draw(random, 4) == 0)
        sampling.logprobs = 1 + draw(random, 4);
    return sampling;
}

/* What ends an answer, or a part of it, early. Draws of its own: the other numbers stay what they
 * were. */
static void make_ends(struct world_request *request, uint32_t before, const struct random *random)
{
    struct random own = {.seed = random->seed + 1, .position = (uint64_t)before * 4};

    request->thinking_tokens = draw(&own, 4) == 0 ? draw(&own, 8) : NO_THINKING;
    if (draw(&own, 4) == 0)
        request->repetition = (struct repetition_rule){1, 1 + draw(&own, 4), 3};
}

void world_make_request(struct world_request *requests, uint32_t before, uint32_t vocab_size,
                        struct random *random)
{
    struct world_request *request = &requests[before];

    memset(request, 0, sizeof(*request));
    request->turn_of = NO_REQUEST;
    make_prompt(requests, before, vocab_size, random);
    request->sampling = make_sampling(random);
    request->tokens_max =
        ANSWER_TOKENS_MIN + draw(random, ANSWER_TOKENS_MAX - ANSWER_TOKENS_MIN + 1);
    request->prompt_logprobs = draw(random, 16) == 0 ? 1 + draw(random, 3) : 0;
    make_ends(request, before, random);
    request->root = request->turn_of != NO_REQUEST
                        ? requests[request->turn_of].root
                        : block_hash_root("exact", "", draw(random, 8) == 0 ? "other" : "");
}
