/* play.h - one engine that the caller drives turn by turn, and a look at each row of logits. */
#ifndef REFRAIN_TESTS_EXACT_PLAY_H
#define REFRAIN_TESTS_EXACT_PLAY_H

#include "tests/exact/exact.h"
#include "tests/exact/ranks.h"
#include "tests/exact/world.h"
#include "worker/engine/engine_private.h"

#define PARTS_MAX 16u

/* A request in this engine. */
struct part {
    struct world_request *request;
    uint32_t got;                /* tokens of the answer */
    enum sequence_finish finish; /* NONE: at work */
    bool cancelled, planned;
};

struct arrival {
    int32_t priority;
    bool no_prefix_reuse;
};

struct play {
    struct ranks_of *ranks;
    struct engine *engine;
    struct model_card *card; /* for what reads tokens */
    struct part parts[PARTS_MAX];
    uint32_t parts_count, over;
    const struct step_plan *plan; /* of the step at work */
    struct exact_counts *counts;  /* NULL: nothing is counted */
    /* A row before it is sampled from; a token after it was. user is theirs. */
    void (*on_row)(struct play *play, uint32_t part, uint32_t position, const float *logits);
    void (*on_token)(struct play *play, uint32_t part, uint32_t id);
    void *user;
};

/* An engine over the ranks; settings->model and ->group are filled in. */
int play_open(struct play *play, struct ranks_of *ranks, struct engine_settings *settings,
              struct errmsg *err);
void play_close(struct play *play);
void play_submit(struct play *play, struct world_request *request, const struct arrival *arrival);
void play_cancel(struct play *play, uint32_t part);
/* What was submitted and cancelled, then one turn. 0; -EPROTO: a request ended with an error; or
 * why the group has ended. */
int play_step(struct play *play, struct errmsg *err);

#endif
