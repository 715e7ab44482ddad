/* outbox.c - two queues of the same buffers, and the small constructors of commands.
 *
 * Invariant: each of the OUTBOX_OUTPUTS buffers is in one queue or in one thread's hands, so a push
 * cannot find its queue full. Memory: pages that no step ever filled stay untouched. */
#include "worker/engine/outbox.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/queue.h"
#include "worker/sample/rules.h"
#include "worker/sample/thinking.h"

struct outbox {
    struct queue *spare, *ready;
    struct output outputs[OUTBOX_OUTPUTS];
};

struct command *command_new(enum command_kind kind, uint32_t prompt_tokens)
{
    struct command *command =
        mem_zalloc(sizeof(*command) + (size_t)prompt_tokens * sizeof(command->prompt[0]));
    command->kind = kind;
    command->params.prompt = command->prompt;
    command->params.prompt_tokens = prompt_tokens;
    return command;
}

void command_free(struct command *command)
{
    sample_rules_free(command->params.rules);
    thinking_free(command->params.thinking);
    repetition_free(command->params.repetition);
    grammar_unref(command->params.grammar);
    adapter_leave(command->params.adapter);
    mem_free(command);
}

struct outbox *outbox_new(uint32_t items_max, uint32_t logprobs_max)
{
    struct outbox *outbox = mem_zalloc(sizeof(*outbox));
    outbox->spare = queue_new(OUTBOX_OUTPUTS);
    outbox->ready = queue_new(OUTBOX_OUTPUTS);
    for (size_t i = 0; i < OUTBOX_OUTPUTS; i++) {
        struct output *output = &outbox->outputs[i];
        output->items = mem_calloc(items_max, sizeof(*output->items));
        output->items_max = items_max;
        output->logprobs = mem_calloc(logprobs_max, sizeof(*output->logprobs));
        output->logprobs_max = logprobs_max;
        output->stored = mem_calloc(OUTPUT_STORED_MAX, sizeof(*output->stored));
        output->removed = mem_calloc(OUTPUT_REMOVED_MAX, sizeof(*output->removed));
        int r = queue_push(outbox->spare, output);
        ASSERT(r == 0);
    }
    return outbox;
}

void outbox_free(struct outbox *outbox)
{
    if (outbox == NULL)
        return;
    for (size_t i = 0; i < OUTBOX_OUTPUTS; i++) {
        struct output *output = &outbox->outputs[i];
        mem_free(output->items);
        mem_free(output->logprobs);
        mem_free(output->stored);
        mem_free(output->removed);
        mem_free(output->hashes);
        mem_free(output->text);
    }
    queue_free(outbox->spare);
    queue_free(outbox->ready);
    mem_free(outbox);
}

struct output *outbox_take(struct outbox *outbox, enum output_kind kind)
{
    struct output *output = queue_pop(outbox->spare);
    while (output == NULL) {
        (void)queue_wait(outbox->spare, -1);
        output = queue_pop(outbox->spare);
    }
    output->kind = kind;
    ASSERT(output->items_count == 0 && output->hashes == NULL && output->text == NULL);
    return output;
}

void outbox_push(struct outbox *outbox, struct output *output)
{
    int r = queue_push(outbox->ready, output);
    ASSERT(r == 0);
}

struct output *outbox_pop(struct outbox *outbox)
{
    return queue_pop(outbox->ready);
}

void outbox_recycle(struct outbox *outbox, struct output *output)
{
    mem_free(output->hashes);
    mem_free(output->text);
    output->hashes = NULL;
    output->text = NULL;
    output->hashes_count = output->items_count = output->logprobs_count = 0;
    output->stored_count = output->removed_count = 0;
    output->all_cleared = false;
    int r = queue_push(outbox->spare, output);
    ASSERT(r == 0);
}

int outbox_fd(const struct outbox *outbox)
{
    return queue_fd(outbox->ready);
}
