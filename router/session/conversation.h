/* conversation.h - the messages of a chat as values: who speaks, a hash, which call a result
 * answers.
 *
 * What history, limits and records compare; no text is kept. A hash covers every member of a
 * message that is not null, whatever their order. `chain[i]` names the first i messages together
 * with the seed (model and cache salt), so two tenants never share a name. Ownership: the arena.
 * Thread: any. */
#ifndef REFRAIN_ROUTER_SESSION_CONVERSATION_H
#define REFRAIN_ROUTER_SESSION_CONVERSATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/arena.h"

#define CONVERSATION_NO_CALL UINT32_MAX

enum message_role { MESSAGE_SYSTEM = 0, MESSAGE_USER, MESSAGE_ASSISTANT, MESSAGE_TOOL };

struct message_value {
    enum message_role role; /* developer counts as system */
    uint32_t call;          /* MESSAGE_TOOL: index of the message with its call, or NO_CALL */
    uint64_t hash;          /* of all members */
    uint64_t content_hash;  /* of the content alone */
};

struct conversation {
    struct message_value *messages;
    uint64_t *chain; /* count + 1 */
    uint32_t count;
    uint32_t head;         /* system messages that it begins with */
    uint64_t system_hash;  /* of these; 0: none */
    uint64_t first_hash;   /* of the first message of a user, with the seed; 0: none */
    uint64_t tools_hash;   /* 0: none */
    const char *head_text; /* content of the first system message; "" */
    size_t head_bytes;
};

/* messages: as messages_read() made them; tools: NULL for none. 0, or -ENOMEM: the arena is full.
 */
int conversation_read(const json_t *messages, const json_t *tools, uint64_t seed,
                      struct arena *arena, struct conversation *ret);
/* True: a request may have ended before message `end`: what stands there is the model's answer, or
 * the end of the list. */
bool conversation_is_turn(const struct conversation *conversation, uint32_t end);

uint64_t conversation_hash_text(const char *text, size_t bytes);
/* 0 for NULL. */
uint64_t conversation_hash_json(const json_t *value);
/* Of two hashes, in this order. */
uint64_t conversation_hash_pair(uint64_t a, uint64_t b);

#endif
