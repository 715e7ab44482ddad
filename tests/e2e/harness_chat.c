/* harness_chat.c - requests to the two generating paths, alone or many at a time. */
#include "tests/e2e/harness_chat.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness_http.h"

#define TEXT_BYTES_MAX ((size_t)16 << 20)
#define THREADS_MAX 128

struct reading {
    struct chat *chat;
    struct buffer text;
    uint64_t began_ns;
};

void chat_init(struct chat *chat, const char *url, const char *path, json_t *body)
{
    *chat = (struct chat){.url = url, .path = path, .body = body, .one_id = true};
}

static void copy_text(char *to, size_t to_max, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    (void)snprintf(to, to_max, "%s", text ? text : "");
}

static uint32_t number(const json_t *object, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(object, key));
}

static void read_usage(struct chat *chat, const json_t *usage)
{
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    chat->prompt_tokens = number(usage, "prompt_tokens");
    chat->completion_tokens = number(usage, "completion_tokens");
    chat->cached_tokens = number(details, "cached_tokens");
}

static void read_error(struct chat *chat, const json_t *error)
{
    copy_text(chat->error_type, sizeof(chat->error_type), error, "type");
    copy_text(chat->error_param, sizeof(chat->error_param), error, "param");
    copy_text(chat->error_code, sizeof(chat->error_code), error, "code");
    copy_text(chat->error_message, sizeof(chat->error_message), error, "message");
}

/* Each list of `more` is appended to the list of that name. */
static void join_lists(json_t *all, const json_t *more)
{
    const char *key;
    json_t *list;

    json_object_foreach((json_t *)(uintptr_t)more, key, list)
    {
        if (!json_is_array(list))
            continue;
        if (!json_object_get(all, key))
            json_object_set_new(all, key, json_array());
        json_array_extend(json_object_get(all, key), list);
    }
}

static void read_choice(struct reading *reading, const json_t *choice)
{
    struct chat *chat = reading->chat;
    const json_t *inner = json_object_get(choice, "delta");
    const json_t *logprobs = json_object_get(choice, "logprobs");
    const json_t *text;

    if (json_integer_value(json_object_get(choice, "index")) != 0)
        return;
    inner = inner ? inner : json_object_get(choice, "message");
    text = inner ? json_object_get(inner, "content") : json_object_get(choice, "text");
    if (json_is_string(text) && json_string_length(text) > 0) {
        if (chat->chunks++ == 0)
            chat->first_s = (double)(clock_ns() - reading->began_ns) / 1e9;
        buffer_append(&reading->text, json_string_value(text), json_string_length(text));
    }
    if (json_is_string(json_object_get(choice, "finish_reason")))
        copy_text(chat->finish, sizeof(chat->finish), choice, "finish_reason");
    if (!json_is_object(logprobs))
        return;
    if (!chat->logprobs)
        chat->logprobs = json_object();
    join_lists(chat->logprobs, logprobs);
}

static void read_object(struct reading *reading, const json_t *object)
{
    struct chat *chat = reading->chat;
    const json_t *usage = json_object_get(object, "usage");
    const json_t *error = json_object_get(object, "error");
    const json_t *choices = json_object_get(object, "choices");
    char id[sizeof(chat->id)];
    size_t i;
    json_t *choice;

    copy_text(id, sizeof(id), object, "id");
    if (chat->id[0] && id[0] && strcmp(chat->id, id) != 0)
        chat->one_id = false;
    if (id[0])
        memcpy(chat->id, id, sizeof(id));
    chat->usage_last = json_is_object(usage) && json_array_size(choices) == 0;
    if (json_is_object(usage)) {
        chat->usage_chunks++;
        read_usage(chat, usage);
    }
    if (json_is_object(error))
        read_error(chat, error);
    json_array_foreach(choices, i, choice) read_choice(reading, choice);
}

