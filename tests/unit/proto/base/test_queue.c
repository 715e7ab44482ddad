/* queue.c: order, the bound, the eventfd, and eight threads at once (run under TSan too). */
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "proto/base/clock.h"
#include "proto/base/queue.h"

static void *number(uintptr_t value)
{
    return (void *)value;
}

static int readable(const struct queue *queue)
{
    struct pollfd poll_fd = {.fd = queue_fd(queue), .events = POLLIN};

    return poll(&poll_fd, 1, 0);
}

static void test_pop_when_items_wait_gives_them_in_order(void **state)
{
    struct queue *queue = queue_new(3);

    (void)state;
    for (uintptr_t round = 0; round < 10; round++) { /* round the ring's end */
        assert_int_equal(queue_push(queue, number(round + 1)), 0);
        assert_int_equal(queue_push(queue, number(round + 2)), 0);
        assert_int_equal(queue_count(queue), 2);
        assert_ptr_equal(queue_pop(queue), number(round + 1));
        assert_ptr_equal(queue_pop(queue), number(round + 2));
        assert_null(queue_pop(queue));
    }
    queue_free(queue);
    queue_free(NULL);
}

static void test_push_when_full_refuses_until_one_is_taken(void **state)
{
    struct queue *queue = queue_new(2);

    (void)state;
    assert_int_equal(queue_push(queue, number(1)), 0);
    assert_int_equal(queue_push(queue, number(2)), 0);
    assert_int_equal(queue_push(queue, number(3)), -EAGAIN);
    assert_ptr_equal(queue_pop(queue), number(1));
    assert_int_equal(queue_push(queue, number(3)), 0);
    assert_ptr_equal(queue_pop(queue), number(2));
    assert_ptr_equal(queue_pop(queue), number(3));
    queue_free(queue);
}

static void test_fd_when_items_come_and_go_is_readable_until_found_empty(void **state)
{
    struct queue *queue = queue_new(4);

    (void)state;
    assert_int_equal(readable(queue), 0);
    (void)queue_push(queue, number(1));
    (void)queue_push(queue, number(2));
    assert_int_equal(readable(queue), 1);
    (void)queue_pop(queue);
    assert_int_equal(readable(queue), 1); /* one is left */
    (void)queue_pop(queue);
    assert_null(queue_pop(queue));
    assert_int_equal(readable(queue), 0);
    (void)queue_push(queue, number(3));
    assert_int_equal(readable(queue), 1);
    (void)queue_pop(queue);
    queue_free(queue);
}

static void test_wait_when_nothing_comes_times_out(void **state)
{
    struct queue *queue = queue_new(4);
    uint64_t before_ms = clock_ms();

    (void)state;
    (void)queue_push(queue, number(1));
    assert_int_equal(queue_wait(queue, 0), 0);
    (void)queue_pop(queue); /* leaves the fd readable: the wait must not believe it */
    assert_int_equal(queue_wait(queue, 20), -ETIMEDOUT);
    assert_true(clock_ms() - before_ms >= 20);
    assert_int_equal(queue_wait(queue, 0), -ETIMEDOUT);
    queue_free(queue);
}

enum { PRODUCERS = 7, ITEMS = 3000 };

struct producer {
    struct queue *queue;
    uintptr_t first;
    uint64_t refused;
};

static void *produce(void *argument)
{
    struct producer *producer = argument;

    for (uintptr_t i = 0; i < ITEMS; i++) {
        while (queue_push(producer->queue, number(producer->first + i)) == -EAGAIN)
            producer->refused++;
    }
    return NULL;
}

/* Each producer's items arrive in its order, none is lost, none comes twice, no wake-up is missed
 * (a missed one would make the wait without limit hang). */
static void test_wait_when_seven_threads_push_delivers_each_item_once(void **state)
{
    struct queue *queue = queue_new(64);
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    uintptr_t next[PRODUCERS];
    int received = 0;

    (void)state;
    for (int i = 0; i < PRODUCERS; i++) {
        next[i] = (uintptr_t)(i + 1) << 20;
        producers[i] = (struct producer){.queue = queue, .first = next[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    while (received < PRODUCERS * ITEMS) {
        void *item;

        assert_int_equal(queue_wait(queue, -1), 0);
        while ((item = queue_pop(queue)) != NULL) {
            uintptr_t from = ((uintptr_t)item >> 20) - 1;

            assert_true(from < PRODUCERS);
            assert_int_equal((uintptr_t)item, next[from]);
            next[from]++;
            received++;
        }
    }
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(queue_count(queue), 0);
    queue_free(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pop_when_items_wait_gives_them_in_order),
        cmocka_unit_test(test_push_when_full_refuses_until_one_is_taken),
        cmocka_unit_test(test_fd_when_items_come_and_go_is_readable_until_found_empty),
        cmocka_unit_test(test_wait_when_nothing_comes_times_out),
        cmocka_unit_test(test_wait_when_seven_threads_push_delivers_each_item_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
