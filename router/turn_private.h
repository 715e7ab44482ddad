/* turn_private.h - what turn.c (life of a turn) and turn_history.c (which messages stay) share. */
#ifndef REFRAIN_ROUTER_TURN_PRIVATE_H
#define REFRAIN_ROUTER_TURN_PRIVATE_H

#include "proto/base/arena.h"
#include "router/session/chat_record.h"
#include "router/session/miss.h"
#include "router/session/token_counts.h"
#include "router/turn.h"

struct XXH3_state_s;

struct sessions {
    struct sessions_settings settings;
    struct metrics *metrics;
    struct limits *limits;
    struct chat_records *records;
    struct token_counts *counts;
};

struct turn {
    struct sessions *sessions;
    const struct api_request *fields;
    const struct served_model *model;
    const struct prompt_maker *maker; /* until turn_prompt is done */
    uint64_t model_hash, session, salt;
    uint64_t template_hash; /* of the request's own template; 0: the model's */
    struct arena arena;
    struct conversation conversation;

    uint32_t first;           /* what is kept begins there, behind the head */
    uint32_t cut_tokens;      /* of what is not kept, about */
    struct rendered rendered; /* until turn_sent */
    bool has_rendered;

    struct chat_record *record; /* of this turn, until turn_end */
    struct miss compared, miss; /* before and after the worker spoke */
    bool answered;              /* miss is known */
    uint32_t group;
    struct XXH3_state_s *content; /* hash of the answer's content so far */
};

/* Choose turn->first and make the prompt's ids; turn->rendered is its text. */
int turn_apply_history(struct turn *turn, struct token_ids *out, struct prompt_trace *ret_trace,
                       struct api_error *error);

#endif
