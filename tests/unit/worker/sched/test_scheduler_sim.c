/* test_scheduler_sim.c - thousands of random schedules against a fake engine.
 *
 * Each schedule draws settings (pool of a few blocks, tiny budgets, caching on or off), then
 * requests: new chats, turns that continue what an earlier request said, repeats, cuts, different
 * salts; with priorities, deadlines and cancels before, within and after steps. What must hold:
 * every token of every request is the token of its run alone, all invariants after every step, and
 * in the end nothing is referenced and the counts add up.
 *
 * Under sanitizers a few of them, for their sake; all of them in the Release build (sim/scheduler).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sanitized.h"
#include "tests/unit/worker/sched/fake_engine.h"
#include "worker/kv/eviction.h"

#define SCHEDULES (SANITIZED ? 200 : 3000)
#define WINDOW_SCHEDULES (SCHEDULES / 2)
#define REQUESTS_MAX 48
#define IDS_MAX 400
#define BYPASS_MAX 8

struct request {
    struct sequence *seq;  /* NULL: not added, or released */
    uint32_t ids[IDS_MAX]; /* prompt, then what arrived */
    uint32_t expected[IDS_MAX];
    uint32_t prompt_tokens, got, expected_count;
    uint32_t scored; /* prompt tokens told, when asked for */
    enum sequence_finish expected_finish, finish;
    uint64_t arrived_step, admitted_step; /* plans, from 1 */
    int32_t priority;
    bool added, cancelled, has_deadline, wants_scores;
};

struct sim {
    struct fake_engine engine;
    struct scheduler_settings settings;
    uint64_t random;
    uint32_t tokens_max; /* context or pool */
    uint32_t window;     /* of layers that slide; 0: none */
    bool caching, priorities;
    struct request requests[REQUESTS_MAX];
    uint32_t added, refused, pinned;
    uint64_t pins_broken, windows_lost;
    uint64_t scored_total;
};

static uint32_t draw(struct sim *sim, uint32_t below)
{
    sim->random = fake_mix(sim->random, 1, 2);
    return (uint32_t)(sim->random >> 33) % below;
}

/* From windows that nearly always end in the middle of a prompt to some that never do; window
 * blocks from the least to run at all to as many as there are blocks. */
static void draw_windows(struct sim *sim, struct block_pool_settings *pool)
{
    uint32_t longest = sim->settings.context_tokens_max;

    sim->window = pool->window_tokens = 2 + draw(sim, draw(sim, 3) == 0 ? 250 : 60);
    uint32_t seen = sim->window < longest ? sim->window : longest;
    pool->window_blocks = window_blocks_of(seen) + 2 + draw(sim, pool->blocks_total + 1);
}

static void sim_init(struct sim *sim, uint64_t seed, bool windows)
{
    memset(sim, 0, sizeof(*sim));
    sim->random = seed;
    uint32_t blocks = 2 + draw(sim, 20);
    sim->caching = draw(sim, 4) != 0;
    sim->priorities = draw(sim, 3) == 0;
    sim->settings = (struct scheduler_settings){
        .sequences_max = 1 + draw(sim, 6),
        .step_tokens_max = 16 + draw(sim, 60),
        .context_tokens_max = 20 + draw(sim, 300),
        .waiting_max = REQUESTS_MAX,
        .vocab_size = draw(sim, 2) ? 3 : 40,
    };
    sim->tokens_max = sim->settings.context_tokens_max;
    if (sim->tokens_max > blocks * BLOCK_TOKENS)
        sim->tokens_max = blocks * BLOCK_TOKENS;
    struct block_pool_settings pool = {
        .blocks_total = blocks,
        .prefix_caching = sim->caching,
        .eviction = eviction_policies[draw(sim, eviction_policies_count())],
        .pinned_blocks_max = draw(sim, blocks + 1), /* up to all: leases have to give way */
    };
    if (windows)
        draw_windows(sim, &pool);
    fake_engine_start(&sim->engine, &pool, &sim->settings);
}

/* Continue, repeat or cut an earlier request, or begin anew under one of two system prompts. */
static uint32_t draw_prompt(struct sim *sim, uint32_t index, uint32_t *ids)
{
    uint32_t count = 0;

    if (index > 0 && draw(sim, 4) != 0) {
        const struct request *old = &sim->requests[draw(sim, index)];
        count = old->prompt_tokens + old->got;
        if (draw(sim, 3) == 0)
            count = draw(sim, count + 1);
        memcpy(ids, old->ids, count * sizeof(*ids));
        if (count > 0 && draw(sim, 3) == 0)
            return count;
    } else {
        count = draw(sim, 40);
        for (uint32_t i = 0; i < count; i++)
            ids[i] = i % 3;
    }
    uint32_t more = 1 + draw(sim, 30);
    for (uint32_t i = 0; i < more && count < IDS_MAX / 2; i++)
        ids[count++] = draw(sim, sim->settings.vocab_size);
    return count;
}

