/* thread_pool.c - a job is a ticket that threads tear pieces off.
 *
 *   ticket   [generation : 32 | pieces left : 32]   taking a piece: compare-and-swap of one less
 *
 *   caller:  write fn, context, pieces -> publish ticket, generation -> take pieces
 *            -> wait until all are done
 *   worker:  SPIN (~30 us) -> YIELD (a few) -> PARK (futex on generation) -> take pieces -> SPIN
 *
 * Why pieces and not one share per thread: on a shared machine one thread may be off its core for
 *   milliseconds; then the others take its pieces.
 *
 * Why a thread offers its core once in a while: where another program wants it, the kernel takes it
 *   in the midst of a piece, and all wait for that one; given up between two pieces it is only a
 *   thread less. Two cores of Zen 3, Linux 6.18, medians of 6 and of 10 alternated runs: beside one
 *   busy process prefill keeps 0.67 and 0.59 in place of 0.52 and 0.57, decode 0.76 and 0.65 in
 *   place of 0.68 and 0.60. Not more often: who yields each millisecond gets a smaller part.
 *
 * Why a generation in the ticket: a worker that slept through a whole job holds an old ticket, and
 *   its compare-and-swap must fail. While a ticket (g, left > 0) stands, the caller is inside job
 *   g, so fn and context read between the load and a successful swap belong to job g.
 *
 * Why spin at all: a decode step is ~150 jobs of ~20 us; a futex wake costs 5 to 50 us.
 *
 * Cost: ~0.3 us per job when the workers spin, and a look at the clock per piece.
 *
 * Invariant: done == pieces when run returns, and no thread touches the job after that. */
#include "kernels/cpu/thread_pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/relax.h"

#define SPIN_PAUSES 1000
#define YIELDS 8
#define TURN_NS 2000000 /* a slice of Linux is 1.5 to 3 ms: gone before it is taken */
#define LINE 64         /* words that different threads write stand on different cache lines */

struct worker {
    struct thread_pool *pool;
    pthread_t thread;
    unsigned index;
    uint64_t turn_ns; /* when it last offered its core */
};

struct thread_pool {
    unsigned threads;
    unsigned started; /* workers that exist */
    struct worker *workers;
    uint64_t caller_turn_ns; /* as a worker's turn_ns */

    /* The job. Atomic because a late worker may read while the next one is written; it then finds
     * its ticket outdated and uses nothing of what it read. */
    _Alignas(LINE) _Atomic(thread_pool_fn) fn;
    _Atomic(void *) context;
    _Atomic uint32_t pieces;
    _Atomic bool quit;

    _Alignas(LINE) _Atomic uint64_t ticket;
    _Alignas(LINE) _Atomic uint32_t generation; /* what idle workers watch, and park on */
    _Alignas(LINE) _Atomic uint32_t parked;     /* workers in or on their way into the futex */
    _Alignas(LINE) _Atomic uint32_t done;       /* pieces finished; the caller parks on it */
    _Atomic bool caller_parked;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static uint64_t ticket_of(uint32_t generation, uint32_t left)
{
    return (uint64_t)generation << 32 | left;
}

/* By a thread that holds no piece. If nobody else wants the core it is back within a microsecond.
 */
static void offer_core(uint64_t *turn_ns)
{
    if (clock_ns() - *turn_ns < TURN_NS)
        return;
    (void)sched_yield();
    *turn_ns = clock_ns();
}

/* Tear off and run pieces until none is left. */
static void take_pieces(struct thread_pool *pool, unsigned thread, uint64_t *turn_ns)
{
    offer_core(turn_ns);
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while ((uint32_t)ticket > 0) {
        thread_pool_fn fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool->context, memory_order_relaxed);
        uint32_t pieces = atomic_load_explicit(&pool->pieces, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue; /* `ticket` is the new one */
        fn(context, pieces - (uint32_t)ticket, thread);
        if (atomic_fetch_add(&pool->done, 1) + 1 == pieces && atomic_load(&pool->caller_parked))
            futex_wake(&pool->done, 1);
        offer_core(turn_ns);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

/* Until the generation is not `seen` any more; returns the new one. */
static uint32_t wait_for_job(struct thread_pool *pool, uint32_t seen)
{
    uint32_t now = seen;
    for (int i = 0; i < SPIN_PAUSES; i++) {
        now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen)
            return now;
        cpu_relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        (void)sched_yield();
        now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen)
            return now;
    }
    /* Either the caller sees `parked` and wakes us, or the kernel sees the new generation. */
    (void)atomic_fetch_add(&pool->parked, 1);
    while ((now = atomic_load(&pool->generation)) == seen)
        futex_wait(&pool->generation, seen);
    (void)atomic_fetch_sub(&pool->parked, 1);
    return now;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct thread_pool *pool = worker->pool;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_for_job(pool, seen);
        if (atomic_load(&pool->quit))
            return NULL;
        take_pieces(pool, worker->index, &worker->turn_ns);
    }
}

