/* beams.c - dispatches of one step; the search (beam_search.h) decides who goes on.
 *
 * (picture of the states: beams.h)
 * A result becomes a choice by way of one StepItem with all of its tokens, so its text, log
 * probabilities and tool calls are read as if a worker had written it. Temperature has no part in
 * it: beams are chosen by the model's own log probabilities, as in vLLM. Invariant: a beam holds a
 * dispatch exactly while it is `waiting`. */
#define LOG_MODULE "request"
#include "router/beams.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "router/beam_search.h"
#include "router/metrics.h"
#include "router/request_private.h"

struct beam {
    struct beams *beams;
    uint32_t search, index;
    struct dispatch dispatch;
    char id[CHOICE_ID_MAX];
    uint32_t attempts; /* of this step */
    bool waiting;
};

/* One prompt. */
struct search {
    struct beam_search *search;
    struct beam *list; /* [width] */
    uint32_t waiting;
    Refrain__Sampling sampling;
    Refrain__StepItem first; /* what the prompt's own step cost */
    char miss[CHOICE_MISS_MAX];
};

struct beams {
    struct request *request;
    struct search *searches; /* one per prompt */
    uint32_t searches_count, over;
    uint32_t width;
    uint64_t dispatched;
};

static void on_output(struct dispatch *dispatch, const Refrain__StepItem *item);
static void on_lost(struct dispatch *dispatch, const char *why);

/* One token and what else it could be; the rest of what the client says is refused with beams. */
static void fill_sampling(const struct request *request, Refrain__Sampling *sampling)
{
    uint32_t tops = 2 * request->fields.n;

    refrain__sampling__init(sampling);
    sampling->top_p = sampling->repetition_penalty = 1;
    sampling->tokens_max = 1;
    sampling->ignore_eos = true;
    sampling->logprobs = (request->fields.logprobs > tops ? request->fields.logprobs : tops + 1);
}

static void open_search(struct beams *beams, uint32_t index)
{
    const struct request *request = beams->request;
    const struct request_prompt *prompt = &request->prompts[index];
    const struct model_card *card = request->model->card;
    struct search *search = &beams->searches[index];
    const struct beam_search_settings settings = {
        .width = beams->width,
        .steps_max = prompt->tokens_max,
        .length_penalty = request->fields.length_penalty,
        .ids = prompt->ids.ids,
        .ids_count = prompt->ids.count,
        .end_ids = card->eos_ids,
        .end_ids_count = request->fields.ignore_eos ? 0 : card->eos_count,
        .tops = request->fields.logprobs ? request->fields.logprobs - 1 : 0,
    };

    search->search = beam_search_new(&settings);
    search->list = mem_calloc(beams->width, sizeof(*search->list));
    fill_sampling(request, &search->sampling);
    for (uint32_t i = 0; i < beams->width; i++) {
        search->list[i].beams = beams;
        search->list[i].search = index;
        search->list[i].index = i;
    }
}

static int beam_dispatch(struct beam *beam, struct api_error *error)
{
    struct beams *beams = beam->beams;
    struct search *search = &beams->searches[beam->search];
    struct dispatch *dispatch = &beam->dispatch;

    (void)snprintf(beam->id, sizeof(beam->id), "%s.b%u.%llx", beams->request->id, beam->index,
                   (unsigned long long)++beams->dispatched);
    dispatch->request_id = beam->id;
    dispatch->ids = beam_search_ids(search->search, beam->index, &dispatch->ids_count);
    dispatch->sampling = &search->sampling;
    dispatch->on_output = on_output;
    dispatch->on_lost = on_lost;
    beam->attempts++;
    int r = request_dispatch(beams->request, dispatch, error);
    if (r < 0)
        return r;
    beam->waiting = true;
    search->waiting++;
    return 0;
}

static int step(struct beams *beams, struct search *search, struct api_error *error)
{
    uint32_t living = beam_search_living(search->search);

    for (uint32_t i = 0; i < living; i++) {
        search->list[i].attempts = 0;
        search->list[i].dispatch.avoid_group = -1;
        int r = beam_dispatch(&search->list[i], error);
        if (r < 0)
            return r;
    }
    return 0;
}

