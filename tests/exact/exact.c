/* exact.c - worlds, schedules, and what is said about a difference.
 *
 *   exact_run(K)   world K / WORLD_SCHEDULES: make each request, run it alone, keep hashes
 *                  schedule K: engine of random size, arrivals by step, each row against the hash
 *
 * A hash is kept instead of the row (196 KB in a vocabulary of 49,152); where one differs, the
 * request is run alone once more for the row itself. Cost: a schedule computes what its cache does
 * not save; WORLD_REQUESTS runs alone are shared by WORLD_SCHEDULES schedules. */
#include "tests/exact/exact.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/worker_metrics.h"
#include "tests/exact/play.h"
#include "worker/kv/eviction.h"

#define WORLD_SCHEDULES 50u
#define ROWS_MAX 256u
#define SEQUENCES_MAX 8u
#define BLOCKS_MAX 96u /* of a schedule's pool */
#define HOST_BLOCKS_MAX 32u
#define FILES_MAX 64u
#define WINDOW_BLOCKS_MAX 48u
#define BLOCKS_ALONE (CONTEXT_TOKENS_MAX / BLOCK_TOKENS + 2)
#define STEPS_MAX 100000u
#define NEVER UINT32_MAX

struct difference {
    bool found;
    uint32_t part, position;
    float *row;     /* as the schedule computed it; NULL: see text */
    char text[100]; /* what differed though the logits had not */
};

struct exact {
    struct exact_settings settings;
    struct ranks_of *ranks;
    struct metrics *metrics;
    struct play alone;
    uint32_t world; /* NEVER: none yet */
    struct world_request requests[WORLD_REQUESTS];
    struct exact_counts counts;
    struct difference difference;
    /* The row to keep in a run alone; NULL: none. */
    float *wanted;
    uint32_t wanted_position;
};

static uint32_t vocab_of(const struct exact *exact)
{
    return exact->ranks->model->config.vocab_size;
}

static uint64_t hash_of(const struct exact *exact, const float *logits)
{
    uint64_t hash = XXH3_64bits(logits, vocab_of(exact) * sizeof(*logits));
    return hash != 0 ? hash : 1;
}

static struct random random_of(const struct exact *exact, uint64_t kind, uint32_t number)
{
    const uint64_t key[3] = {exact->settings.seed, kind, number};
    return (struct random){.seed = XXH3_64bits(key, sizeof(key))};
}

/* Room for the window blocks of one sequence, at least; 0: no layer slides. */
static uint32_t windows_alone(const struct exact *exact)
{
    uint32_t window = exact->ranks->model->groups.window;
    return window > 0 ? window_blocks_of(window) + 2 : 0;
}

/* --- alone ----------------------------------------------------------------------------------- */

static void keep_row(struct play *play, uint32_t part, uint32_t position, const float *logits)
{
    struct exact *exact = play->user;
    if (exact->wanted == NULL)
        play->parts[part].request->alone.hashes[position] = hash_of(exact, logits);
    else if (position == exact->wanted_position)
        memcpy(exact->wanted, logits, vocab_of(exact) * sizeof(*logits));
}

static void keep_token(struct play *play, uint32_t part, uint32_t id)
{
    struct exact *exact = play->user;
    struct alone *alone = &play->parts[part].request->alone;
    ASSERT(play->parts[part].got < ANSWER_TOKENS_MAX);
    if (exact->wanted == NULL)
        alone->ids[alone->count++] = id;
}

static int run_alone(struct exact *exact, struct world_request *request, struct errmsg *err)
{
    struct play *play = &exact->alone;
    const struct arrival arrival = {.priority = 0};
    int r = ranks_scribble(exact->ranks);

    if (r < 0)
        return errmsg_set(err, r, "the group has ended");
    play->parts_count = play->over = 0;
    play_submit(play, request, &arrival);
    while (r == 0 && play->over == 0)
        r = play_step(play, err);
    request->alone.finish = play->parts[0].finish;
    return r;
}