static void add_request(struct sim *sim, uint32_t index)
{
    struct request *request = &sim->requests[index];
    struct errmsg err = {""};
    char name[16];

    request->prompt_tokens = draw_prompt(sim, index, request->ids);
    (void)snprintf(name, sizeof(name), "r%u", index);
    struct sequence_params params =
        fake_params(name, request->ids, request->prompt_tokens, 1 + draw(sim, 50));
    params.root.low = 7 + (draw(sim, 8) == 0);
    params.no_prefix_reuse = draw(sim, 10) == 0;
    request->wants_scores = draw(sim, 6) == 0;
    params.prompt_logprobs = request->wants_scores;
    params.tokens_min = draw(sim, 3) == 0 ? draw(sim, params.tokens_max + 1) : 0;
    params.stop_ids_count = sim->settings.vocab_size > 3 ? draw(sim, 3) : 0;
    for (uint32_t i = 0; i < params.stop_ids_count; i++)
        params.stop_ids[i] = draw(sim, sim->settings.vocab_size);
    params.priority = request->priority = sim->priorities ? (int32_t)draw(sim, 3) - 1 : 0;
    params.deadline_ns = draw(sim, 8) == 0 ? sim->engine.now_ns + draw(sim, 60) : 0;
    request->has_deadline = params.deadline_ns != 0;
    params.owner = request;
    int r = scheduler_add(sim->engine.scheduler, &params, &request->seq, &err);
    uint32_t blocks = (request->prompt_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS + 1;
    if (request->prompt_tokens >= sim->settings.context_tokens_max || blocks > sim->engine.blocks) {
        assert_int_equal(r, -E2BIG);
        assert_true(strlen(err.text) > 0);
        sim->refused++;
        return;
    }
    assert_int_equal(r, 0);
    request->added = true;
    request->arrived_step = sim->engine.steps_total + 1;
    sim->added++;
    uint32_t ids_max = request->prompt_tokens + params.tokens_max;
    if (ids_max > sim->tokens_max)
        ids_max = sim->tokens_max;
    request->expected_count =
        fake_alone_windowed(&params, sim->window, ids_max, sim->settings.vocab_size,
                            request->expected, &request->expected_finish);
}

static void take_item(struct sim *sim, const struct commit_item *item)
{
    struct request *request = item->sequence->params.owner;

    assert_ptr_equal(request->seq, item->sequence);
    assert_int_equal(request->finish, SEQ_FINISH_NONE);
    if (item->has_token) {
        assert_int_equal(item->first, request->got == 0);
        assert_int_equal(request->scored, request->wants_scores ? request->prompt_tokens - 1 : 0);
        assert_true(request->got < request->expected_count);
        assert_int_equal(item->token.id, request->expected[request->got]);
        request->ids[request->prompt_tokens + request->got++] = item->token.id;
    }
    if (item->finish == SEQ_FINISH_NONE)
        return;
    request->finish = item->finish;
    assert_true(item->sequence->cached_tokens < request->prompt_tokens);
    assert_true(item->sequence->bypassed <= BYPASS_MAX);
    assert_true((sim->caching && !request->wants_scores) || item->sequence->cached_tokens == 0);
    scheduler_release(sim->engine.scheduler, item->sequence);
    request->seq = NULL;
}

static void cancel_one(struct sim *sim)
{
    struct request *request = &sim->requests[draw(sim, REQUESTS_MAX)];

    if (request->seq == NULL)
        return;
    request->cancelled = true;
    scheduler_cancel(sim->engine.scheduler, request->seq, SEQ_FINISH_CANCELLED);
}

/* What a request has so far, leased for a while. */
static void pin_one(struct sim *sim)
{
    const struct request *request = &sim->requests[draw(sim, REQUESTS_MAX)];
    struct block_hash hashes[IDS_MAX / BLOCK_TOKENS];
    uint32_t scratch[IDS_MAX / BLOCK_TOKENS], blocks;
    struct block_chain chain = {.root = {.low = 7, .high = 9}, .hashes = hashes};

    chain.ids = request->ids;
    chain.count = (uint32_t)block_hash_chain(chain.root, request->ids,
                                             request->prompt_tokens + request->got, hashes);
    int r = block_pool_pin(sim->engine.pool, &chain, sim->engine.now_ns + draw(sim, 200), scratch,
                           &blocks, NULL);
    assert_true(r == 0 || r == -ENOENT || r == -ENOSPC);
    sim->pinned += r == 0;
}

static void note_admissions(struct sim *sim)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *request = &sim->requests[i];
        if (request->seq != NULL && request->admitted_step == 0 && request->seq->scheduled_ns != 0)
            request->admitted_step = sim->engine.steps_total + 1;
    }
}