int beams_run(struct request *request, struct beams **ret_beams, struct api_error *error)
{
    struct beams *beams = mem_zalloc(sizeof(*beams));
    int r = 0;

    beams->request = request;
    beams->width = request->fields.n;
    beams->searches_count = request->prompts_count;
    beams->searches = mem_calloc(beams->searches_count, sizeof(*beams->searches));
    *ret_beams = beams;
    for (uint32_t i = 0; i < beams->searches_count; i++)
        open_search(beams, i);
    for (uint32_t i = 0; i < beams->searches_count && r == 0; i++)
        r = step(beams, &beams->searches[i], error);
    return r;
}

void beams_free(struct beams *beams)
{
    if (!beams)
        return;
    for (uint32_t s = 0; s < beams->searches_count; s++) {
        struct search *search = &beams->searches[s];
        for (uint32_t i = 0; search->list && i < beams->width; i++) {
            if (search->list[i].waiting)
                links_cancel(beams->request->requests->parts.links, &search->list[i].dispatch);
        }
        beam_search_free(search->search);
        mem_free(search->list);
    }
    mem_free(beams->searches);
    mem_free(beams);
}

/* ---- what comes back ---- */

static void beam_answered(struct beams *beams, struct beam *beam)
{
    struct search *search = &beams->searches[beam->search];

    ASSERT(beam->waiting && search->waiting > 0);
    beam->waiting = false;
    search->waiting--;
}

/* Again on another group: nothing was sent. False: too often. */
static bool beam_retry(struct beam *beam, struct api_error *error)
{
    if (beam->attempts > REQUEST_RETRIES_MAX)
        return false;
    metrics_add(beam->beams->request->requests->parts.metrics, RM_RETRIES, 0, 1);
    log_info("request_retry", "req=%s beam=%u attempt=%u lost_group=%u", beam->beams->request->id,
             beam->index, beam->attempts, beam->dispatch.group);
    beam->dispatch.avoid_group = (int32_t)beam->dispatch.group;
    return beam_dispatch(beam, error) == 0;
}

static void on_lost(struct dispatch *dispatch, const char *why)
{
    struct beam *beam = LIST_ENTRY(dispatch, struct beam, dispatch);
    struct request *request = beam->beams->request;
    struct api_error error;

    beam_answered(beam->beams, beam);
    (void)api_error_set(&error, 503, "worker_lost", NULL,
                        "The worker that answered this request was lost (%s).", why);
    error.retry_after_s = 1;
    if (!beam_retry(beam, &error))
        request_refuse(request, &error);
}

static void beam_failed(struct beam *beam, const Refrain__StepItem *item)
{
    struct request *request = beam->beams->request;
    struct api_error error;

    request_worker_error(request, item, &error);
    if ((error.status == 503 || error.status == 429) && beam_retry(beam, &error))
        return; /* draining or full: another group may not be */
    request_refuse(request, &error);
}

/* False: it makes no sense. */
static bool tell(struct search *search, const struct beam *beam, const Refrain__StepItem *item)
{
    struct beam_token tops[LOGPROBS_MAX];

    if (item->ids.len != sizeof(uint32_t) || item->n_logprobs != 1 ||
        item->logprobs[0]->n_top == 0 || item->logprobs[0]->n_top > LOGPROBS_MAX)
        return false;
    for (size_t i = 0; i < item->logprobs[0]->n_top; i++)
        tops[i] =
            (struct beam_token){item->logprobs[0]->top[i]->id, item->logprobs[0]->top[i]->logprob};
    beam_search_tell(search->search, beam->index, tops, (uint32_t)item->logprobs[0]->n_top);
    return true;
}

/* The prompt's own step is what the whole answer says of cache and queue. */
static void note_first(struct request *request, struct search *search, uint32_t prompt,
                       const struct beam *beam, const Refrain__StepItem *item)
{
    search->first = *item; /* its numbers; the texts and lists go with the message */
    search->first.n_prompt_logprobs = 0;
    (void)snprintf(search->miss, sizeof(search->miss), "%.31s", item->miss);
    for (uint32_t i = 0; i < request->fields.n; i++) {
        struct choice *choice = &request->choices[prompt * request->fields.n + i];
        choice->dispatch.group = beam->dispatch.group;
        choice->dispatch.why = beam->dispatch.why;
    }
    request_first_token(request, prompt == 0, item, beam->dispatch.group);
}

/* The tokens of a result as the worker's StepItem. */
struct replay {
    Refrain__Logprobs *logprobs;
    Refrain__Logprobs **pointers;
    Refrain__TokenLogprob *tops;
    Refrain__TokenLogprob **top_pointers;
    uint32_t *ids;
};

