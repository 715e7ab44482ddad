/* play.c - commands in, a turn, outputs out; and what the linker puts between engine and model.
 *
 * __wrap_batch_build keeps the plan, so that __wrap_rank_model_forward knows whose the rows of
 * logits are before the sampler writes over them. */
#include "tests/exact/play.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/sample/thinking.h"

#define ROUTER 1u

void __real_batch_build(struct batch *batch, const struct step_plan *plan);
void __wrap_batch_build(struct batch *batch, const struct step_plan *plan);
int __real_rank_model_forward(struct rank_model *model, const struct step_descriptor *descriptor,
                              float *ret_logits);
int __wrap_rank_model_forward(struct rank_model *model, const struct step_descriptor *descriptor,
                              float *ret_logits);

static struct play *at_work; /* in play_step: the linker's hooks have no argument of ours */

/* --- looking --------------------------------------------------------------------------------- */

static uint32_t part_of(const struct sequence *seq)
{
    const struct request *request = seq->params.owner;
    return (uint32_t)strtoul(request->id, NULL, 10);
}

static void count_plan(struct play *play, const struct step_plan *plan)
{
    struct exact_counts *counts = play->counts;
    counts->steps++;
    counts->rows += plan->rows;
    counts->copies += plan->copies_count;
    for (uint32_t i = 0; i < plan->copies_count; i++) /* one of the references is the plan's */
        counts->forks += block_pool_refs(play->engine->pool, plan->copies[i].from) > 1;
    for (uint32_t i = 0; i < plan->entries_count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        struct part *part = &play->parts[part_of(entry->sequence)];
        counts->chunks += !entry->want_token;
        counts->holds += !part->planned && entry->sequence->held_plans > 0;
        part->planned = true;
    }
}

void __wrap_batch_build(struct batch *batch, const struct step_plan *plan)
{
    ASSERT(at_work != NULL);
    at_work->plan = plan;
    if (at_work->counts != NULL)
        count_plan(at_work, plan);
    __real_batch_build(batch, plan);
}

static void look(struct play *play, const float *logits)
{
    const struct batch *batch = &play->engine->batch;
    uint32_t vocab_size = play->engine->settings.scheduler.vocab_size;

    for (uint32_t i = 0; i < batch->descriptor.step.outputs; i++) {
        uint32_t part = part_of(play->plan->entries[batch->out_entry[i]].sequence);
        play->on_row(play, part, batch->position[batch->out_row[i]],
                     logits + (size_t)i * vocab_size);
        if (play->counts != NULL) {
            play->counts->positions++;
            play->counts->scored += batch->out_score[i];
        }
    }
}

int __wrap_rank_model_forward(struct rank_model *model, const struct step_descriptor *descriptor,
                              float *ret_logits)
{
    int r = __real_rank_model_forward(model, descriptor, ret_logits);
    if (r == 0 && ret_logits != NULL) { /* NULL: another rank's thread, or no step of an engine */
        look(at_work, ret_logits);
        ranks_await_disk(at_work->ranks, descriptor);
    }
    return r;
}

/* --- driving --------------------------------------------------------------------------------- */

/* Every token's text is "x": no tag is ever seen, and what is forced is two tokens. */
static struct model_card *card_without_tags(uint32_t vocab_size)
{
    struct model_card *card = model_card_new();
    struct string_table_builder builder;
    uint8_t *types = mem_calloc(vocab_size, 1);

    string_table_builder_init(&builder);
    for (uint32_t i = 0; i < vocab_size; i++) {
        int r = string_table_builder_add(&builder, "x", 1);
        ASSERT(r == 0);
        types[i] = TOKEN_NORMAL;
    }
    string_table_builder_move(&builder, card, &card->tokens);
    model_card_set_types(card, types, NULL, NULL);
    card->vocab_size = vocab_size;
    mem_free(types);
    return card;
}

int play_open(struct play *play, struct ranks_of *ranks, struct engine_settings *settings,
              struct errmsg *err)
{
    memset(play, 0, sizeof(*play));
    play->ranks = ranks;
    settings->model = ranks->model;
    settings->group = ranks->group;
    settings->limits.context_tokens_max = settings->scheduler.context_tokens_max;
    settings->limits.kv_blocks = settings->blocks; /* no more of what the ranks have */
    play->card = card_without_tags(settings->scheduler.vocab_size);
    return engine_new(settings, &play->engine, err);
}

