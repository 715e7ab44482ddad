/* talk.h - conversations for tests, written as one letter per message.
 *
 * s system, u user, a assistant, c assistant with a call (id = its index), t result of the call
 * right before it that is still the latest, T result of the first call. Content: letter and index.
 */
#ifndef REFRAIN_TESTS_UNIT_ROUTER_SESSION_TALK_H
#define REFRAIN_TESTS_UNIT_ROUTER_SESSION_TALK_H

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "router/session/conversation.h"

struct talk {
    struct arena arena;
    json_t *messages;
    struct conversation conversation;
};

static inline json_t *talk_message(char kind, size_t index, int last_call, int first_call)
{
    static const char letters[] = "suactT";
    static const char *const roles[] = {"system", "user", "assistant", "assistant", "tool", "tool"};
    char text[32], id[16];
    (void)snprintf(text, sizeof(text), "%c%zu", kind, index);
    json_t *message =
        json_pack("{s:s, s:s}", "role", roles[strchr(letters, kind) - letters], "content", text);
    (void)snprintf(id, sizeof(id), "call%d",
                   kind == 'c'   ? (int)index
                   : kind == 'T' ? first_call
                                 : last_call);
    if (kind == 'c')
        json_object_set_new(message, "tool_calls",
                            json_pack("[{s:s, s:s, s:{s:s, s:{}}}]", "id", id, "type", "function",
                                      "function", "name", "f", "arguments"));
    if (kind == 't' || kind == 'T')
        json_object_set_new(message, "tool_call_id", json_string(id));
    return message;
}

static inline json_t *talk_list(const char *letters)
{
    json_t *messages = json_array();
    int last_call = -1, first_call = -1;
    for (size_t i = 0; letters[i]; i++) {
        if (letters[i] == 'c') {
            last_call = (int)i;
            first_call = first_call < 0 ? (int)i : first_call;
        }
        json_array_append_new(messages, talk_message(letters[i], i, last_call, first_call));
    }
    return messages;
}

/* Takes the messages. */
static inline void talk_read(struct talk *talk, json_t *messages, uint64_t seed)
{
    arena_init(&talk->arena, (size_t)1 << 24);
    talk->messages = messages;
    assert_int_equal(conversation_read(messages, NULL, seed, &talk->arena, &talk->conversation), 0);
}

static inline void talk_init(struct talk *talk, const char *letters)
{
    talk_read(talk, talk_list(letters), 1);
}

static inline void talk_done(struct talk *talk)
{
    json_decref(talk->messages);
    arena_done(&talk->arena);
}

#endif
