/* trace.c - see the header. Files come from shared/cases/traces through gzip. */
#include "tests/sim/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/block_hash.h"

#define LINE_BYTES_MAX (1u << 20)
#define SHARED_TOKENS 200u
#define USER_TOKENS 100u
#define ANSWER_TOKENS 32u
#define CHATS_MAX 4096u

/* The history of one chat: what its next prompt begins with. */
struct history {
    uint32_t *ids;
    uint32_t count, capacity;
};

static void add_id(struct history *history, uint32_t id)
{
    if (history->count == history->capacity) {
        history->capacity = history->capacity == 0 ? 256 : 2 * history->capacity;
        history->ids = mem_realloc(history->ids, history->capacity * sizeof(*history->ids));
    }
    history->ids[history->count++] = id;
}

static struct sim_request *add_request(struct sim_trace *trace)
{
    if (trace->count == trace->capacity) {
        trace->capacity = trace->capacity == 0 ? 256 : 2 * trace->capacity;
        trace->requests = mem_realloc(trace->requests, trace->capacity * sizeof(*trace->requests));
    }
    struct sim_request *request = &trace->requests[trace->count++];
    memset(request, 0, sizeof(*request));
    return request;
}

/* `history` is the prompt and, behind prompt_tokens, the answer. */
static void take_turn(struct sim_trace *trace, const struct history *history,
                      uint32_t prompt_tokens)
{
    struct sim_request *request = add_request(trace);

    request->ids = mem_alloc(history->count * sizeof(*request->ids));
    memcpy(request->ids, history->ids, history->count * sizeof(*request->ids));
    request->prompt_tokens = prompt_tokens;
    request->answer_tokens = history->count - prompt_tokens;
}

void sim_trace_done(struct sim_trace *trace)
{
    for (uint32_t i = 0; i < trace->count; i++)
        mem_free(trace->requests[i].ids);
    mem_free(trace->requests);
    *trace = (struct sim_trace){.count = 0};
}

static uint32_t draw(uint64_t *random, uint32_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)((*random >> 33) % below);
}

/* --- files --- */

static FILE *open_lines(const char *name)
{
    char command[512];

    (void)snprintf(command, sizeof(command), "gzip -dc '%s/cases/traces/%s' 2>/dev/null",
                   SHARED_DIR, name);
    return popen(command, "r");
}

static json_t *next_line(FILE *file, char *line)
{
    if (fgets(line, LINE_BYTES_MAX, file) == NULL)
        return NULL;
    json_t *value = json_loads(line, 0, NULL);
    ASSERT(value != NULL);
    return value;
}

bool sim_trace_mooncake(struct sim_trace *ret_trace)
{
    struct sim_trace trace = {.name = "mooncake", .blocks_only = true};
    FILE *file = open_lines("mooncake_conversation_trace.jsonl.gz");
    char *line = mem_alloc(LINE_BYTES_MAX);
    json_t *value;

    while ((value = next_line(file, line)) != NULL) {
        const json_t *hash_ids = json_object_get(value, "hash_ids");
        uint32_t blocks = (uint32_t)json_array_size(hash_ids);
        struct sim_request *request = add_request(&trace);
        request->ids = mem_calloc((size_t)blocks * BLOCK_TOKENS, sizeof(*request->ids));
        for (uint32_t i = 0; i < blocks; i++)
            request->ids[i * BLOCK_TOKENS] =
                (uint32_t)json_integer_value(json_array_get(hash_ids, i));
        request->prompt_tokens = blocks * BLOCK_TOKENS;
        request->trace_tokens =
            (uint32_t)json_integer_value(json_object_get(value, "input_length"));
        json_decref(value);
    }
    mem_free(line);
    (void)pclose(file);
    *ret_trace = trace;
    return trace.count > 0;
}

static void add_message(struct history *history, uint32_t role, const char *text)
{
    size_t bytes = strlen(text);

    add_id(history, 1);
    add_id(history, role);
    add_id(history, 2);
    for (size_t at = 0; at < bytes; at += 4) {
        uint32_t id = 0;
        memcpy(&id, text + at, bytes - at < 4 ? bytes - at : 4);
        add_id(history, id & INT32_MAX);
    }
    add_id(history, 3);
    add_id(history, 4);
}

struct dialogue {
    json_t *turns;
    struct history history;
    uint32_t next;
};