static void fill_replay(const struct beam_step *steps, uint32_t count, struct replay *replay)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        Refrain__Logprobs *logprobs = &replay->logprobs[i];
        replay->ids[i] = steps[i].token.id;
        replay->pointers[i] = logprobs;
        refrain__logprobs__init(logprobs);
        logprobs->chosen = steps[i].token.logprob;
        logprobs->rank = steps[i].rank;
        logprobs->n_top = steps[i].tops_count;
        logprobs->top = &replay->top_pointers[at];
        for (uint32_t t = 0; t < steps[i].tops_count; t++, at++) {
            refrain__token_logprob__init(&replay->tops[at]);
            replay->tops[at].id = steps[i].tops[t].id;
            replay->tops[at].logprob = steps[i].tops[t].logprob;
            replay->top_pointers[at] = &replay->tops[at];
        }
    }
}

static int replay_result(const struct search *search, uint32_t result, uint32_t tops,
                         struct choice *choice)
{
    uint32_t steps_max = choice->sampling.tokens_max;
    struct beam_step *steps = mem_calloc(steps_max, sizeof(*steps));
    bool ended = false, over = false;
    uint32_t count = beam_search_result(search->search, result, steps, &ended);
    struct replay replay = {
        .logprobs = mem_calloc(count, sizeof(*replay.logprobs)),
        .pointers = mem_calloc(count, sizeof(Refrain__Logprobs *)),
        .tops = mem_calloc((size_t)count * tops + 1, sizeof(*replay.tops)),
        .top_pointers = mem_calloc((size_t)count * tops + 1, sizeof(Refrain__TokenLogprob *)),
        .ids = mem_calloc(count, sizeof(uint32_t))};
    Refrain__StepItem item = search->first;

    fill_replay(steps, count, &replay);
    item.miss = (char *)(uintptr_t)search->miss;
    item.ids = (ProtobufCBinaryData){count * sizeof(uint32_t), (uint8_t *)replay.ids};
    item.logprobs = replay.pointers;
    item.n_logprobs = count;
    item.finish = ended ? REFRAIN__FINISH__FINISH_STOP : REFRAIN__FINISH__FINISH_LENGTH;
    int r = choice_take(choice, &item, &over);
    ASSERT(r < 0 || over);
    if (r == 0 && ended) { /* vLLM names the end token here */
        choice->stop_kind = CHUNK_STOP_ID;
        choice->stop_id = steps[count - 1].token.id;
    }
    mem_free(steps);
    mem_free(replay.logprobs);
    mem_free(replay.pointers);
    mem_free(replay.tops);
    mem_free(replay.top_pointers);
    mem_free(replay.ids);
    return r;
}

/* All searches are over. The request is gone then. */
static void give_out(struct beams *beams)
{
    struct request *request = beams->request;
    uint32_t tops = request->fields.logprobs ? request->fields.logprobs - 1 : 0;
    int r = 0;

    for (uint32_t i = 0; i < request->choices_count && r == 0; i++) {
        const struct search *search = &beams->searches[i / beams->width];
        if (i % beams->width < beam_search_results(search->search))
            r = replay_result(search, i % beams->width, tops, &request->choices[i]);
        else
            r = -EPROTO; /* a vocabulary smaller than the width */
    }
    request_beams_over(request, r);
}

static void on_output(struct dispatch *dispatch, const Refrain__StepItem *item)
{
    struct beam *beam = LIST_ENTRY(dispatch, struct beam, dispatch);
    struct beams *beams = beam->beams;
    struct search *search = &beams->searches[beam->search];
    struct api_error error;

    if (item->finish ==
        REFRAIN__FINISH__FINISH_NONE) {              /* one token is asked for: it makes no sense */
        request_beams_over(beams->request, -EPROTO); /* cancels the beam, which still waits */
        return;
    }
    beam_answered(beams, beam);
    if (item->finish != REFRAIN__FINISH__FINISH_LENGTH) {
        beam_failed(beam, item);
        return;
    }
    if (!tell(search, beam, item)) {
        request_beams_over(beams->request, -EPROTO);
        return;
    }
    if (!search->first.first)
        note_first(beams->request, search, beam->search, beam, item);
    if (search->waiting > 0)
        return;
    beam_search_step(search->search);
    if (beam_search_living(search->search) > 0) {
        if (step(beams, search, &error) < 0)
            request_refuse(beams->request, &error);
    } else if (++beams->over == beams->searches_count) {
        give_out(beams);
    }
}
