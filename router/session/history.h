/* history.h - which messages of a long chat the model still sees.
 *
 *   full               all of them; a prompt that does not fit is refused
 *   last_messages=N    at most N behind the system messages
 *   token_budget=N     a prompt of at most N tokens
 *
 *   | system | dropped ... | user ... last user, and all behind it |
 *            head          first                                   count
 *
 * Kept always: the system messages at the head, the last message of a user and all behind it. A
 * cut begins at a message of a user, and never between a tool call and one of its results.
 *
 * Cache-stable: dropping one turn per turn would change the prompt's beginning every time, so that
 * nothing could be reused. A chat that passes N is cut down to a low-water mark instead, and then
 * grows with one unchanging beginning until it passes N again. Nothing is remembered for this: the
 * cuts of all turns so far are worked out anew from the first message on, so turn N + 1 comes to
 * the same cuts as turn N did, on any router. Thread: any. */
#ifndef REFRAIN_ROUTER_SESSION_HISTORY_H
#define REFRAIN_ROUTER_SESSION_HISTORY_H

#include <jansson.h>

#include "proto/base/errmsg.h"
#include "router/session/conversation.h"

#define HISTORY_LAST_MAX 10000u
#define HISTORY_TOKENS_MAX (1u << 24)
#define HISTORY_LOW_WATER_PERCENT 50u

enum history_kind { HISTORY_FULL = 0, HISTORY_LAST_MESSAGES, HISTORY_TOKEN_BUDGET };

struct history_policy {
    enum history_kind kind;
    uint32_t limit;             /* messages or tokens; unused by full */
    uint32_t low_water_percent; /* of limit: what a cut leaves */
};

/* "full", "last_messages=20", "token_budget=4096"; low_water_percent is left alone. -EINVAL. */
int history_parse(const char *text, struct history_policy *ret_policy, struct errmsg *err);
/* {"last_messages": 20}, {"token_budget": 4096}, or a string as history_parse takes it. -EINVAL. */
int history_parse_json(const json_t *value, struct history_policy *ret_policy, struct errmsg *err);

/* Index of the first message behind the head that stays: head when nothing is cut, else a message
 * of a user. tokens: of each message with its share of the template, NULL unless the policy
 * counts tokens; base_tokens: what the prompt has besides (tools, the answer's opening). The parts
 * that stay always may be more than the limit: history_least() tells where they begin. */
uint32_t history_first(const struct history_policy *policy, const struct conversation *conversation,
                       const uint32_t *tokens, uint32_t base_tokens);
/* The latest cut that there is. */
uint32_t history_least(const struct conversation *conversation);

#endif
