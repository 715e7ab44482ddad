/* commands.c - what the engine does with a command: one handler per kind, between two steps. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#define LOG_MODULE "engine"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/worker_metrics.h"
#include "worker/engine/engine_private.h"

static void refuse(struct engine *engine, const struct command *command, int code,
                   enum worker_metric_refusal why, const char *text)
{
    struct output_item *item = engine_add_item(engine, command->router, command->request_id);
    item->finish = SEQ_FINISH_ERROR;
    item->error_code = code;
    (void)snprintf(item->error_text, sizeof(item->error_text), "%s", text);
    metrics_add(engine->settings.metrics, WM_REFUSED, why, 1);
    log_debug("refused", "req=%s code=%d", command->request_id, code);
}

static void refuse_by_errno(struct engine *engine, const struct command *command, int r,
                            const char *text)
{
    if (r == -EAGAIN)
        refuse(engine, command, 429, WM_REFUSED_QUEUE_FULL, text);
    else if (r == -E2BIG)
        refuse(engine, command, 400, WM_REFUSED_TOO_LONG, text);
    else
        refuse(engine, command, r == -EINVAL ? 400 : 500, WM_REFUSED_INVALID, text);
}

/* The id under which the scheduler knows it: the router's, unless another router uses it now. */
static void name_sequence(struct engine *engine, struct command *command)
{
    const char *id = command->request_id;
    char renamed[REQUEST_ID_MAX + 1];
    if (scheduler_find(engine->scheduler, id) != NULL) {
        (void)snprintf(renamed, sizeof(renamed), "~%llu-%.40s",
                       (unsigned long long)++engine->renamed, id);
        id = renamed;
    }
    (void)snprintf(command->params.request_id, sizeof(command->params.request_id), "%s", id);
}

static void on_submit(struct engine *engine, struct command *command)
{
    struct errmsg err = {""};
    if (requests_find(engine->requests, command->router, command->request_id) != NULL) {
        struct output_item *item = engine_add_item(engine, command->router, command->request_id);
        item->refused = true;
        item->error_code = -EEXIST;
        (void)snprintf(item->error_text, sizeof(item->error_text),
                       "a request of this id is running");
        metrics_add(engine->settings.metrics, WM_REFUSED, WM_REFUSED_INVALID, 1);
        return;
    }
    if (engine->draining || engine->stopping) {
        refuse(engine, command, 503, WM_REFUSED_DRAINING,
               engine->stopping ? "the worker is stopping" : "the worker is draining");
        return;
    }
    struct request *request = requests_add(engine->requests, command->router, command->request_id);
    if (request == NULL) {
        refuse(engine, command, 429, WM_REFUSED_QUEUE_FULL, "the worker's queue is full");
        return;
    }
    name_sequence(engine, command);
    command->params.owner = request;
    int r = scheduler_add(engine->scheduler, &command->params, &request->sequence, &err);
    if (r < 0) {
        requests_remove(engine->requests, request);
        refuse_by_errno(engine, command, r, err.text);
        return;
    }
    command->params.rules = NULL; /* the sequence's now */
    command->params.thinking = NULL;
    command->params.repetition = NULL;
    command->params.adapter = NULL;
    if (command->params.grammars != NULL)
        engine->grammars = command->params.grammars;
    log_debug("queued", "req=%s prompt_tokens=%u", command->request_id,
              command->params.prompt_tokens);
}

static void cancel(struct engine *engine, struct request *request, enum sequence_finish finish)
{
    if (request->sequence->finish == SEQ_FINISH_NONE)
        scheduler_cancel(engine->scheduler, request->sequence, finish);
}

static void on_cancel(struct engine *engine, struct command *command)
{
    struct request *request = requests_find(engine->requests, command->router, command->request_id);
    if (request != NULL) /* else it has ended: its last item is on the way */
        cancel(engine, request, SEQ_FINISH_CANCELLED);
}