static int open_alone(struct exact *exact, struct errmsg *err)
{
    struct engine_settings settings = {.metrics = exact->metrics,
                                       .scheduler = {.sequences_max = 1,
                                                     .step_tokens_max = ROWS_MAX,
                                                     .context_tokens_max = CONTEXT_TOKENS_MAX,
                                                     .waiting_max = 1,
                                                     .vocab_size = vocab_of(exact)},
                                       .blocks = BLOCKS_ALONE,
                                       .limits.window_blocks = windows_alone(exact)};
    int r = play_open(&exact->alone, exact->ranks, &settings, err);
    exact->alone.on_row = keep_row;
    exact->alone.on_token = keep_token;
    exact->alone.user = exact;
    return r;
}

static int enter_world(struct exact *exact, uint32_t world, struct errmsg *err)
{
    struct random random = random_of(exact, 'w', world);
    int r = 0;

    if (exact->world == world)
        return 0;
    for (uint32_t i = 0; i < WORLD_REQUESTS && r == 0; i++) {
        world_make_request(exact->requests, i, vocab_of(exact), &random);
        r = run_alone(exact, &exact->requests[i], err);
        exact->counts.alone++;
    }
    exact->world = r == 0 ? world : NEVER;
    return r;
}

/* --- schedules ------------------------------------------------------------------------------- */

struct planned_request {
    uint32_t request;
    uint32_t at;           /* step of its arrival, or later: */
    uint32_t after;        /* not before this one in the schedule has ended; NEVER: no matter */
    uint32_t cancel_after; /* steps from its arrival; NEVER */
    struct arrival arrival;
    /* As it goes. */
    bool arrived;
    uint32_t part, arrived_at;
};

struct schedule {
    struct planned_request requests[PARTS_MAX];
    uint32_t count;
    uint32_t reset_at; /* the cache is emptied */
    struct engine_settings engine;
};

static uint32_t blocks_of(const struct world_request *request)
{
    return (request->prompt_tokens + request->tokens_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS + 1;
}

static uint32_t longest_of(const struct exact *exact, const struct schedule *schedule)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        uint32_t blocks = blocks_of(&exact->requests[schedule->requests[i].request]);
        longest = blocks > longest ? blocks : longest;
    }
    return longest;
}

/* Any request of the world; or, half of the time, one that continues a request of this schedule:
 * then it comes when that one has ended, mostly. */
static void draw_request(const struct exact *exact, const struct schedule *schedule, uint32_t index,
                         struct planned_request *planned, struct random *random)
{
    uint32_t first = draw(random, WORLD_REQUESTS);
    bool turn = index > 0 && draw(random, 2) == 0, wait = draw(random, 4) > 0;

    planned->request = first;
    planned->after = NEVER;
    for (uint32_t i = 0; turn && i < WORLD_REQUESTS; i++) {
        uint32_t request = (first + i) % WORLD_REQUESTS;
        for (uint32_t k = 0; k < index; k++) {
            if (exact->requests[request].turn_of != schedule->requests[k].request)
                continue;
            planned->request = request;
            planned->after = wait ? k : NEVER;
            return;
        }
    }
}

static void draw_arrivals(const struct exact *exact, struct schedule *schedule,
                          struct random *random)
{
    static const uint32_t gaps[] = {1, 2, 6};
    uint32_t gap = gaps[draw(random, 3)], at = 0;
    bool cancels = draw(random, 3) == 0, priorities = draw(random, 3) == 0;

    schedule->count = 3 + draw(random, 4);
    for (uint32_t i = 0; i < schedule->count; i++) {
        struct planned_request *planned = &schedule->requests[i];
        at += draw(random, gap);
        *planned = (struct planned_request){.at = at, .cancel_after = NEVER};
        if (cancels && draw(random, 4) == 0)
            planned->cancel_after = draw(random, 16);
        if (priorities)
            planned->arrival.priority = (int32_t)draw(random, 3);
        planned->arrival.no_prefix_reuse = draw(random, 12) == 0;
        draw_request(exact, schedule, i, planned, random);
    }
    schedule->reset_at = draw(random, 10) == 0 ? draw(random, 40) : NEVER;
}

/* For the host tier: the first ones come one after the other, then each of them again, so that its
 * blocks have left the pool and come back. */
static void draw_rounds(struct schedule *schedule, struct random *random)
{
    uint32_t chats = 2 + draw(random, 2);

    for (uint32_t i = 0; i < schedule->count; i++) {
        if (i >= chats)
            schedule->requests[i].request = schedule->requests[i - chats].request;
        schedule->requests[i].after = i == 0 ? NEVER : i - 1;
    }
}

