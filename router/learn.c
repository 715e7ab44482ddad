/* learn.c - what the router keeps of an answer that is over: turn memory.
 *
 * The next turn's prompt holds this answer as text. Stored under that text and all that stood
 * before it, the ids that the model generated are found again, so that the prompt is the same ids
 * that the worker has in its cache. A choice that nobody got to see is not kept. */
#include "router/request_private.h"

#include "proto/base/assert.h"

static void learn_choice(const struct request *request, const struct choice *choice)
{
    const struct prompt_maker *maker = &request->model->maker;
    const struct request_prompt *prompt = &request->prompts[choice->prompt];
    const struct text_owner owner = prompt_owner(maker, &request->fields);
    size_t tail = prompt->trace.end.ids_count;
    /* A stream's text is sent as it comes, a whole answer's all at once. */
    size_t count = choice_kept_ids(choice, request->fields.stream ? choice->text.bytes : 0);

    if (prompt->ids.count != prompt->trace.ids_count)
        return; /* ids of the client, or cut after they were made */
    ASSERT(tail <= prompt->ids.count);
    text_cache_remember(maker->cache, &owner, &prompt->trace, prompt->ids.ids + tail,
                        prompt->ids.count - tail, choice->generated.ids, count);
}

void request_learn(struct request *request, bool whole)
{
    if (!request->model || !request->model->maker.cache)
        return;
    for (uint32_t i = 0; i < request->choices_count; i++) {
        if (whole || request->choices[i].sent)
            learn_choice(request, &request->choices[i]);
    }
}