static void publish(struct thread_pool *pool, uint32_t pieces)
{
    uint32_t generation = atomic_load_explicit(&pool->generation, memory_order_relaxed) + 1;
    atomic_store_explicit(&pool->ticket, ticket_of(generation, pieces), memory_order_release);
    atomic_store(&pool->generation, generation);
    if (atomic_load(&pool->parked) > 0)
        futex_wake(&pool->generation, INT_MAX);
}

/* The last pieces run elsewhere. */
static void wait_until_done(struct thread_pool *pool, uint32_t pieces)
{
    for (int i = 0; i < SPIN_PAUSES; i++) {
        if (atomic_load_explicit(&pool->done, memory_order_acquire) == pieces)
            return;
        cpu_relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        (void)sched_yield();
        if (atomic_load_explicit(&pool->done, memory_order_acquire) == pieces)
            return;
    }
    uint32_t done;
    atomic_store(&pool->caller_parked, true);
    while ((done = atomic_load(&pool->done)) != pieces)
        futex_wait(&pool->done, done);
    atomic_store(&pool->caller_parked, false);
}

void thread_pool_run(struct thread_pool *pool, thread_pool_fn fn, void *context, uint32_t pieces)
{
    if (pool->threads == 1 || pieces <= 1) {
        for (uint32_t piece = 0; piece < pieces; piece++)
            fn(context, piece, 0);
        return;
    }
    ASSERT((uint32_t)atomic_load_explicit(&pool->ticket, memory_order_relaxed) == 0);
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->context, context, memory_order_relaxed);
    atomic_store_explicit(&pool->pieces, pieces, memory_order_relaxed);
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    publish(pool, pieces);
    take_pieces(pool, 0, &pool->caller_turn_ns);
    wait_until_done(pool, pieces);
}

unsigned thread_pool_threads(const struct thread_pool *pool)
{
    return pool->threads;
}

/* Start the workers with every signal blocked: signals belong to the program's own threads. */
static int start_workers(struct thread_pool *pool)
{
    sigset_t all, before;
    int r = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r == 0 && pool->started < pool->threads - 1) {
        struct worker *worker = &pool->workers[pool->started];
        *worker = (struct worker){.pool = pool, .index = pool->started + 1};
        r = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (r == 0) {
            (void)pthread_setname_np(worker->thread, "kernels");
            pool->started++;
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

int thread_pool_new(unsigned threads, struct thread_pool **ret_pool, struct errmsg *err)
{
    ASSERT(threads >= 1);
    void *memory; /* mem_map: the alignment of the cache lines */
    if (mem_map(sizeof(struct thread_pool), &memory) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for a thread pool");
    struct thread_pool *pool = memory;
    pool->threads = threads;
    pool->workers = mem_calloc(threads, sizeof(*pool->workers));
    int r = start_workers(pool);
    if (r != 0) {
        errno = r;
        (void)errmsg_errno(err, "start thread %u of %u", pool->started + 2, threads);
        thread_pool_free(pool);
        return -ENOMEM;
    }
    *ret_pool = pool;
    return 0;
}

void thread_pool_free(struct thread_pool *pool)
{
    if (pool == NULL)
        return;
    atomic_store(&pool->quit, true);
    publish(pool, 0);
    for (unsigned i = 0; i < pool->started; i++)
        (void)pthread_join(pool->workers[i].thread, NULL);
    mem_free(pool->workers);
    mem_unmap(pool, sizeof(*pool));
}
