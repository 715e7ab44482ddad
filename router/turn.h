/* turn.h - a chat request as one turn of a session.
 *
 *   turn_open     limits of the session; 400 past them
 *   turn_prompt   history policy, template, tokenizer -> ids
 *   turn_sent     the prompt against the record of the turn before (router/session/miss.h)
 *   turn_first    what the worker reused, so the cause of a miss is known
 *   turn_write    "history_cut" and "miss" of the answer
 *   turn_end      the record for the next turn
 *
 * Ownership: sessions live as long as the router; a turn belongs to its request. Thread: the
 * loop's. */
#ifndef REFRAIN_ROUTER_TURN_H
#define REFRAIN_ROUTER_TURN_H

#include "router/models.h"
#include "router/session/history.h"
#include "router/session/limits.h"

struct metrics;
struct sessions;
struct turn;

struct sessions_settings {
    struct history_policy history; /* unless a request has its own */
    struct limits_settings limits;
    uint32_t records_max; /* --chat-records */
    bool explain;         /* as if every request asked for it */
};

/* metrics: router_metric_specs. */
struct sessions *sessions_new(const struct sessions_settings *settings, struct metrics *metrics);
void sessions_free(struct sessions *sessions);
/* Gauges that are copied when they are asked for. */
void sessions_fill_metrics(const struct sessions *sessions);
bool sessions_explain(const struct sessions *sessions);

/* fields and model must outlive the turn; maker (models_maker) is used until turn_prompt is done.
 * -EINVAL: *error is filled. */
int turn_open(struct sessions *sessions, const struct api_request *fields,
              const struct served_model *model, const struct prompt_maker *maker,
              struct turn **ret_turn, struct api_error *error);
void turn_free(struct turn *turn);
/* The ids of what the history policy keeps, and their trace. -EINVAL: *error is filled. */
int turn_prompt(struct turn *turn, struct token_ids *out, struct prompt_trace *ret_trace,
                struct api_error *error);
/* What the template wrote; until turn_sent. */
const struct buffer *turn_text(const struct turn *turn);
/* The prompt of these ids is at a worker; the rendered text goes. */
void turn_sent(struct turn *turn, const uint32_t *ids, size_t count);
/* The first token came. Again after a retry. worker: its own word for a miss; "off": it was not to
 * reuse anything. */
void turn_first(struct turn *turn, uint32_t cached_tokens, uint32_t group, const char *worker);
/* Text that the client got as the answer's content. */
void turn_content(struct turn *turn, const char *text, size_t bytes);
/* Over, with these generated ids (without the one that ended it). At most once. */
void turn_end(struct turn *turn, const uint32_t *ids, size_t count);
/* Members for the answer's "refrain" object, each after a comma; nothing when there are none. miss
 * is there with `explain` only. worker: the worker's own word for the miss. */
void turn_write(const struct turn *turn, bool explain, const char *worker, struct buffer *out);

#endif
