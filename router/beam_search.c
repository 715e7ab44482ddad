/* beam_search.c - beams as paths in a tree: beams that parted late share what came before.
 *
 * A node is one token with its alternatives; it lives as long as a beam, a complete answer or
 * another node goes through it. The ids of a living beam are also laid end to end, since a worker
 * wants them so. Cost of a step: width * 2 width candidates, and one copy of the ids per beam. */
#include "router/beam_search.h"

#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

struct node {
    struct node *parent; /* NULL: the first token behind the prompt */
    uint32_t refs;
    struct beam_token token;
    uint32_t rank, tops_count;
    struct beam_token tops[];
};

struct beam {
    uint32_t *ids; /* prompt, then its tokens */
    struct node *last;
    double sum;
    bool told;
    struct beam_token tops[LOGPROBS_MAX];
    uint32_t tops_count;
};

struct result {
    struct node *last;
    double score;
    bool ended;
};

/* A beam that may live on. */
struct candidate {
    uint32_t beam, top; /* whose, and which of its tops */
    double sum;
};

struct beam_search {
    struct beam_search_settings settings;
    struct beam sets[2][BEAMS_MAX]; /* the living, and room for the next ones */
    uint32_t now;                   /* which of the sets lives */
    uint32_t living, steps;
    struct result results[BEAMS_MAX]; /* complete ones, the best first */
    uint32_t results_count;
};

static void node_unref(struct node *node)
{
    while (node != NULL && --node->refs == 0) {
        struct node *parent = node->parent;
        mem_free(node);
        node = parent;
    }
}

static struct node *node_ref(struct node *node)
{
    if (node != NULL)
        node->refs++;
    return node;
}

static struct node *node_new(const struct beam_search *search, const struct beam *beam,
                             uint32_t top)
{
    uint32_t count =
        search->settings.tops < beam->tops_count ? search->settings.tops : beam->tops_count;
    struct node *node = mem_zalloc(sizeof(*node) + count * sizeof(node->tops[0]));

    node->refs = 1;
    node->parent = node_ref(beam->last);
    node->token = beam->tops[top];
    node->rank = top + 1;
    node->tops_count = count;
    memcpy(node->tops, beam->tops, count * sizeof(node->tops[0]));
    return node;
}

struct beam_search *beam_search_new(const struct beam_search_settings *settings)
{
    struct beam_search *search = mem_zalloc(sizeof(*search));
    size_t ids_max = settings->ids_count + settings->steps_max;

    ASSERT(settings->width > 0 && settings->width <= BEAMS_MAX);
    ASSERT(settings->steps_max > 0 && settings->ids_count > 0);
    search->settings = *settings;
    for (uint32_t i = 0; i < 2 * settings->width; i++)
        search->sets[i % 2][i / 2].ids = mem_calloc(ids_max, sizeof(uint32_t));
    memcpy(search->sets[0][0].ids, settings->ids, settings->ids_count * sizeof(uint32_t));
    search->living = 1;
    return search;
}

void beam_search_free(struct beam_search *search)
{
    if (!search)
        return;
    for (uint32_t i = 0; i < 2 * BEAMS_MAX; i++) {
        struct beam *beam = &search->sets[i % 2][i / 2];
        node_unref(beam->last);
        mem_free(beam->ids);
    }
    for (uint32_t i = 0; i < search->results_count; i++)
        node_unref(search->results[i].last);
    mem_free(search);
}

uint32_t beam_search_living(const struct beam_search *search)
{
    return search->living;
}

const uint32_t *beam_search_ids(const struct beam_search *search, uint32_t beam, size_t *ret_count)
{
    ASSERT(beam < search->living);
    *ret_count = search->settings.ids_count + search->steps;
    return search->sets[search->now][beam].ids;
}

void beam_search_tell(struct beam_search *search, uint32_t beam, const struct beam_token *tops,
                      uint32_t count)
{
    struct beam *to = &search->sets[search->now][beam];

    ASSERT(beam < search->living && !to->told && count <= LOGPROBS_MAX);
    memcpy(to->tops, tops, count * sizeof(*tops));
    to->tops_count = count;
    to->told = true;
}

