/* turn_history.c - the history policy on a real prompt: counting, cutting, and the exact check.
 *
 *   message tokens    tokenizer over its texts (token_counts) + `glue`, the template's share
 *   glue              measured once: a chat of three short messages against one of one
 *   base              measured once per head and tools: what a prompt has besides its messages
 *   history_first()   from these counts, so the same cuts in every turn
 *   exact check       the prompt itself; past the budget the budget is taken for 1/8 less and all
 *                     is done again, the last time with no more than what must stay
 *
 * Estimates are a little off (tokens merge across borders); a prompt is never past its budget. Cost
 * of a turn: new messages are counted, and one prompt is made, as without a policy. */
#include <errno.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "router/turn_private.h"

#define COUNT_TOKENS_MAX HISTORY_TOKENS_MAX
#define TRIES 8u
#define GLUE_UNKNOWN 8u /* a template that refuses the probe */
/* A count this close past the budget is checked against the whole prompt before it is cut. */
#define CLOSE_PERCENT 106u

/* ---- counting ---- */

static uint32_t count_text(const struct turn *turn, const char *text, size_t bytes)
{
    const struct tokenize_options options = {0};
    struct token_ids ids;
    uint32_t count = COUNT_TOKENS_MAX;

    if (bytes == 0)
        return 0;
    token_ids_init(&ids, COUNT_TOKENS_MAX);
    if (tokenizer_encode(turn->model->maker.tokenizer, text, bytes, &options, &ids) == 0)
        count = (uint32_t)ids.count;
    token_ids_done(&ids);
    return count;
}

/* All texts of a message but its role. */
static uint32_t count_message(const struct turn *turn, const json_t *message)
{
    json_t *object = (json_t *)(uintptr_t)message; /* for jansson's iterators */
    uint32_t count = 0;

    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const json_t *value = json_object_iter_value(at);
        struct buffer text;
        if (strcmp(json_object_iter_key(at), "role") == 0 || json_is_null(value))
            continue;
        if (json_is_string(value)) {
            count += count_text(turn, json_string_value(value), json_string_length(value));
            continue;
        }
        buffer_init(&text, SIZE_MAX); /* bounded by the body */
        json_append_value(&text, value);
        count += count_text(turn, text.data, text.bytes);
        buffer_done(&text);
    }
    return count < COUNT_TOKENS_MAX ? count : COUNT_TOKENS_MAX;
}

static uint32_t message_tokens(const struct turn *turn, uint32_t index)
{
    struct token_counts *counts = turn->sessions->counts;
    uint64_t key =
        conversation_hash_pair(turn->model_hash, turn->conversation.messages[index].hash);
    uint32_t tokens = 0;

    if (token_counts_get(counts, key, &tokens))
        return tokens;
    tokens = count_message(turn, json_array_get(turn->fields->messages, index));
    token_counts_set(counts, key, tokens);
    return tokens;
}

/* Tokens of a whole prompt; 0: the template refuses it, or it is far too long. */
static uint32_t prompt_tokens(const struct turn *turn, json_t *messages, const json_t *tools)
{
    struct api_request part = *turn->fields;
    struct api_error error;
    struct token_ids ids;
    uint32_t count = 0;

    part.messages = messages;
    part.tools = tools;
    part.add_generation_prompt = true;
    part.continue_final_message = false;
    token_ids_init(&ids, COUNT_TOKENS_MAX);
    if (prompt_from_chat(turn->maker, &part, &ids, NULL, &error) == 0)
        count = (uint32_t)ids.count;
    token_ids_done(&ids);
    return count;
}

/* What the template writes around each message. */
static uint32_t measure_glue(const struct turn *turn)
{
    json_t *one = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
    json_t *three =
        json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a", "role",
                  "assistant", "content", "b", "role", "user", "content", "c");
    uint32_t texts = count_text(turn, "b", 1) + count_text(turn, "c", 1);
    uint32_t small = prompt_tokens(turn, one, NULL), large = prompt_tokens(turn, three, NULL);

    json_decref(one);
    json_decref(three);
    if (small == 0 || large < small + texts)
        return GLUE_UNKNOWN;
    return (large - small - texts + 1) / 2;
}

/* What the prompt has besides its messages: measured on the head and the first user message. */
static uint32_t measure_base(const struct turn *turn, const uint32_t *tokens)
{
    const struct conversation *c = &turn->conversation;
    json_t *list = json_array();
    uint32_t user = c->head, counted = 0;

    while (user < c->count && c->messages[user].role != MESSAGE_USER)
        user++;
    for (uint32_t i = 0; i < c->count; i++) {
        if (i >= c->head && i != user)
            continue;
        (void)json_array_append(list, json_array_get(turn->fields->messages, i));
        counted += tokens[i];
    }
    uint32_t all = prompt_tokens(turn, list, turn->fields->tools);
    json_decref(list);
    return all > counted ? all - counted : 0;
}

static uint32_t known_glue(const struct turn *turn)
{
    const uint64_t parts[] = {turn->model_hash, turn->template_hash};
    uint64_t key =
        conversation_hash_pair(conversation_hash_text((const char *)parts, sizeof(parts)),
                               conversation_hash_text("glue", 4));
    uint32_t glue = 0;

    if (!token_counts_get(turn->sessions->counts, key, &glue)) {
        glue = measure_glue(turn);
        token_counts_set(turn->sessions->counts, key, glue);
    }
    return glue;
}

