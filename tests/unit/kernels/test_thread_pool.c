/* cpu/thread_pool.c: every piece once, results visible, workers asleep when there is nothing. */
#include <cmocka.h>

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/thread_pool.h"
#include "proto/base/mem.h"

#define PIECES_MAX 1000

struct counts {
    uint32_t value[PIECES_MAX]; /* plain: the pool must order them */
    _Atomic uint32_t threads_seen;
    uint32_t add;
};

static void count_piece(void *context, uint32_t piece, unsigned thread)
{
    struct counts *counts = context;
    counts->value[piece] += counts->add;
    atomic_fetch_or(&counts->threads_seen, 1u << thread);
}

static struct thread_pool *open_pool(unsigned threads)
{
    struct thread_pool *pool = NULL;
    assert_int_equal(thread_pool_new(threads, &pool, NULL), 0);
    assert_int_equal(thread_pool_threads(pool), threads);
    return pool;
}

static void test_run_when_repeated_runs_every_piece_once(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        struct thread_pool *pool = open_pool(threads);
        struct counts *counts = mem_zalloc(sizeof(*counts));
        uint32_t sum = 0;
        for (uint32_t job = 1; job <= 300; job++) {
            uint32_t pieces = job * 7 % 40;
            counts->add = job;
            thread_pool_run(pool, count_piece, counts, pieces);
            sum += job * pieces;
        }
        uint32_t got = 0;
        for (int i = 0; i < PIECES_MAX; i++)
            got += counts->value[i];
        assert_int_equal(got, sum);
        assert_int_equal(atomic_load(&counts->threads_seen) >> threads, 0);
        mem_free(counts);
        thread_pool_free(pool);
    }
}

static void test_run_when_workers_are_parked_wakes_them(void **state)
{
    struct thread_pool *pool = open_pool(3);
    struct counts *counts = mem_zalloc(sizeof(*counts));
    (void)state;
    counts->add = 1;
    for (int job = 0; job < 20; job++) {
        usleep(2000); /* far beyond the spin */
        thread_pool_run(pool, count_piece, counts, PIECES_MAX);
    }
    for (int i = 0; i < PIECES_MAX; i++)
        assert_int_equal(counts->value[i], 20);
    mem_free(counts);
    thread_pool_free(pool);
}

static double process_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void test_workers_when_there_is_no_job_take_no_processor_time(void **state)
{
    struct thread_pool *pool = open_pool(4);
    struct counts *counts = mem_zalloc(sizeof(*counts));
    (void)state;
    thread_pool_run(pool, count_piece, counts, 100);
    usleep(50000); /* let them park */
    double before = process_seconds();
    usleep(200000);
    assert_true(process_seconds() - before < 0.02);
    mem_free(counts);
    thread_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_when_repeated_runs_every_piece_once),
        cmocka_unit_test(test_run_when_workers_are_parked_wakes_them),
        cmocka_unit_test(test_workers_when_there_is_no_job_take_no_processor_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