/* Half of the pools hold the longest request and not even one more of them, so that the one that
 * came later has to go when both answers grow. */
static uint32_t draw_blocks(const struct exact *exact, const struct schedule *schedule,
                            struct random *random)
{
    uint32_t longest = longest_of(exact, schedule), all = 0;
    for (uint32_t i = 0; i < schedule->count; i++)
        all += blocks_of(&exact->requests[schedule->requests[i].request]);
    bool narrow = draw(random, 2) == 0;
    uint32_t blocks = longest + draw(random, narrow ? longest : all);
    return blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
}

/* Layers slide: from room for one sequence to more than all need; no tiers. */
static void draw_windows(const struct exact *exact, struct schedule *schedule,
                         struct random *random)
{
    uint32_t least = windows_alone(exact);
    bool narrow = draw(random, 2) == 0;

    ASSERT(least < WINDOW_BLOCKS_MAX);
    schedule->engine.limits.window_blocks =
        least + draw(random, narrow ? least : WINDOW_BLOCKS_MAX - least);
    if (draw(random, 4) == 0)
        draw_rounds(schedule, random);
}

/* Host memory, disk, or both; mostly so that blocks leave the pool and come back. */
static void draw_tiers(const struct exact *exact, struct schedule *schedule, struct random *random)
{
    struct engine_settings *engine = &schedule->engine;
    uint32_t tiers = draw(random, 4); /* 0, 1: host; 2: disk; 3: both */
    uint32_t host_blocks = 1 + draw(random, tiers == 3 ? 4 : HOST_BLOCKS_MAX);
    uint32_t files = TIER_DISK_BUFFERS_MIN + draw(random, FILES_MAX);

    if (tiers != 2)
        engine->limits.host_tier_bytes = ranks_host_bytes(exact->ranks, host_blocks);
    if (tiers >= 2) {
        engine->limits.disk = ranks_disk(exact->ranks, files);
        engine->disk_wait_ms = 60000;
    }
    if (draw(random, 4) > 0) {
        draw_rounds(schedule, random);
        engine->blocks = longest_of(exact, schedule) + draw(random, 3);
    }
}

static void draw_schedule(const struct exact *exact, uint32_t number, struct schedule *schedule)
{
    struct random random = random_of(exact, 's', number);
    struct engine_settings *engine = &schedule->engine;

    draw_arrivals(exact, schedule, &random);
    *engine = (struct engine_settings){.metrics = exact->metrics};
    engine->scheduler.context_tokens_max = CONTEXT_TOKENS_MAX;
    engine->scheduler.waiting_max = PARTS_MAX;
    engine->scheduler.vocab_size = vocab_of(exact);
    engine->scheduler.sequences_max = 2 + draw(&random, SEQUENCES_MAX - 1);
    bool narrow = draw(&random, 3) > 0;
    engine->scheduler.step_tokens_max = BLOCK_TOKENS + draw(&random, narrow ? 64 : 241);
    engine->blocks = draw_blocks(exact, schedule, &random);
    engine->prefix_caching = draw(&random, 8) > 0;
    engine->eviction = eviction_policies[draw(&random, eviction_policies_count())];
    if (windows_alone(exact) > 0) {
        draw_windows(exact, schedule, &random);
        return;
    }
    if (engine->prefix_caching && draw(&random, 2) == 0)
        draw_tiers(exact, schedule, &random);
}

static void compare_row(struct play *play, uint32_t part, uint32_t position, const float *logits)
{
    struct exact *exact = play->user;
    struct difference *difference = &exact->difference;
    const struct alone *alone = &play->parts[part].request->alone;

    if (difference->found || hash_of(exact, logits) == alone->hashes[position])
        return;
    *difference = (struct difference){.found = true, .part = part, .position = position};
    difference->row = mem_calloc(vocab_of(exact), sizeof(*logits));
    memcpy(difference->row, logits, vocab_of(exact) * sizeof(*logits));
}

static void differ(struct exact *exact, const struct play *play, uint32_t part, const char *what,
                   uint32_t value, uint32_t alone)
{
    const struct part *p = &play->parts[part];
    struct difference *difference = &exact->difference;
    if (difference->found || value == alone)
        return;
    *difference = (struct difference){
        .found = true, .part = part, .position = p->request->prompt_tokens + p->got};
    (void)snprintf(difference->text, sizeof(difference->text), "%s %u, alone %u", what, value,
                   alone);
}

