/* test_kv_events.c - events leave in an order in which "stored, then removed" per message is right,
 * with contiguous numbers, from a fixed number of buffers. */
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "worker/engine/kv_events.h"

struct fixture {
    struct outbox *outbox;
    struct kv_events events;
    struct block_events callbacks;
    struct block_pool *pool; /* an empty one: every parent is a root */
};

static int setup(void **state)
{
    static struct fixture f;
    struct errmsg err;
    f.outbox = outbox_new(4, 4);
    kv_events_init(&f.events, f.outbox);
    f.callbacks = kv_events_callbacks(&f.events);
    assert_int_equal(
        block_pool_new(&(struct block_pool_settings){.blocks_total = 1, .prefix_caching = true},
                       &f.pool, &err),
        0);
    f.events.pool = f.pool;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    outbox_free(f->outbox);
    block_pool_free(f->pool);
    return 0;
}

static struct block_hash hash(uint64_t n)
{
    return (struct block_hash){n, ~n};
}

static void stored(struct fixture *f, uint64_t parent, uint64_t child)
{
    const uint32_t ids[BLOCK_TOKENS] = {0};
    f->callbacks.on_stored(f->callbacks.user, hash(parent), hash(child), ids);
}

static void removed(struct fixture *f, uint64_t n)
{
    f->callbacks.on_removed(f->callbacks.user, hash(n));
}

static void test_one_buffer_holds_stored_then_removed(void **state)
{
    struct fixture *f = *state;
    stored(f, 0, 1);
    stored(f, 1, 2);
    removed(f, 2);
    assert_null(outbox_pop(f->outbox)); /* not before the flush */
    kv_events_flush(&f->events);
    kv_events_flush(&f->events); /* nothing to tell: no message */
    struct output *output = outbox_pop(f->outbox);
    assert_int_equal(output->kind, OUTPUT_KV);
    assert_int_equal(output->kv_sequence, 1);
    assert_int_equal(output->stored_count, 2);
    assert_int_equal(output->removed_count, 1);
    assert_int_equal(output->kv_blocks, 1);
    assert_int_equal(output->kv_digest, 1);
    outbox_recycle(f->outbox, output);
    assert_null(outbox_pop(f->outbox));
}

static void test_stored_after_removed_starts_another_message(void **state)
{
    struct fixture *f = *state;
    stored(f, 0, 1);
    kv_events_flush(&f->events);
    removed(f, 1);
    stored(f, 0, 1); /* the same block again, in one step */
    kv_events_flush(&f->events);
    outbox_recycle(f->outbox, outbox_pop(f->outbox));
    struct output *second = outbox_pop(f->outbox);
    assert_int_equal(second->kv_sequence, 2);
    assert_int_equal(second->removed_count, 1);
    assert_int_equal(second->stored_count, 0);
    assert_int_equal(second->kv_blocks, 0);
    outbox_recycle(f->outbox, second);
    struct output *third = outbox_pop(f->outbox);
    assert_int_equal(third->kv_sequence, 3);
    assert_int_equal(third->stored_count, 1);
    outbox_recycle(f->outbox, third);
}

static void test_more_events_than_a_buffer_holds_go_in_several(void **state)
{
    struct fixture *f = *state;
    for (uint64_t i = 1; i <= OUTPUT_STORED_MAX + 5; i++)
        stored(f, i - 1, i);
    kv_events_flush(&f->events);
    struct output *first = outbox_pop(f->outbox), *second = outbox_pop(f->outbox);
    assert_int_equal(first->stored_count, OUTPUT_STORED_MAX);
    assert_int_equal(second->stored_count, 5);
    assert_int_equal(second->kv_blocks, OUTPUT_STORED_MAX + 5);
    outbox_recycle(f->outbox, first);
    outbox_recycle(f->outbox, second);
}

/* The other end: recycles until it saw `last`. */
static void *drain(void *user)
{
    struct fixture *f = user;
    uint64_t sequence = 0;
    while (sequence < 1000) {
        struct output *output = outbox_pop(f->outbox);
        if (output == NULL)
            continue;
        assert_int_equal(output->kv_sequence, sequence + 1);
        sequence = output->kv_sequence;
        outbox_recycle(f->outbox, output);
    }
    return NULL;
}

static void test_the_engine_waits_when_all_buffers_are_on_their_way(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain, f), 0);
    for (uint64_t i = 1; i <= 1000; i++) { /* 1000 messages through 32 buffers */
        stored(f, i - 1, i);
        kv_events_flush(&f->events);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(outbox_pop(f->outbox));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_buffer_holds_stored_then_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stored_after_removed_starts_another_message, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_more_events_than_a_buffer_holds_go_in_several, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_engine_waits_when_all_buffers_are_on_their_way,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
