/* beam_search.c: by hand, and against a naive search that sorts everything. */
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "router/beam_search.h"

#define VOCAB 7u
#define STEPS 6u
#define END 0u

static const uint32_t prompt[] = {3, 4};
static const uint32_t end_ids[] = {END};

/* A model: what comes after these ids, the likeliest first. */
static uint32_t next_of(const uint32_t *ids, size_t count, uint64_t seed,
                        struct beam_token ret_tops[VOCAB])
{
    uint64_t at = seed;
    for (size_t i = 0; i < count; i++)
        at = at * 31 + ids[i] + 1;
    for (uint32_t id = 0; id < VOCAB; id++) {
        struct beam_token token = {id, (float)-(1 + rng_uniform(at, id) * 4)};
        uint32_t place = id;
        for (; place > 0 && ret_tops[place - 1].logprob < token.logprob; place--)
            ret_tops[place] = ret_tops[place - 1];
        ret_tops[place] = token;
    }
    return VOCAB;
}

/* ---- the naive search ---- */

struct path {
    uint32_t ids[2 + STEPS];
    uint32_t count;
    double sum, score;
    bool ended;
    uint32_t order; /* found earlier: smaller */
};

static int by_sum(const void *a, const void *b)
{
    const struct path *x = a, *y = b;
    if (x->sum != y->sum)
        return x->sum > y->sum ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static int by_score(const void *a, const void *b)
{
    const struct path *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static uint32_t naive(uint64_t seed, uint32_t width, double penalty, struct path *ret_best)
{
    static struct path living[BEAMS_MAX], next[BEAMS_MAX * 2 * VOCAB], over[4096];
    uint32_t living_count = 1, over_count = 0, order = 0;

    memset(&living[0], 0, sizeof(living[0]));
    memcpy(living[0].ids, prompt, sizeof(prompt));
    living[0].count = 2;
    for (uint32_t step = 0; step < STEPS && living_count > 0; step++) {
        uint32_t next_count = 0;
        for (uint32_t i = 0; i < living_count; i++) {
            struct beam_token tops[VOCAB];
            uint32_t count = next_of(living[i].ids, living[i].count, seed, tops);
            for (uint32_t t = 0; t < count && t < 2 * width; t++) {
                struct path path = living[i];
                path.ids[path.count++] = tops[t].id;
                path.sum += (double)tops[t].logprob;
                path.ended = tops[t].id == END;
                path.order = order++;
                if (path.ended)
                    over[over_count++] = path;
                else
                    next[next_count++] = path;
            }
        }
        qsort(next, next_count, sizeof(next[0]), by_sum);
        living_count = next_count < width ? next_count : width;
        memcpy(living, next, living_count * sizeof(living[0]));
    }
    for (uint32_t i = 0; i < living_count; i++) {
        over[over_count] = living[i];
        over[over_count++].order = order++;
    }
    for (uint32_t i = 0; i < over_count; i++)
        over[i].score = over[i].sum / pow(over[i].count - over[i].ended, penalty);
    qsort(over, over_count, sizeof(over[0]), by_score);
    uint32_t count = over_count < width ? over_count : width;
    memcpy(ret_best, over, count * sizeof(over[0]));
    return count;
}

/* ---- ours ---- */

static struct beam_search *search_of(uint64_t seed, uint32_t width, double penalty, uint32_t ends)
{
    const struct beam_search_settings settings = {.width = width,
                                                  .steps_max = STEPS,
                                                  .length_penalty = penalty,
                                                  .ids = prompt,
                                                  .ids_count = 2,
                                                  .end_ids = end_ids,
                                                  .end_ids_count = ends,
                                                  .tops = 2};
    struct beam_search *search = beam_search_new(&settings);

    while (beam_search_living(search) > 0) {
        for (uint32_t i = beam_search_living(search); i-- > 0;) { /* in whatever order they come */
            struct beam_token tops[VOCAB];
            size_t count;
            const uint32_t *ids = beam_search_ids(search, i, &count);
            beam_search_tell(search, i, tops, next_of(ids, count, seed, tops));
        }
        beam_search_step(search);
    }
    return search;
}

static void test_the_best_are_those_of_a_search_that_sorts_everything(void **state)
{
    static const uint32_t widths[] = {1, 2, 3, 5, 16};
    static const double penalties[] = {1, 0, 0.5, 2, -1};
    uint32_t ended_seen = 0, living_seen = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        for (size_t w = 0; w < 5; w++) {
            struct path best[BEAMS_MAX];
            struct beam_step steps[STEPS];
            uint32_t wanted = naive(seed, widths[w], penalties[seed % 5], best);
            struct beam_search *search = search_of(seed, widths[w], penalties[seed % 5], 1);
            assert_int_equal(beam_search_results(search), wanted);
            for (uint32_t i = 0; i < wanted; i++) {
                bool ended = false;
                uint32_t count = beam_search_result(search, i, steps, &ended);
                assert_int_equal(count, best[i].count - 2);
                assert_int_equal(ended, best[i].ended);
                for (uint32_t t = 0; t < count; t++)
                    assert_int_equal(steps[t].token.id, best[i].ids[2 + t]);
                ended_seen += ended;
                living_seen += !ended;
            }
            beam_search_free(search);
        }
    }
    assert_true(ended_seen > 50 && living_seen > 50);
}

static void test_every_token_of_a_result_has_its_alternatives(void **state)
{
    struct beam_search *search = search_of(3, 2, 1, 0);
    struct beam_step steps[STEPS];
    uint32_t ids[2 + STEPS] = {3, 4};
    bool ended = true;
    (void)state;
    assert_int_equal(beam_search_result(search, 0, steps, &ended), STEPS); /* nothing ends it */
    assert_false(ended);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct beam_token tops[VOCAB];
        (void)next_of(ids, 2 + i, 3, tops);
        assert_int_equal(steps[i].tops_count, 2);
        assert_memory_equal(steps[i].tops, tops, 2 * sizeof(tops[0]));
        assert_true(steps[i].token.id == tops[steps[i].rank - 1].id);
        ids[2 + i] = steps[i].token.id;
    }
    beam_search_free(search);
}

static void test_a_search_may_be_dropped_at_any_step(void **state)
{
    const struct beam_search_settings settings = {.width = 4,
                                                  .steps_max = 8,
                                                  .length_penalty = 1,
                                                  .ids = prompt,
                                                  .ids_count = 2,
                                                  .end_ids = end_ids,
                                                  .end_ids_count = 1};
    (void)state;
    for (uint32_t dropped_at = 0; dropped_at < 8; dropped_at++) {
        struct beam_search *search = beam_search_new(&settings);
        for (uint32_t step = 0; step < dropped_at; step++) {
            struct beam_token tops[VOCAB];
            size_t count;
            for (uint32_t i = 0; i < beam_search_living(search); i++) {
                const uint32_t *ids = beam_search_ids(search, i, &count);
                beam_search_tell(search, i, tops, next_of(ids, count, 9, tops));
            }
            beam_search_step(search);
        }
        beam_search_free(search); /* the leak checker looks on */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_are_those_of_a_search_that_sorts_everything),
        cmocka_unit_test(test_every_token_of_a_result_has_its_alternatives),
        cmocka_unit_test(test_a_search_may_be_dropped_at_any_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