static void compare_token(struct play *play, uint32_t part, uint32_t id)
{
    const struct part *p = &play->parts[part];
    const struct alone *alone = &p->request->alone;
    if (p->got < alone->count)
        differ(play->user, play, part, "token", id, alone->ids[p->got]);
    else
        differ(play->user, play, part, "tokens", p->got + 1, alone->count);
}

static void compare_ends(struct exact *exact, const struct play *play)
{
    for (uint32_t i = 0; i < play->parts_count; i++) {
        const struct part *part = &play->parts[i];
        exact->counts.cancels += part->finish == SEQ_FINISH_CANCELLED;
        if (part->cancelled && part->finish == SEQ_FINISH_CANCELLED)
            continue;
        differ(exact, play, i, "tokens", part->got, part->request->alone.count);
        differ(exact, play, i, "finish", part->finish, part->request->alone.finish);
    }
}

static bool arrives(const struct play *play, const struct schedule *schedule,
                    const struct planned_request *planned, uint32_t step)
{
    const struct planned_request *before;
    if (planned->arrived || planned->at > step)
        return false;
    if (planned->after == NEVER)
        return true;
    before = &schedule->requests[planned->after];
    return before->arrived && play->parts[before->part].finish != SEQ_FINISH_NONE;
}

static void play_arrivals(struct exact *exact, struct play *play, struct schedule *schedule,
                          uint32_t step)
{
    for (uint32_t i = 0; i < schedule->count; i++) {
        struct planned_request *planned = &schedule->requests[i];
        if (arrives(play, schedule, planned, step)) {
            planned->arrived = true;
            planned->arrived_at = step;
            planned->part = play->parts_count;
            play_submit(play, &exact->requests[planned->request], &planned->arrival);
        }
        if (planned->arrived && step - planned->arrived_at == planned->cancel_after)
            play_cancel(play, planned->part);
    }
}

static int play_all(struct exact *exact, struct play *play, struct schedule *schedule,
                    struct errmsg *err)
{
    int r = 0;
    for (uint32_t step = 0; r == 0 && play->over < schedule->count; step++) {
        ASSERT(step < STEPS_MAX);
        play_arrivals(exact, play, schedule, step);
        if (step == schedule->reset_at)
            block_pool_reset_cache(play->engine->pool);
        r = play_step(play, err);
        if (exact->difference.found)
            return r;
    }
    if (r == 0)
        compare_ends(exact, play);
    return r;
}

static void count_end(struct exact *exact, const struct play *play)
{
    struct exact_counts *counts = &exact->counts;
    struct scheduler_counts scheduler;
    struct block_counts blocks;
    struct window_counts windows;

    scheduler_counts(play->engine->scheduler, &scheduler);
    block_pool_counts(play->engine->pool, &blocks);
    window_get_counts(play->engine->pool, &windows);
    counts->window_evictions += windows.lost_total;
    counts->schedules++;
    counts->sequences += play->parts_count;
    counts->preemptions += scheduler.preemptions_total;
    counts->evictions += blocks.evictions_total;
    counts->hits += blocks.hits_total;
    if (play->engine->tier != NULL) {
        struct tier_counts tier;
        tier_get_counts(play->engine->tier, &tier);
        counts->tier_stores += tier.stores_total;
        counts->tier_loads += tier.hits_total;
        counts->disk_stores += tier.disk.stores_total;
        counts->disk_loads += tier.disk.loads_total;
    }
}

/* No file is left for the next schedule. */
static int empty_tiers(struct play *play, struct errmsg *err)
{
    struct tier *tier = play->engine->tier;
    int r = 0;

    if (tier == NULL)
        return 0;
    (void)tier_reset(tier);
    for (uint32_t step = 0; r == 0 && tier_busy(tier); step++) {
        ASSERT(step < STEPS_MAX);
        r = play_step(play, err);
    }
    tier_check(tier);
    return r;
}

/* --- differences ----------------------------------------------------------------------------- */