static bool is_end(const struct beam_search *search, uint32_t id)
{
    for (uint32_t i = 0; i < search->settings.end_ids_count; i++) {
        if (search->settings.end_ids[i] == id)
            return true;
    }
    return false;
}

/* Behind all that are as good; what is no more among the best goes. Takes the reference. */
static void add_result(struct beam_search *search, struct node *last, double sum, uint32_t tokens,
                       bool ended)
{
    double length = (double)(search->settings.ids_count + tokens);
    double score = sum / pow(length, search->settings.length_penalty);
    uint32_t at = search->results_count;
    struct result *results = search->results;

    while (at > 0 && results[at - 1].score < score)
        at--;
    if (at == search->settings.width) {
        node_unref(last);
        return;
    }
    if (search->results_count == search->settings.width)
        node_unref(results[--search->results_count].last);
    memmove(&results[at + 1], &results[at], (search->results_count - at) * sizeof(results[0]));
    results[at] = (struct result){last, score, ended};
    search->results_count++;
}

/* As above, for who lives on. */
static void add_candidate(const struct beam_search *search, struct candidate *best, uint32_t *count,
                          const struct candidate *candidate)
{
    uint32_t at = *count;

    while (at > 0 && best[at - 1].sum < candidate->sum)
        at--;
    if (at == search->settings.width)
        return;
    if (*count == search->settings.width)
        --*count;
    memmove(&best[at + 1], &best[at], (*count - at) * sizeof(best[0]));
    best[at] = *candidate;
    ++*count;
}

static uint32_t find_candidates(struct beam_search *search, struct candidate *best)
{
    const struct beam *beams = search->sets[search->now];
    uint32_t tried = 2 * search->settings.width, count = 0;

    for (uint32_t i = 0; i < search->living; i++) {
        ASSERT(beams[i].told);
        for (uint32_t top = 0; top < beams[i].tops_count && top < tried; top++) {
            double sum = beams[i].sum + (double)beams[i].tops[top].logprob;
            const struct candidate candidate = {i, top, sum};
            if (is_end(search, beams[i].tops[top].id))
                add_result(search, node_new(search, &beams[i], top), sum, search->steps, true);
            else
                add_candidate(search, best, &count, &candidate);
        }
    }
    return count;
}

/* They are in the other set then, which lives. */
static void live_on(struct beam_search *search, const struct candidate *best, uint32_t count)
{
    struct beam *from = search->sets[search->now], *to = search->sets[1 - search->now];
    size_t ids_count = search->settings.ids_count + search->steps;

    for (uint32_t i = 0; i < count; i++) {
        const struct beam *parent = &from[best[i].beam];
        memcpy(to[i].ids, parent->ids, ids_count * sizeof(uint32_t));
        to[i].ids[ids_count] = parent->tops[best[i].top].id;
        to[i].last = node_new(search, parent, best[i].top);
        to[i].sum = best[i].sum;
        to[i].told = false;
    }
    for (uint32_t i = 0; i < search->living; i++) {
        node_unref(from[i].last);
        from[i].last = NULL;
    }
    search->now = 1 - search->now;
    search->living = count;
    search->steps++;
}

void beam_search_step(struct beam_search *search)
{
    struct candidate best[BEAMS_MAX];

    ASSERT(search->living > 0);
    live_on(search, best, find_candidates(search, best));
    if (search->steps < search->settings.steps_max)
        return;
    for (uint32_t i = 0; i < search->living; i++) {
        struct beam *beam = &search->sets[search->now][i];
        add_result(search, beam->last, beam->sum, search->steps, false);
        beam->last = NULL;
    }
    search->living = 0;
}

uint32_t beam_search_results(const struct beam_search *search)
{
    ASSERT(search->living == 0);
    return search->results_count;
}

uint32_t beam_search_result(const struct beam_search *search, uint32_t result,
                            struct beam_step *ret_steps, bool *ret_ended)
{
    const struct result *from = &search->results[result];
    uint32_t count = 0;

    ASSERT(result < beam_search_results(search));
    for (const struct node *node = from->last; node != NULL; node = node->parent)
        count++;
    uint32_t at = count;
    for (const struct node *node = from->last; node != NULL; node = node->parent)
        ret_steps[--at] = (struct beam_step){node->token, node->rank, node->tops, node->tops_count};
    *ret_ended = from->ended;
    return count;
}