static void on_cancel_router(struct engine *engine, struct command *command)
{
    LIST_FOR(link, requests_all(engine->requests))
    {
        struct request *request = LIST_ENTRY(link, struct request, link);
        if (request->router == command->router)
            cancel(engine, request, SEQ_FINISH_CANCELLED);
    }
}

static void on_cancel_any(struct engine *engine, struct command *command)
{
    uint32_t found = 0;
    LIST_FOR(link, requests_all(engine->requests))
    {
        struct request *request = LIST_ENTRY(link, struct request, link);
        if (strcmp(request->id, command->request_id) != 0)
            continue;
        cancel(engine, request, SEQ_FINISH_CANCELLED);
        found++;
    }
    engine_answer(engine, command->client, mem_printf("{\"cancelled\":%u}", found));
}

static void on_drain(struct engine *engine, struct command *command)
{
    engine->draining = !command->undo;
    log_info("drain", "draining=%s", engine->draining ? "true" : "false");
    if (command->client != 0)
        engine_answer(engine, command->client,
                      mem_printf("{\"draining\":%s}", engine->draining ? "true" : "false"));
}

static void on_reset_cache(struct engine *engine, struct command *command)
{
    struct block_counts before, after;
    block_pool_counts(engine->pool, &before);
    block_pool_reset_cache(engine->pool);
    block_pool_counts(engine->pool, &after);
    kv_events_reset(&engine->kv_events);
    uint32_t tier_blocks = engine->tier != NULL ? tier_reset(engine->tier) : 0;
    log_info("reset_prefix_cache", "freed_blocks=%u tier_blocks=%u", before.cached - after.cached,
             tier_blocks);
    if (command->client != 0)
        engine_answer(engine, command->client,
                      mem_printf("{\"freed_blocks\":%u,\"tier_blocks\":%u}",
                                 before.cached - after.cached, tier_blocks));
}

static void on_snapshot(struct engine *engine, struct command *command)
{
    kv_events_snapshot(&engine->kv_events, engine->pool, engine->settings.blocks, command->router);
}

static void on_pin(struct engine *engine, struct command *command)
{
    engine_answer(engine, command->client, engine_pin(engine, command));
}

static void on_inspect(struct engine *engine, struct command *command)
{
    engine_answer(engine, command->client, engine_inspect(engine, command->what));
}

static void on_stop(struct engine *engine, struct command *command)
{
    (void)command;
    engine->stopping = true;
}

static void (*const handlers[])(struct engine *, struct command *) = {
    [COMMAND_SUBMIT] = on_submit,
    [COMMAND_CANCEL] = on_cancel,
    [COMMAND_CANCEL_ROUTER] = on_cancel_router,
    [COMMAND_CANCEL_ANY] = on_cancel_any,
    [COMMAND_DRAIN] = on_drain,
    [COMMAND_RESET_CACHE] = on_reset_cache,
    [COMMAND_SNAPSHOT] = on_snapshot,
    [COMMAND_INSPECT] = on_inspect,
    [COMMAND_PIN] = on_pin,
    [COMMAND_STOP] = on_stop,
};

void engine_take_commands(struct engine *engine)
{
    for (uint32_t i = 0; i < ENGINE_COMMANDS_PER_TURN; i++) {
        struct command *command = queue_pop(engine->commands);
        if (command == NULL)
            break;
        ASSERT(command->kind >= COMMAND_SUBMIT && command->kind <= COMMAND_STOP);
        handlers[command->kind](engine, command);
        command_free(command);
    }
    if (atomic_load(&engine->stop_asked))
        engine->stopping = true;
}

void engine_refuse_all(struct engine *engine, int code, const char *text)
{
    LIST_FOR(link, requests_all(engine->requests))
    {
        struct request *request = LIST_ENTRY(link, struct request, link);
        request->error_code = code;
        request->error_text = text;
        cancel(engine, request, SEQ_FINISH_ERROR);
    }
}