static uint32_t known_base(const struct turn *turn, const uint32_t *tokens)
{
    const struct conversation *c = &turn->conversation;
    const uint64_t parts[] = {turn->model_hash,
                              c->system_hash,
                              c->tools_hash,
                              c->first_hash,
                              conversation_hash_json(turn->fields->kwargs),
                              turn->template_hash};
    uint64_t key = conversation_hash_text((const char *)parts, sizeof(parts));
    uint32_t base = 0;

    if (!token_counts_get(turn->sessions->counts, key, &base)) {
        base = measure_base(turn, tokens);
        token_counts_set(turn->sessions->counts, key, base);
    }
    return base;
}

/* ---- prompts ---- */

static int make_prompt(struct turn *turn, uint32_t first, struct token_ids *out,
                       struct prompt_trace *ret_trace, struct api_error *error)
{
    const struct prompt_maker *maker = turn->maker;
    struct api_request part = *turn->fields;
    json_t *kept = NULL;

    if (turn->has_rendered)
        rendered_done(&turn->rendered);
    turn->has_rendered = false;
    turn->first = first;
    out->count = 0;
    if (first > turn->conversation.head) {
        kept = json_array();
        for (uint32_t i = 0; i < turn->conversation.count; i++) {
            if (i < turn->conversation.head || i >= first)
                (void)json_array_append(kept, json_array_get(part.messages, i));
        }
        part.messages = kept;
    }
    int r = prompt_render(maker, &part, clock_unix(), &turn->rendered, error);
    turn->has_rendered = r == 0;
    if (r == 0)
        r = prompt_encode(maker, &part, &turn->rendered, out, ret_trace, error);
    json_decref(kept);
    return r;
}

static int refuse_budget(const struct history_policy *policy, size_t tokens,
                         struct api_error *error)
{
    return api_error_set(error, 400, "context_length_exceeded", "messages",
                         "The system messages, the last message of the user and all behind it make "
                         "a prompt of %zu tokens; the history's token budget is %u. Please shorten "
                         "them or raise 'refrain.history'.",
                         tokens, policy->limit);
}

static bool fits(const struct history_policy *policy, int r, const struct token_ids *out)
{
    return r == 0 && out->count <= policy->limit;
}

static uint64_t sum_of(const struct turn *turn, const uint32_t *tokens, uint32_t base)
{
    uint64_t sum = base;
    for (uint32_t i = 0; i < turn->conversation.count; i++)
        sum += tokens[i];
    return sum;
}

/* 0, or the error of the smallest prompt that there is. */
static int make_within_budget(struct turn *turn, const struct history_policy *policy,
                              const uint32_t *tokens, struct token_ids *out,
                              struct prompt_trace *ret_trace, struct api_error *error)
{
    const struct conversation *c = &turn->conversation;
    uint32_t base = known_base(turn, tokens), least = history_least(c), first = c->count;
    struct history_policy less = *policy;
    int r = 0;

    if (history_first(policy, c, tokens, base) > c->head &&
        sum_of(turn, tokens, base) * 100 <= (uint64_t)policy->limit * CLOSE_PERCENT) {
        r = make_prompt(turn, c->head, out, ret_trace, error);
        if (fits(policy, r, out))
            return 0;
    }
    for (uint32_t i = 0; i <= TRIES; i++) {
        less.limit = policy->limit - (uint32_t)((uint64_t)policy->limit * i / TRIES);
        uint32_t next = i < TRIES ? history_first(&less, c, tokens, base) : least;
        if (next == first)
            continue; /* the same prompt as just now */
        first = next;
        r = make_prompt(turn, first, out, ret_trace, error);
        if (fits(policy, r, out))
            return 0;
    }
    return r < 0 ? r : refuse_budget(policy, out->count, error);
}

int turn_apply_history(struct turn *turn, struct token_ids *out, struct prompt_trace *ret_trace,
                       struct api_error *error)
{
    const struct conversation *c = &turn->conversation;
    struct history_policy policy = turn->sessions->settings.history;
    int r;

    if (turn->fields->has_history) {
        policy.kind = turn->fields->history.kind;
        policy.limit = turn->fields->history.limit;
    }
    if (policy.kind == HISTORY_FULL)
        return make_prompt(turn, c->head, out, ret_trace, error);
    uint32_t glue = known_glue(turn);
    uint32_t *tokens = mem_calloc(c->count + 1, sizeof(*tokens));
    for (uint32_t i = 0; i < c->count; i++)
        tokens[i] = message_tokens(turn, i) + glue;
    if (policy.kind == HISTORY_TOKEN_BUDGET)
        r = make_within_budget(turn, &policy, tokens, out, ret_trace, error);
    else
        r = make_prompt(turn, history_first(&policy, c, NULL, 0), out, ret_trace, error);
    for (uint32_t i = c->head; i < turn->first; i++)
        turn->cut_tokens += tokens[i];
    mem_free(tokens);
    return r;
}