/* Each prompt token is told once and in order, whatever is computed again. */
static void note_scores(struct sim *sim, uint64_t *total)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < sim->engine.plan.entries_count; i++) {
        const struct plan_entry *entry = &sim->engine.plan.entries[i];
        struct request *request = entry->sequence->params.owner;
        if (entry->score_rows == 0)
            continue;
        assert_true(request->wants_scores);
        assert_int_equal(entry->first_position + entry->score_first, request->scored);
        assert_true(entry->score_first + entry->score_rows <= entry->rows);
        request->scored += entry->score_rows;
        assert_true(request->scored < request->prompt_tokens);
        rows += entry->score_rows;
    }
    assert_int_equal(rows, sim->engine.plan.scored_rows);
    assert_true(rows <= SCORED_ROWS_MAX);
    *total += rows;
}

static void step(struct sim *sim, uint32_t cancel_one_in)
{
    struct fake_engine *engine = &sim->engine;

    fake_plan(engine);
    scheduler_check(engine->scheduler);
    note_admissions(sim);
    note_scores(sim, &sim->scored_total);
    assert_true(engine->plan.rows <= sim->settings.step_tokens_max);
    fake_forward(engine);
    if (draw(sim, cancel_one_in) == 0)
        cancel_one(sim);
    uint32_t items = fake_commit(engine);
    for (uint32_t i = 0; i < items; i++)
        take_item(sim, &engine->items[i]);
    scheduler_check(engine->scheduler);
}

/* Nobody waits behind more than eight that stand behind him: of less urgent priority, or of the
 * same and later. More urgent ones pass everybody. Holds, small and large ones, and caching change
 * nothing. */
static uint32_t check_bypass(const struct sim *sim)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct request *a = &sim->requests[i];
        uint32_t before = 0;
        if (a->admitted_step == 0)
            continue;
        for (uint32_t j = 0; j < REQUESTS_MAX; j++) {
            const struct request *b = &sim->requests[j];
            bool behind = b->priority != a->priority ? b->priority > a->priority : j > i;
            before += behind && b->admitted_step >= a->arrived_step &&
                      b->admitted_step < a->admitted_step;
        }
        assert_true(before <= BYPASS_MAX);
        most = before > most ? before : most;
    }
    return most;
}

static void check_end(struct sim *sim)
{
    struct block_counts blocks;
    struct scheduler_counts counts;
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct request *request = &sim->requests[i];
        tokens += request->got;
        if (!request->added)
            continue;
        assert_int_not_equal(request->finish, SEQ_FINISH_NONE);
        if (request->finish == SEQ_FINISH_CANCELLED)
            assert_true(request->cancelled);
        else if (request->finish == SEQ_FINISH_DEADLINE)
            assert_true(request->has_deadline);
        else
            assert_int_equal(request->finish, request->expected_finish);
        if (request->finish == request->expected_finish)
            assert_int_equal(request->got, request->expected_count);
    }
    scheduler_counts(sim->engine.scheduler, &counts);
    assert_int_equal(counts.running + counts.waiting, 0);
    assert_int_equal(counts.pending_prefill_tokens, 0);
    assert_int_equal(counts.finished_total, sim->added);
    assert_int_equal(counts.generated_tokens_total, tokens);
    block_pool_counts(sim->engine.pool, &blocks);
    assert_int_equal(blocks.private_ + blocks.shared, blocks.pinned);
    block_pool_expire_pins(sim->engine.pool, UINT64_MAX);
    sim->pins_broken = blocks.pins_broken_total;
    block_pool_counts(sim->engine.pool, &blocks);
    assert_int_equal(blocks.private_ + blocks.shared, 0);
    assert_int_equal(blocks.empty + blocks.cached, sim->engine.blocks);
    struct window_counts windows;
    window_get_counts(sim->engine.pool, &windows);
    assert_int_equal(windows.private_ + windows.shared, 0);
    sim->windows_lost = windows.lost_total;
    assert_true(sim->caching || blocks.cached == 0);
}

struct totals {
    uint64_t preemptions, cached, prompt, cancelled, added, refused, scored, passed_eight_times,
        pinned, pins_broken, windows_lost, behind_window;
};