/* The first logit that differs, and how many do. */
static void describe_rows(const float *alone, const float *row, uint32_t count, char *ret_text,
                          size_t bytes)
{
    uint32_t first = count, all = 0;
    for (uint32_t i = count; i-- > 0;) {
        if (memcmp(&alone[i], &row[i], sizeof(row[i])) != 0) {
            first = i;
            all++;
        }
    }
    if (all == 0)
        (void)snprintf(ret_text, bytes, "the run alone gave these logits the second time");
    else
        (void)snprintf(ret_text, bytes,
                       "%u of %u logits, the first is %u: %.9g (%a), alone %.9g (%a)", all, count,
                       first, (double)row[first], (double)row[first], (double)alone[first],
                       (double)alone[first]);
}

static int tell_difference(struct exact *exact, const struct play *play, uint32_t number,
                           struct errmsg *err)
{
    const struct exact_settings *settings = &exact->settings;
    struct difference *difference = &exact->difference;
    struct world_request *request = play->parts[difference->part].request;
    char text[200];
    int r = 0;

    (void)snprintf(text, sizeof(text), "%s", difference->text);
    if (difference->row != NULL) {
        exact->wanted = mem_calloc(vocab_of(exact), sizeof(*exact->wanted));
        exact->wanted_position = difference->position;
        r = run_alone(exact, request, err);
        describe_rows(exact->wanted, difference->row, vocab_of(exact), text, sizeof(text));
        mem_free(exact->wanted);
        exact->wanted = NULL;
        mem_free(difference->row);
    }
    if (r == 0 && err != NULL)
        (void)snprintf(err->text, sizeof(err->text),
                       "%u ranks, seed %llu, schedule %u, sequence %u (request %u, prompt of %u "
                       "tokens), position %u: %s",
                       settings->ranks, (unsigned long long)settings->seed, number,
                       difference->part, (uint32_t)(request - exact->requests),
                       request->prompt_tokens, difference->position, text);
    memset(difference, 0, sizeof(*difference));
    return r < 0 ? r : 1;
}

/* --- for programs ---------------------------------------------------------------------------- */

int exact_run(struct exact *exact, uint32_t number, struct errmsg *err)
{
    struct schedule schedule;
    struct play play;
    int r = enter_world(exact, number / WORLD_SCHEDULES, err);

    if (r < 0)
        return r;
    draw_schedule(exact, number, &schedule);
    if (ranks_scribble(exact->ranks) < 0)
        return errmsg_set(err, -ECANCELED, "the group has ended");
    r = play_open(&play, exact->ranks, &schedule.engine, err);
    if (r < 0)
        return r;
    play.counts = &exact->counts;
    play.on_row = compare_row;
    play.on_token = compare_token;
    play.user = exact;
    r = play_all(exact, &play, &schedule, err);
    count_end(exact, &play);
    if (r == 0 && !exact->difference.found)
        r = empty_tiers(&play, err);
    play_close(&play);
    return r == 0 && exact->difference.found ? tell_difference(exact, &play, number, err) : r;
}

int exact_open(const struct exact_settings *settings, struct exact **ret_exact, struct errmsg *err)
{
    const struct rank_model_settings model = {
        .path = settings->model,
        .ranks = settings->ranks,
        .backend = {.name = "cpu",
                    .threads = settings->threads,
                    .kv_dtype = settings->kv_dtype,
                    .isa = settings->isa},
    };
    const struct rank_limits limits = {.rows_max = ROWS_MAX,
                                       .sequences_max = SEQUENCES_MAX,
                                       .context_tokens_max = CONTEXT_TOKENS_MAX,
                                       .kv_blocks = BLOCKS_MAX + 1,
                                       .rank_timeout_ms = 60000,
                                       .window_blocks = WINDOW_BLOCKS_MAX + 1};
    struct exact *exact = mem_zalloc(sizeof(*exact));
    exact->settings = *settings;
    exact->world = NEVER;
    exact->metrics = metrics_new(worker_metric_specs, WORKER_METRICS);
    int r = ranks_open(&model, &limits, HOST_BLOCKS_MAX, &exact->ranks, err);
    if (r == 0)
        r = open_alone(exact, err);
    if (r < 0) {
        exact_close(exact);
        return r;
    }
    *ret_exact = exact;
    return 0;
}

void exact_close(struct exact *exact)
{
    if (exact == NULL)
        return;
    play_close(&exact->alone);
    ranks_close(exact->ranks);
    metrics_free(exact->metrics);
    mem_free(exact->difference.row);
    mem_free(exact);
}

const struct exact_counts *exact_counts(const struct exact *exact)
{
    return &exact->counts;
}