static bool on_event(void *user, const char *data)
{
    struct reading *reading = user;
    struct chat *chat = reading->chat;

    if (strcmp(data, "[DONE]") == 0) {
        chat->done = true;
        return true;
    }
    json_t *object = json_loads(data, JSON_ALLOW_NUL, NULL);
    if (!object) {
        (void)snprintf(chat->failure, sizeof(chat->failure), "an event is no JSON: %.200s", data);
        return false;
    }
    read_object(reading, object);
    chat->error_event = chat->error_event || json_is_object(json_object_get(object, "error"));
    json_decref(object);
    return chat->drop_at == 0 || chat->chunks < chat->drop_at;
}

void chat_send(struct chat *chat)
{
    struct reading reading = {.chat = chat, .began_ns = clock_ns()};
    bool stream = json_is_true(json_object_get(chat->body, "stream"));
    char *body = json_dumps(chat->body, JSON_COMPACT);
    struct http_answer answer;
    const struct http_request request = {.path = chat->path,
                                         .body = body,
                                         .timeout_s = chat->timeout_s,
                                         .on_event = stream ? on_event : NULL,
                                         .user = &reading};

    buffer_init(&reading.text, TEXT_BYTES_MAX);
    http_send(chat->url, &request, &answer);
    free(body); /* jansson's */
    chat->status = answer.status;
    if (!chat->failure[0])
        (void)snprintf(chat->failure, sizeof(chat->failure), "%s", answer.failure);
    http_answer_header(&answer, "x-refrain-group", chat->group, sizeof(chat->group));
    if (answer.json)
        read_object(&reading, answer.json);
    chat->total_s = answer.total_s;
    chat->text = buffer_take(&reading.text, NULL);
    http_answer_done(&answer);
}

void chat_done(struct chat *chat)
{
    json_decref(chat->body);
    json_decref(chat->logprobs);
    mem_free(chat->text);
    *chat = (struct chat){0};
}

/* ---- many ---- */

struct chat_crowd {
    struct chat *chats;
    size_t count, next, threads_count;
    pthread_t threads[THREADS_MAX];
};

static void *send_next(void *user)
{
    struct chat_crowd *crowd = user;
    for (;;) {
        size_t i = __atomic_fetch_add(&crowd->next, 1, __ATOMIC_RELAXED);
        if (i >= crowd->count)
            return NULL;
        chat_send(&crowd->chats[i]);
    }
}

struct chat_crowd *chat_crowd_start(struct chat *chats, size_t count, size_t threads)
{
    struct chat_crowd *crowd = mem_zalloc(sizeof(*crowd));
    ASSERT(threads <= THREADS_MAX);
    crowd->chats = chats;
    crowd->count = count;
    crowd->threads_count = threads < count ? threads : count;
    for (size_t i = 0; i < crowd->threads_count; i++) {
        int r = pthread_create(&crowd->threads[i], NULL, send_next, crowd);
        ASSERT(r == 0);
    }
    return crowd;
}

void chat_crowd_join(struct chat_crowd *crowd)
{
    for (size_t i = 0; i < crowd->threads_count; i++)
        (void)pthread_join(crowd->threads[i], NULL);
    mem_free(crowd);
}

void chat_send_all(struct chat *chats, size_t count, size_t threads)
{
    chat_crowd_join(chat_crowd_start(chats, count, threads));
}

/* ---- bodies ---- */

json_t *chat_body(const char *model, const char *text, unsigned tokens_max)
{
    return json_pack("{s:s, s:[{s:s, s:s}], s:i, s:i}", "model", model, "messages", "role", "user",
                     "content", text, "max_tokens", (int)tokens_max, "temperature", 0);
}

json_t *completion_body(const char *model, const char *prompt, unsigned tokens_max)
{
    return json_pack("{s:s, s:s, s:i, s:i}", "model", model, "prompt", prompt, "max_tokens",
                     (int)tokens_max, "temperature", 0);
}

json_t *streamed(json_t *body)
{
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    return body;
}

int count_tokens(const char *url, const char *model, const char *text)
{
    struct http_answer answer;
    http_post_json(
        url, "/tokenize",
        json_pack("{s:s, s:s, s:b}", "model", model, "prompt", text, "add_special_tokens", 0),
        &answer);
    json_t *count = json_object_get(answer.json, "count");
    int tokens = json_is_integer(count) ? (int)json_integer_value(count) : -1;
    http_answer_done(&answer);
    return tokens;
}
