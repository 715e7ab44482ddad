/* tool_calls.c - a growing list, and ids. */
#include "router/answer/tool_calls.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

#define ID_LETTERS_LONG 24u
#define ID_LETTERS_SHORT 9u

void tool_calls_init(struct tool_calls *calls, uint32_t count_max, bool short_ids,
                     size_t arguments_bytes_max)
{
    ASSERT(count_max >= 1 && count_max <= TOOL_CALLS_MAX);
    *calls = (struct tool_calls){.count_max = count_max, .short_ids = short_ids};
    buffer_init(&calls->arguments, arguments_bytes_max);
}

void tool_calls_done(struct tool_calls *calls)
{
    mem_free(calls->list);
    buffer_done(&calls->arguments);
}

void tool_calls_clear(struct tool_calls *calls)
{
    calls->count = 0;
    buffer_clear(&calls->arguments);
}

static void make_id(struct tool_calls *calls, char id[TOOL_ID_MAX])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    uint32_t random[ID_LETTERS_LONG];
    unsigned count = calls->short_ids ? ID_LETTERS_SHORT : ID_LETTERS_LONG;
    size_t at = 0;

    rng_system(random, sizeof(random));
    if (!calls->short_ids) {
        memcpy(id, "call_", 5);
        at = 5;
    }
    for (unsigned i = 0; i < count; i++)
        id[at++] = letters[random[i] % (sizeof(letters) - 1)];
    id[at] = '\0';
}

void tool_calls_add(struct tool_calls *calls, const char *name, size_t bytes)
{
    ASSERT(calls->count < calls->count_max);
    ASSERT(bytes > 0 && bytes <= TOOL_NAME_MAX);
    if (calls->count == calls->capacity) {
        calls->capacity = calls->capacity ? 2 * calls->capacity : 4;
        calls->list = mem_realloc(calls->list, calls->capacity * sizeof(*calls->list));
    }
    struct tool_call *call = &calls->list[calls->count++];
    *call = (struct tool_call){.from = calls->arguments.bytes};
    memcpy(call->name, name, bytes);
    make_id(calls, call->id);
}

void tool_calls_append(struct tool_calls *calls, const char *text, size_t bytes)
{
    ASSERT(calls->count > 0);
    buffer_append(&calls->arguments, text, bytes);
    if (!calls->arguments.failed)
        calls->list[calls->count - 1].bytes += bytes;
}

const char *tool_call_arguments(const struct tool_calls *calls, const struct tool_call *call)
{
    ASSERT(call->from + call->bytes <= calls->arguments.bytes);
    return calls->arguments.data + call->from;
}
