/* history.c - the walk over all turns so far, and the places where a cut may be.
 *
 * Cost: O(messages). A place is allowed when no result at or behind it answers a call before it;
 * one walk from the end knows the earliest call that is still needed. Places are judged with the
 * whole conversation, so a result that comes late may move an old cut, never break a pair. */
#include "router/session/history.h"

#include <errno.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/base/number.h"

static int set_limit(enum history_kind kind, uint64_t limit, uint64_t max,
                     struct history_policy *ret, struct errmsg *err)
{
    const char *name = kind == HISTORY_LAST_MESSAGES ? "last_messages" : "token_budget";

    if (limit < 1 || limit > max)
        return errmsg_set(err, -EINVAL, "'%s' must be from 1 to %llu, not %llu", name,
                          (unsigned long long)max, (unsigned long long)limit);
    ret->kind = kind;
    ret->limit = (uint32_t)limit;
    return 0;
}

int history_parse(const char *text, struct history_policy *ret, struct errmsg *err)
{
    uint64_t limit = 0;

    if (strcmp(text, "full") == 0) {
        ret->kind = HISTORY_FULL;
        return 0;
    }
    if (strncmp(text, "last_messages=", 14) == 0 && number_parse_u64(text + 14, &limit) == 0)
        return set_limit(HISTORY_LAST_MESSAGES, limit, HISTORY_LAST_MAX, ret, err);
    if (strncmp(text, "token_budget=", 13) == 0 && number_parse_u64(text + 13, &limit) == 0)
        return set_limit(HISTORY_TOKEN_BUDGET, limit, HISTORY_TOKENS_MAX, ret, err);
    return errmsg_set(err, -EINVAL,
                      "must be full, last_messages=N or token_budget=N with a whole number N");
}

static int parse_member(const json_t *value, enum history_kind kind, uint64_t max,
                        struct history_policy *ret, struct errmsg *err)
{
    const char *name = kind == HISTORY_LAST_MESSAGES ? "last_messages" : "token_budget";

    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return errmsg_set(err, -EINVAL, "'%s' must be an integer from 1 to %llu", name,
                          (unsigned long long)max);
    return set_limit(kind, (uint64_t)json_integer_value(value), max, ret, err);
}

int history_parse_json(const json_t *value, struct history_policy *ret, struct errmsg *err)
{
    const char *text = json_string_value(value);
    const json_t *last = json_object_get(value, "last_messages");
    const json_t *budget = json_object_get(value, "token_budget");

    if (text && strlen(text) == json_string_length(value)) /* as the setting spells it */
        return history_parse(text, ret, err);
    if (json_object_size(value) == 1 && last)
        return parse_member(last, HISTORY_LAST_MESSAGES, HISTORY_LAST_MAX, ret, err);
    if (json_object_size(value) == 1 && budget)
        return parse_member(budget, HISTORY_TOKEN_BUDGET, HISTORY_TOKENS_MAX, ret, err);
    return errmsg_set(err, -EINVAL,
                      "must be \"full\", {\"last_messages\": N} or {\"token_budget\": N}, or a "
                      "string as --history takes it");
}

/* places[i]: 1 where a cut may be. */
static void find_places(const struct conversation *c, uint8_t *places)
{
    uint32_t earliest_call = c->count;

    for (uint32_t i = c->count; i-- > c->head;) {
        if (c->messages[i].call < earliest_call) /* NO_CALL is larger than any */
            earliest_call = c->messages[i].call;
        places[i] = c->messages[i].role == MESSAGE_USER && earliest_call >= i;
    }
}

/* What a walk knows: sums[i] is the size of messages [0, i). */
struct walk {
    const struct conversation *conversation;
    uint64_t *sums;
    uint8_t *places;
    uint64_t base, high, low;
    uint32_t first; /* the cut so far */
};

static uint64_t size_from(const struct walk *w, uint32_t first, uint32_t end)
{
    return w->base + w->sums[w->conversation->head] + w->sums[end] - w->sums[first];
}

/* A request ended at `end`, and `last` is the latest place before it: cut if it was too large. */
static void walk_turn(struct walk *w, uint32_t end, uint32_t last)
{
    uint32_t best = w->first;

    if (size_from(w, w->first, end) <= w->high)
        return;
    for (uint32_t i = w->first + 1; i <= last; i++) {
        if (!w->places[i])
            continue;
        best = i;
        if (size_from(w, i, end) <= w->low)
            break;
    }
    w->first = best;
}

static void walk_all(struct walk *w)
{
    const struct conversation *c = w->conversation;
    uint32_t last = c->head;

    for (uint32_t end = c->head + 1; end <= c->count; end++) {
        if (w->places[end - 1])
            last = end - 1;
        if (conversation_is_turn(c, end) && last > w->first)
            walk_turn(w, end, last);
    }
}

uint32_t history_first(const struct history_policy *policy, const struct conversation *c,
                       const uint32_t *tokens, uint32_t base_tokens)
{
    struct walk w = {.conversation = c, .first = c->head, .high = policy->limit};
    bool counts_tokens = policy->kind == HISTORY_TOKEN_BUDGET;

    if (policy->kind == HISTORY_FULL)
        return c->head;
    w.low = (uint64_t)policy->limit * policy->low_water_percent / 100;
    w.base = counts_tokens ? base_tokens : 0;
    w.sums = mem_calloc(c->count + 1, sizeof(*w.sums));
    w.places = mem_calloc(c->count + 1, sizeof(*w.places));
    for (uint32_t i = 0; i < c->count; i++)
        w.sums[i + 1] = w.sums[i] + (counts_tokens ? tokens[i] : (uint32_t)(i >= c->head));
    find_places(c, w.places);
    walk_all(&w);
    mem_free(w.sums);
    mem_free(w.places);
    return w.first;
}

uint32_t history_least(const struct conversation *c)
{
    uint8_t *places = mem_calloc(c->count + 1, sizeof(*places));
    uint32_t least = c->head;

    find_places(c, places);
    for (uint32_t i = c->head; i < c->count; i++)
        least = places[i] ? i : least;
    mem_free(places);
    return least;
}
