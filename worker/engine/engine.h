/* engine.h - the engine thread: one step after the other.
 *
 *   LOADING --loaded, all ranks at the barrier--> READY --COMMAND_STOP--> ENDED
 *      +------------------ any error ---------------+--------> FAILED (the process must end)
 *
 * Owns scheduler, block pool and, from engine_start on, the model. Other threads talk to it by
 * commands, read engine_status() and engine_busy_ms(), and wait for engine_fd(). */
#ifndef REFRAIN_WORKER_ENGINE_ENGINE_H
#define REFRAIN_WORKER_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/metrics.h"
#include "worker/engine/outbox.h"
#include "worker/engine/rank_model.h"
#include "worker/kv/window_blocks.h"
#include "worker/sched/scheduler.h"

#define ENGINE_COMMANDS_MAX 4096u
#define ENGINE_COMMANDS_PER_TURN 256u

enum engine_state { ENGINE_LOADING = 0, ENGINE_READY, ENGINE_ENDED, ENGINE_FAILED };

struct engine;

struct engine_settings {
    struct rank_model *model; /* opened, not loaded; these three outlive the engine */
    struct group *group;      /* NULL with one rank */
    struct metrics *metrics;  /* over worker_metric_specs */
    struct scheduler_settings scheduler;
    uint32_t blocks;           /* limits.kv_blocks; where every layer slides: books only */
    struct rank_limits limits; /* what the model loads within; the texts outlive the engine */
    uint32_t disk_wait_ms;     /* a request waits so long for its blocks */
    bool prefix_caching;
    const struct eviction_policy *eviction; /* NULL: the default */
    bool warm_up;                           /* one small step before READY */
};

/* Copied out after each step. */
struct engine_status {
    struct scheduler_counts counts;
    struct block_counts blocks;
    struct window_counts windows;
    struct tier_counts tiers;
    uint64_t steps, step_rows;
    bool draining;
    double step_seconds;              /* recent mean, 0: no step yet */
    double prefill_seconds_per_token; /* recent mean */
};

int engine_new(const struct engine_settings *settings, struct engine **ret_engine,
               struct errmsg *err);
int engine_start(struct engine *engine, struct errmsg *err);
/* The thread must have ended; commands left are freed. NULL is fine. */
void engine_free(struct engine *engine);

/* Any thread. Takes the command over: 0; -EAGAIN: the queue is full, the caller still owns it. */
int engine_send(struct engine *engine, struct command *command);
/* Less than this many more commands fit: stop reading from sockets. */
bool engine_crowded(const struct engine *engine);
/* From any thread: as COMMAND_STOP, whatever is queued. */
void engine_stop(struct engine *engine);

struct outbox *engine_outbox(struct engine *engine);
enum engine_state engine_state(const struct engine *engine);
/* Why FAILED. */
const char *engine_failure(const struct engine *engine);
/* An eventfd, readable after each change of state. */
int engine_fd(const struct engine *engine);
/* Wait for the thread. 0, -ETIMEDOUT. */
int engine_join(struct engine *engine, uint32_t timeout_ms);
/* Of the rows of logits that a step may need; taken at start. */
size_t engine_logits_bytes(uint32_t sequences_max, const struct model_config *config);
/* Of what looks at them, on as many threads as the model's backend has, at most 8. */
size_t engine_samplers_bytes(const struct rank_model *model);
void engine_get_status(struct engine *engine, struct engine_status *ret_status);
/* How long the current turn has lasted; 0: waiting for commands. */
uint64_t engine_busy_ms(const struct engine *engine);

#endif
