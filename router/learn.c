/* learn.c - what the router keeps of an answer that is over: turn memory.
 *
 * The next turn's prompt holds this answer as text. Stored under that text and all that stood
 * before it, the ids that the model generated are found again, so that the prompt is the same ids
 * that the worker has in its cache. A choice that nobody got to see is not kept.
 *
 * A client that closes its connection is known to be gone when the next chunks cannot be written
 * (one that only closed its half gets its answer), so it has not read the last that were sent: a
 * stream that broke off is kept as it was up to each of its last tokens. */
#include "router/request_private.h"

#include "proto/base/assert.h"

#define UNREAD_IDS_MAX 4u

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
    for (size_t unread = 0; unread <= (choice->done ? 0 : UNREAD_IDS_MAX); unread++)
        text_cache_remember(maker->cache, &owner, &prompt->trace, prompt->ids.ids + tail,
                            prompt->ids.count - tail, choice->generated.ids,
                            unread < count ? count - unread : 0);
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
