/* conversation.c - one walk over the messages: hashes, roles, calls.
 *
 * Members of a message are summed, so that a client may send them in another order; inside a value
 * the order counts, because templates write it out. A result without a known call id belongs to
 * the last call before it. Cost: one hash over the text. */
#include "router/session/conversation.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/buffer.h"
#include "proto/base/json.h"
#include "proto/base/map.h"

uint64_t conversation_hash_text(const char *text, size_t bytes)
{
    return XXH3_64bits(text, bytes);
}

uint64_t conversation_hash_pair(uint64_t a, uint64_t b)
{
    const uint64_t pair[2] = {a, b};
    return XXH3_64bits(pair, sizeof(pair));
}

uint64_t conversation_hash_json(const json_t *value)
{
    struct buffer text;

    if (!value)
        return 0;
    if (json_is_string(value))
        return conversation_hash_text(json_string_value(value), json_string_length(value));
    buffer_init(&text, SIZE_MAX); /* bounded by the body */
    json_append_value(&text, value);
    uint64_t hash = conversation_hash_text(text.data, text.bytes);
    buffer_done(&text);
    return hash;
}

static uint64_t hash_message(const json_t *message)
{
    /* jansson's iterators want a pointer without const; nothing is changed. */
    json_t *object = (json_t *)(uintptr_t)message;
    uint64_t sum = 0;

    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const json_t *value = json_object_iter_value(at);
        uint64_t key =
            conversation_hash_text(json_object_iter_key(at), json_object_iter_key_len(at));
        if (!json_is_null(value))
            sum += conversation_hash_pair(key, conversation_hash_json(value));
    }
    return sum;
}

static enum message_role role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));

    if (role && strcmp(role, "user") == 0)
        return MESSAGE_USER;
    if (role && strcmp(role, "assistant") == 0)
        return MESSAGE_ASSISTANT;
    return role && strcmp(role, "tool") == 0 ? MESSAGE_TOOL : MESSAGE_SYSTEM;
}

/* Call id -> index + 1 of the latest message with it. */
static void note_calls(struct map *calls, const json_t *message, uint32_t index)
{
    const json_t *list = json_object_get(message, "tool_calls");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_object_get(json_array_get(list, i), "id");
        if (json_string_length(id) > 0)
            (void)map_set(calls, json_string_value(id), json_string_length(id),
                          (void *)(uintptr_t)(index + 1), NULL);
    }
}

static uint32_t find_call(const struct map *calls, const json_t *message, uint32_t last_call)
{
    const json_t *id = json_object_get(message, "tool_call_id");
    uintptr_t found = 0;

    if (json_string_length(id) > 0)
        found = (uintptr_t)map_get(calls, json_string_value(id), json_string_length(id));
    return found ? (uint32_t)found - 1 : last_call;
}

static void read_messages(const json_t *list, struct conversation *c)
{
    struct map *calls = map_new(0);
    uint32_t last_call = CONVERSATION_NO_CALL;

    for (uint32_t i = 0; i < c->count; i++) {
        const json_t *message = json_array_get(list, i);
        struct message_value *value = &c->messages[i];
        value->role = role_of(message);
        value->call = CONVERSATION_NO_CALL;
        value->hash = hash_message(message);
        value->content_hash = conversation_hash_json(json_object_get(message, "content"));
        if (json_array_size(json_object_get(message, "tool_calls")) > 0) {
            last_call = i;
            note_calls(calls, message, i);
        }
        if (value->role == MESSAGE_TOOL)
            value->call = find_call(calls, message, last_call);
        c->chain[i + 1] = conversation_hash_pair(c->chain[i], value->hash);
    }
    map_free(calls);
}

static void note_head(const json_t *list, struct conversation *c)
{
    uint32_t user = 0;

    while (c->head < c->count && c->messages[c->head].role == MESSAGE_SYSTEM)
        c->system_hash = conversation_hash_pair(c->system_hash, c->messages[c->head++].hash);
    while (user < c->count && c->messages[user].role != MESSAGE_USER)
        user++;
    if (user < c->count)
        c->first_hash = conversation_hash_pair(c->chain[0], c->messages[user].hash);
    c->head_text = "";
    if (c->head > 0) {
        const json_t *content = json_object_get(json_array_get(list, 0), "content");
        c->head_text = json_is_string(content) ? json_string_value(content) : "";
        c->head_bytes = json_string_length(content);
    }
}

int conversation_read(const json_t *messages, const json_t *tools, uint64_t seed,
                      struct arena *arena, struct conversation *ret)
{
    struct conversation c = {.count = (uint32_t)json_array_size(messages)};

    c.messages = arena_zalloc(arena, (c.count + 1) * sizeof(*c.messages));
    c.chain = arena_zalloc(arena, (c.count + 1) * sizeof(*c.chain));
    if (!c.messages || !c.chain)
        return -ENOMEM;
    c.chain[0] = seed;
    read_messages(messages, &c);
    note_head(messages, &c);
    c.tools_hash = conversation_hash_json(tools);
    *ret = c;
    return 0;
}

bool conversation_is_turn(const struct conversation *c, uint32_t end)
{
    if (end == 0 || end > c->count)
        return false;
    return end == c->count || (c->messages[end].role == MESSAGE_ASSISTANT &&
                               c->messages[end - 1].role != MESSAGE_ASSISTANT);
}
