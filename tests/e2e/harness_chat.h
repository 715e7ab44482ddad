/* harness_chat.h - one chat or completion, streamed or not, boiled down to what tests compare.
 *
 * No function here asserts, so all of them may run in threads. */
#ifndef REFRAIN_TESTS_E2E_HARNESS_CHAT_H
#define REFRAIN_TESTS_E2E_HARNESS_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHAT_PATH "/v1/chat/completions"
#define COMPLETION_PATH "/v1/completions"

struct chat {
    /* Set by the caller. */
    const char *url;
    const char *path;
    json_t *body;     /* owned; "stream" decides how the answer is read */
    unsigned drop_at; /* streams: drop the connection at the Nth chunk with text; 0: never */
    double timeout_s; /* 0: 120 */
    volatile unsigned chunks; /* streams: chunks with text so far, for a watcher */

    /* The answer. */
    int status;        /* 0: no answer */
    char failure[256]; /* of the connection: "" */
    char *text;        /* joined; never NULL */
    json_t *logprobs;  /* of choice 0: what the answer has, or the chunks of a stream joined */
    char id[80], finish[32], group[16];
    char error_type[64], error_param[96], error_code[64], error_message[512];
    bool error_event;      /* an error inside a stream */
    bool done;             /* [DONE] was seen */
    bool one_id;           /* all chunks had one id */
    unsigned usage_chunks; /* chunks with a usage object */
    bool usage_last;       /* the last chunk before [DONE] is the one, with no choices */
    uint32_t prompt_tokens, cached_tokens, completion_tokens;
    double first_s, total_s; /* to the first text */
};

/* `body` is taken. */
void chat_init(struct chat *chat, const char *url, const char *path, json_t *body);
void chat_send(struct chat *chat);
/* All of them, at most `threads` at a time. */
void chat_send_all(struct chat *chats, size_t count, size_t threads);
/* As chat_send_all, in the background; join frees it. */
struct chat_crowd;
struct chat_crowd *chat_crowd_start(struct chat *chats, size_t count, size_t threads);
void chat_crowd_join(struct chat_crowd *crowd);
void chat_done(struct chat *chat);

/* {"model": ..., "messages": [user: text], "max_tokens": ..., "temperature": 0}. */
json_t *chat_body(const char *model, const char *text, unsigned tokens_max);
json_t *completion_body(const char *model, const char *prompt, unsigned tokens_max);
/* Adds "stream": true and include_usage. Returns the body. */
json_t *streamed(json_t *body);
/* Tokens of a plain text by /tokenize; -1: it did not answer. */
int count_tokens(const char *url, const char *model, const char *text);

#endif