/* Nobody holds more window blocks than what rows to come see and a step computes. */
static void check_windows(struct sim *sim, struct totals *totals)
{
    uint32_t most = window_blocks_of(sim->window) +
                    (sim->settings.step_tokens_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS;

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct sequence *seq = sim->requests[i].seq;
        if (seq == NULL || seq->table.count == 0)
            continue;
        assert_true(seq->table.window_end - seq->table.window_first <= most);
        totals->behind_window += seq->table.window_first > 0;
    }
}

static void run_schedule(uint64_t seed, bool windows, struct totals *totals)
{
    static struct sim sim; /* 160 KB: not for a stack */
    struct scheduler_counts counts;
    uint32_t next = 0, steps = 0;

    sim_init(&sim, seed, windows);
    uint32_t arrive_one_in = 1 + draw(&sim, 6);
    uint32_t cancel_one_in = draw(&sim, 2) ? 20 : 1000000;
    while (next < REQUESTS_MAX || !scheduler_idle(sim.engine.scheduler)) {
        while (next < REQUESTS_MAX && draw(&sim, arrive_one_in) == 0 && draw(&sim, 8) != 0)
            add_request(&sim, next++);
        if (draw(&sim, cancel_one_in) == 0)
            cancel_one(&sim);
        if (draw(&sim, 200) == 0)
            block_pool_reset_cache(sim.engine.pool);
        if (draw(&sim, 16) == 0)
            pin_one(&sim);
        step(&sim, cancel_one_in);
        if (windows)
            check_windows(&sim, totals);
        assert_true(++steps < 100000);
    }
    check_end(&sim);
    totals->pinned += sim.pinned;
    totals->pins_broken += sim.pins_broken;
    totals->windows_lost += sim.windows_lost;
    totals->passed_eight_times += check_bypass(&sim) == BYPASS_MAX;
    scheduler_counts(sim.engine.scheduler, &counts);
    totals->preemptions += counts.preemptions_total;
    totals->cached += counts.cached_tokens_total;
    totals->prompt += counts.prompt_tokens_total;
    totals->added += sim.added;
    totals->refused += sim.refused;
    totals->scored += sim.scored_total;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        totals->cancelled += sim.requests[i].finish >= SEQ_FINISH_CANCELLED;
    fake_engine_done(&sim.engine);
}

static void test_random_schedules_give_each_request_its_output_alone(void **state)
{
    struct totals totals = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= SCHEDULES; seed++)
        run_schedule(seed, false, &totals);
    /* The schedules reach what they are meant to reach. */
    assert_true(totals.preemptions > SCHEDULES);
    assert_true(totals.cached > totals.prompt / 10);
    assert_true(totals.cancelled > SCHEDULES);
    assert_true(totals.scored > totals.prompt / 10);
    assert_true(totals.added > 20 * SCHEDULES && totals.refused > SCHEDULES);
    assert_true(totals.passed_eight_times > 0);
    assert_true(totals.pinned > SCHEDULES && totals.pins_broken > SCHEDULES / 20);
    print_message("%llu requests, %llu preemptions, %llu of %llu prompt tokens reused\n",
                  (unsigned long long)totals.added, (unsigned long long)totals.preemptions,
                  (unsigned long long)totals.cached, (unsigned long long)totals.prompt);
}

/* The same of a model whose layers slide: KV of the last tokens only is there, and all of it where
 * it is read. */
static void test_random_schedules_with_windows_give_each_request_its_output_alone(void **state)
{
    struct totals totals = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= WINDOW_SCHEDULES; seed++)
        run_schedule(seed, true, &totals);
    assert_true(totals.preemptions > WINDOW_SCHEDULES);
    assert_true(totals.cached > totals.prompt / 10);
    assert_true(totals.windows_lost > 10 * WINDOW_SCHEDULES &&
                totals.behind_window > 10 * WINDOW_SCHEDULES);
    assert_true(totals.pinned > WINDOW_SCHEDULES && totals.pins_broken > WINDOW_SCHEDULES / 20);
    print_message("%llu requests, %llu preemptions, %llu of %llu prompt tokens reused, %llu window "
                  "blocks lost\n",
                  (unsigned long long)totals.added, (unsigned long long)totals.preemptions,
                  (unsigned long long)totals.cached, (unsigned long long)totals.prompt,
                  (unsigned long long)totals.windows_lost);
}

/* With a seed as argument: that schedule alone; and a second one: with windows. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules_give_each_request_its_output_alone),
        cmocka_unit_test(test_random_schedules_with_windows_give_each_request_its_output_alone),
    };

    if (argc > 1) {
        struct totals totals = {0};
        run_schedule(strtoull(argv[1], NULL, 10), argc > 2, &totals);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
