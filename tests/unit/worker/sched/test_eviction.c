/* test_eviction.c - which chat pays when the pool is full, through the scheduler. */
#include <cmocka.h>
#include <stdio.h>

#include "tests/unit/worker/sched/fake_engine.h"
#include "worker/kv/eviction.h"

#define IDS_MAX 512u

static const struct scheduler_settings usual = {
    .sequences_max = 4,
    .step_tokens_max = 256,
    .context_tokens_max = 400,
    .waiting_max = 8,
    .vocab_size = 100000,
};

struct chat {
    uint32_t ids[IDS_MAX];
    uint32_t count;
};

/* `tokens` of a message that no other chat or turn has. */
static void say(struct chat *chat, uint32_t tokens)
{
    static uint32_t fresh = 1000;

    for (uint32_t i = 0; i < tokens; i++)
        chat->ids[chat->count++] = fresh++ % 100000;
}

/* One request; its answer joins the chat. How many prompt tokens were found. */
static uint32_t turn(struct fake_engine *engine, struct chat *chat, uint32_t answer_tokens)
{
    static uint32_t number;
    char name[16];

    (void)snprintf(name, sizeof(name), "r%u", number++);
    struct sequence_params params = fake_params(name, chat->ids, chat->count, answer_tokens);
    struct sequence *seq = fake_add(engine, &params);
    while (seq->state != SEQ_FINISHED)
        (void)fake_step(engine);
    scheduler_check(engine->scheduler);
    memcpy(chat->ids, seq->ids, seq->ids_count * sizeof(uint32_t));
    chat->count = seq->ids_count;
    uint32_t found = seq->cached_tokens;
    scheduler_release(engine->scheduler, seq);
    return found;
}

static struct block_counts counts_of(const struct fake_engine *engine)
{
    struct block_counts counts;

    block_pool_counts(engine->pool, &counts);
    return counts;
}

static void test_what_a_chat_thought_goes_first_once_it_went_on_without(void **state)
{
    struct fake_engine engine;
    struct chat old = {.count = 0}, chat = {.count = 0}, other = {.count = 0};
    (void)state;
    fake_engine_init(&engine, 24, true, &usual);
    say(&old, 60);
    (void)turn(&engine, &old, 5); /* four blocks */
    say(&chat, 32);
    (void)turn(&engine, &chat, 65); /* two blocks, then four of thinking */
    chat.count = 32;                /* which the template drops */
    say(&chat, 32);
    assert_int_equal(turn(&engine, &chat, 1), 32);
    assert_int_equal(counts_of(&engine).cached, 12);
    say(&other, 250);
    (void)turn(&engine, &other, 1); /* 16 blocks: four have to go */
    assert_int_equal(counts_of(&engine).lost[BLOCK_LOST_ABANDONED], 4);
    assert_int_equal(counts_of(&engine).evictions_total, 4);
    say(&old, 10); /* let go first, by LRU it would be gone */
    assert_int_equal(turn(&engine, &old, 1), 64);
    fake_engine_done(&engine);
}

static void test_chats_under_one_system_prompt_do_not_abandon_each_other(void **state)
{
    struct fake_engine engine;
    struct chat chats[4];
    (void)state;
    fake_engine_init(&engine, 34, true, &usual);
    for (uint32_t i = 0; i < 4; i++) {
        chats[i].count = 0;
        for (uint32_t n = 0; n < 40; n++)
            chats[i].ids[chats[i].count++] = n; /* two and a half blocks shared */
        say(&chats[i], 4);                      /* the answer begins in the third, too */
        (void)turn(&engine, &chats[i], 30);
    }
    struct chat other = {.count = 0};
    say(&other, 16 * 23);
    (void)turn(&engine, &other, 1);
    assert_int_equal(counts_of(&engine).lost[BLOCK_LOST_ABANDONED], 0);
    assert_int_equal(counts_of(&engine).evictions_total, 3);
    fake_engine_done(&engine);
}

static void test_abandoned_way_that_is_taken_again_counts_as_a_chat(void **state)
{
    struct fake_engine engine;
    struct chat chat = {.count = 0}, fork, other = {.count = 0};
    (void)state;
    fake_engine_init(&engine, 24, true, &usual);
    say(&chat, 32);
    (void)turn(&engine, &chat, 33); /* two blocks, two of an answer */
    fork = chat;
    fork.count = 48; /* behind the first of the answer's */
    say(&fork, 40);
    assert_int_equal(turn(&engine, &fork, 1), 48); /* abandons the second */
    say(&chat, 20);
    assert_int_equal(turn(&engine, &chat, 1), 64); /* and here it is */
    say(&other, 16 * 20);
    (void)turn(&engine, &other, 1);
    assert_int_equal(counts_of(&engine).lost[BLOCK_LOST_ABANDONED], 0);
    assert_true(counts_of(&engine).evictions_total > 0);
    fake_engine_done(&engine);
}

/* Twelve chats in turn, room for about five: under LRU each finds itself gone. */
static uint32_t found_by_turn_takers(const struct eviction_policy *policy)
{
    struct fake_engine engine;
    static struct chat chats[12];
    uint32_t found = 0;

    fake_engine_init_with(&engine, 120, policy, &usual);
    memset(chats, 0, sizeof(chats));
    for (uint32_t round = 0; round < 6; round++)
        for (uint32_t i = 0; i < 12; i++) {
            say(&chats[i], 40);
            uint32_t hit = turn(&engine, &chats[i], 21);
            found += round >= 3 ? hit : 0;
        }
    fake_engine_done(&engine);
    return found;
}

static void test_chats_that_take_turns_do_not_push_out_each_other(void **state)
{
    (void)state;
    assert_int_equal(found_by_turn_takers(&eviction_lru), 0);
    assert_true(found_by_turn_takers(&eviction_chat) > 2000); /* of 6480 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_chat_thought_goes_first_once_it_went_on_without),
        cmocka_unit_test(test_chats_under_one_system_prompt_do_not_abandon_each_other),
        cmocka_unit_test(test_abandoned_way_that_is_taken_again_counts_as_a_chat),
        cmocka_unit_test(test_chats_that_take_turns_do_not_push_out_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