/* The next turn of a dialogue; what it thinks is in its request only. */
static void play_turn(struct sim_trace *trace, struct dialogue *dialogue, uint32_t thinking)
{
    const json_t *turn = json_array_get(dialogue->turns, dialogue->next++);
    struct history *history = &dialogue->history;
    struct history whole = {.ids = NULL};

    if (history->count == 0)
        add_message(history, 5,
                    "You are a helpful assistant. Answer briefly and to the point; say "
                    "so when you do not know.");
    add_message(history, 6, json_string_value(json_object_get(turn, "user")));
    add_id(history, 1);
    add_id(history, 7);
    add_id(history, 2);
    uint32_t prompt_tokens = history->count;
    const char *bot = json_string_value(json_object_get(turn, "bot"));
    for (uint32_t i = 0; i < history->count; i++)
        add_id(&whole, history->ids[i]);
    for (uint32_t i = 0; i < thinking * strlen(bot) / 4; i++)
        add_id(&whole, 1000 + trace->count * 1000 + i);
    uint32_t answer_at = history->count - 3;
    history->count = answer_at;
    add_message(history, 7, bot);
    for (uint32_t i = prompt_tokens; i < history->count - 1; i++)
        add_id(&whole, history->ids[i]);
    take_turn(trace, &whole, prompt_tokens);
    mem_free(whole.ids);
}

/* A dialogue is over: another one in its place. */
static void begin_dialogue(struct dialogue *dialogue, FILE *file, char *line)
{
    json_decref(dialogue->turns);
    dialogue->history.count = 0;
    dialogue->next = 0;
    json_t *value = next_line(file, line);
    dialogue->turns = value == NULL ? NULL : json_incref(json_object_get(value, "history"));
    json_decref(value);
}

bool sim_trace_mtbench(struct sim_trace *ret_trace, const char *name, uint32_t users,
                       uint32_t thinking)
{
    struct sim_trace trace = {.name = name};
    FILE *file = open_lines("mtbench101.jsonl.gz");
    char *line = mem_alloc(LINE_BYTES_MAX);
    struct dialogue *dialogues = mem_calloc(users, sizeof(*dialogues));
    uint64_t random = 1;

    for (uint32_t i = 0; i < users; i++)
        begin_dialogue(&dialogues[i], file, line);
    while (users > 0) {
        uint32_t i = draw(&random, users);
        if (dialogues[i].turns != NULL)
            play_turn(&trace, &dialogues[i], thinking);
        if (dialogues[i].next >= json_array_size(dialogues[i].turns))
            begin_dialogue(&dialogues[i], file, line);
        if (dialogues[i].turns == NULL) {
            mem_free(dialogues[i].history.ids);
            dialogues[i] = dialogues[--users];
        }
    }
    mem_free(dialogues);
    mem_free(line);
    (void)pclose(file);
    *ret_trace = trace;
    return trace.count > 0;
}

/* --- made up --- */

static void chat_turn(struct sim_trace *trace, struct history *history, uint32_t *fresh)
{
    for (uint32_t i = 0; history->count < SHARED_TOKENS; i++)
        add_id(history, i);
    for (uint32_t i = 0; i < USER_TOKENS; i++)
        add_id(history, ++*fresh);
    uint32_t prompt_tokens = history->count;
    for (uint32_t i = 0; i < ANSWER_TOKENS; i++)
        add_id(history, ++*fresh);
    take_turn(trace, history, prompt_tokens);
}

void sim_trace_round_robin(struct sim_trace *ret_trace, uint32_t chats, uint32_t turns)
{
    struct sim_trace trace = {.name = "round_robin"};
    struct history histories[CHATS_MAX] = {{.count = 0}};
    uint32_t fresh = SHARED_TOKENS;

    ASSERT(chats <= CHATS_MAX);
    for (uint32_t turn = 0; turn < turns; turn++)
        for (uint32_t chat = 0; chat < chats; chat++)
            chat_turn(&trace, &histories[chat], &fresh);
    for (uint32_t chat = 0; chat < chats; chat++)
        mem_free(histories[chat].ids);
    *ret_trace = trace;
}

#define MIXED_REQUESTS 6000u

void sim_trace_mixed(struct sim_trace *ret_trace, uint32_t chats, uint32_t turns,
                     uint32_t one_shots)
{
    struct sim_trace trace = {.name = "mixed"};
    struct history histories[CHATS_MAX] = {{.count = 0}};
    uint32_t fresh = SHARED_TOKENS;
    uint64_t random = 2;

    ASSERT(chats + 1 < CHATS_MAX);
    while (trace.count < MIXED_REQUESTS) {
        bool once = draw(&random, 10) < one_shots;
        struct history *history = &histories[once ? chats : draw(&random, chats)];
        chat_turn(&trace, history, &fresh);
        if (once || history->count >= SHARED_TOKENS + turns * (USER_TOKENS + ANSWER_TOKENS))
            history->count = 0;
    }
    for (uint32_t chat = 0; chat <= chats; chat++)
        mem_free(histories[chat].ids);
    *ret_trace = trace;
}