void play_close(struct play *play)
{
    engine_free(play->engine);
    play->engine = NULL;
    model_card_unref(play->card);
    play->card = NULL;
}

static void send(struct play *play, struct command *command, uint32_t part)
{
    command->router = ROUTER;
    (void)snprintf(command->request_id, sizeof(command->request_id), "%u", part);
    int r = engine_send(play->engine, command);
    ASSERT(r == 0);
}

static void add_ends(const struct play *play, const struct world_request *request,
                     struct sequence_params *params)
{
    static const uint32_t end_ids[2] = {1, 2};
    const struct thinking_input input = {.tokens_max = request->thinking_tokens,
                                         .begin = "<a>",
                                         .begin_bytes = 3,
                                         .end = "</a>",
                                         .end_bytes = 4,
                                         .inside = true,
                                         .end_ids = (const uint8_t *)end_ids,
                                         .end_ids_bytes = sizeof(end_ids)};
    int r = 0;

    if (request->thinking_tokens != NO_THINKING)
        r = thinking_new(&input, play->card, &params->thinking, NULL);
    if (r == 0 && request->repetition.pattern_max > 0)
        r = repetition_new(&request->repetition, &params->repetition, NULL);
    ASSERT(r == 0);
}

void play_submit(struct play *play, struct world_request *request, const struct arrival *arrival)
{
    struct command *command = command_new(COMMAND_SUBMIT, request->prompt_tokens);
    struct sequence_params *params = &command->params;

    ASSERT(play->parts_count < PARTS_MAX);
    memcpy(command->prompt, request->ids, request->prompt_tokens * sizeof(*request->ids));
    params->sampling = request->sampling;
    params->tokens_max = request->tokens_max;
    add_ends(play, request, params);
    params->prompt_logprobs = request->prompt_logprobs;
    params->root = request->root;
    params->priority = arrival->priority;
    params->no_prefix_reuse = arrival->no_prefix_reuse;
    play->parts[play->parts_count] = (struct part){.request = request};
    send(play, command, play->parts_count++);
}

void play_cancel(struct play *play, uint32_t part)
{
    if (play->parts[part].finish != SEQ_FINISH_NONE)
        return;
    play->parts[part].cancelled = true;
    send(play, command_new(COMMAND_CANCEL, 0), part);
}

static int take_item(struct play *play, const struct output_item *item, struct errmsg *err)
{
    uint32_t index = (uint32_t)strtoul(item->request_id, NULL, 10);
    struct part *part = &play->parts[index];

    if (item->refused || item->finish == SEQ_FINISH_ERROR)
        return errmsg_set(err, -EPROTO, "request %u: %s", index, item->error_text);
    if (item->has_token)
        play->on_token(play, index, item->id);
    part->got += item->has_token;
    if (item->finish != SEQ_FINISH_NONE) {
        part->finish = item->finish;
        play->over++;
    }
    return 0;
}

static int take_outputs(struct play *play, struct errmsg *err)
{
    struct outbox *outbox = engine_outbox(play->engine);
    struct output *output;
    int r = 0;

    while ((output = outbox_pop(outbox)) != NULL) {
        for (uint32_t i = 0; output->kind == OUTPUT_STEP && i < output->items_count && r == 0; i++)
            r = take_item(play, &output->items[i], err);
        outbox_recycle(outbox, output);
    }
    return r;
}

int play_step(struct play *play, struct errmsg *err)
{
    bool idle = false;

    at_work = play;
    play->engine->batch.descriptor.number = play->ranks->steps; /* rises by one for the followers */
    engine_take_commands(play->engine);
    int r = engine_turn(play->engine, &idle);
    play->ranks->steps = play->engine->batch.descriptor.number;
    at_work = NULL;
    if (r < 0)
        return errmsg_set(err, r, "step %llu: %s", (unsigned long long)play->ranks->steps,
                          play->ranks->group != NULL ? group_aborted(play->ranks->group)
                                                     : "failed");
    scheduler_check(play->engine->scheduler);
    return take_outputs(play, err);
}
