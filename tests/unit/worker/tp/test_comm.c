/* test_comm.c - sums and gathers between 1 to 8 processes and between threads: every rank holds the
 * bits of the sum in rank order; a rank that dies ends the others' waits. */
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "tests/unit/worker/tp/forked.h"
#include "worker/tp/comm.h"

#define DEADLINE_MS 20000u
#define SLOT_FLOATS 40960u /* small, so that the bigger ones are cut */

/* On both sides of 32768, from where on ranks share a sum; cut pieces of both kinds. */
static const size_t counts[] = {1, 63, 576, 32767, 32768, 40961, 90001};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))
#define COUNT_MAX 90001u
#define SHARED_FLOATS 32768u

/* Values whose sum depends on the order of the additions. */
static float value_of(uint32_t rank, size_t i, uint32_t turn)
{
    uint32_t x = (uint32_t)i * 2654435761u + rank * 40503u + turn * 977u + 1;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    float scale = (x & 3) == 0 ? 1e6f : (x & 3) == 1 ? 1e-4f : 1.0f;
    return ((float)(int32_t)x / 2147483648.0f) * scale;
}

static float sum_of(uint32_t ranks, size_t i, uint32_t turn)
{
    float sum = value_of(0, i, turn);
    for (uint32_t rank = 1; rank < ranks; rank++)
        sum += value_of(rank, i, turn);
    return sum;
}

static struct comm *open_comm(struct group *group)
{
    struct comm *comm = comm_shm_new(group);
    comm->deadline_ms = DEADLINE_MS;
    return comm;
}

/* --- sums ------------------------------------------------------------------------------------ */

static int reduce_all_counts(struct group *group, void *user)
{
    struct comm *comm = open_comm(group);
    float *values = mem_calloc(COUNT_MAX, sizeof(*values));
    int wrong = 0;
    for (uint32_t turn = 0; turn < 30 && wrong == 0; turn++) {
        size_t count = counts[turn % COUNTS];
        for (size_t i = 0; i < count; i++)
            values[i] = value_of(comm->rank, i, turn);
        if (comm_all_reduce_sum(comm, values, count) < 0)
            wrong = 2;
        for (size_t i = 0; i < count && wrong == 0; i++) {
            float expected = sum_of(comm->ranks, i, turn);
            wrong = memcmp(&expected, &values[i], sizeof(expected)) != 0;
        }
    }
    mem_free(values);
    comm_free(comm);
    return wrong;
}

static void test_sums_when_made_by_1_to_8_processes_have_the_same_bits_on_all(void **state)
{
    for (uint32_t count = 1; count <= TP_RANKS_MAX; count++) {
        const struct group_limits limits = {.ranks = count, .reduce_floats_max = SLOT_FLOATS};
        struct forked ranks;
        forked_start(&ranks, &limits, reduce_all_counts, NULL);
        assert_int_equal(reduce_all_counts(ranks.group, NULL), 0);
        for (uint32_t rank = 1; rank < count; rank++)
            assert_int_equal(forked_wait(&ranks, rank), 0);
        group_free(ranks.group);
    }
}

static void *reduce_in_a_thread(void *group)
{
    return reduce_all_counts(group, NULL) == 0 ? NULL : group;
}

static void test_sums_when_made_by_threads_have_the_same_bits_on_all(void **state)
{
    const struct group_limits limits = {.ranks = 4, .reduce_floats_max = SLOT_FLOATS};
    struct group *groups[4];
    pthread_t threads[4];
    int fd = -1;
    assert_int_equal(group_create(&limits, &groups[0], &fd, NULL), 0);
    (void)close(fd);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(group_attach(groups[0], i, &groups[i], NULL), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, reduce_in_a_thread, groups[i]), 0);
    }
    assert_int_equal(reduce_all_counts(groups[0], NULL), 0);
    for (uint32_t i = 1; i < 4; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
        group_free(groups[i]);
    }
    group_free(groups[0]);
}

/* --- gathers --------------------------------------------------------------------------------- */

static const uint32_t columns[TP_RANKS_MAX] = {5, 0, 1700, 16, 16, 1, 0, 33};

/* Gathers and sums in turn: slots must not be written before they were read. */
static int gather_rows(struct group *group, void *user)
{
    struct comm *comm = open_comm(group);
    uint32_t stride = 0, own = columns[comm->rank];
    const uint32_t rows = 7;
    for (uint32_t i = 0; i < comm->ranks; i++)
        stride += columns[i];
    float *part = mem_calloc((size_t)rows * own + 1, sizeof(*part));
    float *full = mem_calloc((size_t)rows * stride + 1, sizeof(*full));
    int wrong = 0;
    float *ones = mem_calloc(SHARED_FLOATS, sizeof(*ones));
    for (uint32_t turn = 0; turn < 12 && wrong == 0; turn++) {
        size_t sums = turn % 2 == 0 ? 1 : SHARED_FLOATS;
        for (size_t i = 0; i < (size_t)rows * own; i++)
            part[i] = value_of(comm->rank, i, turn);
        if (comm_gather_columns(comm, part, rows, columns, comm->rank == 0 ? full : NULL) < 0)
            wrong = 2;
        for (uint32_t rank = 0, at = 0; rank < comm->ranks && comm->rank == 0; rank++) {
            for (uint32_t i = 0; i < rows * columns[rank]; i++) {
                uint32_t row = i / columns[rank], column = i % columns[rank];
                wrong |= full[row * stride + at + column] != value_of(rank, i, turn);
            }
            at += columns[rank];
        }
        for (size_t i = 0; i < sums; i++)
            ones[i] = 1;
        if (turn % 3 == 0 && comm_all_reduce_sum(comm, ones, sums) < 0)
            wrong = 2;
        for (size_t i = 0; i < sums && turn % 3 == 0; i++)
            wrong |= ones[i] != (float)comm->ranks;
    }
    mem_free(ones);
    mem_free(part);
    mem_free(full);
    comm_free(comm);
    return wrong;
}

static void test_columns_when_gathered_lie_in_rank_order_on_rank_0(void **state)
{
    for (uint32_t i = 0; i < 2 * TP_RANKS_MAX; i++) {
        uint32_t count = 1 + i % TP_RANKS_MAX;
        const struct group_limits limits = {
            .ranks = count, .reduce_floats_max = i < TP_RANKS_MAX ? 1024 : SLOT_FLOATS};
        struct forked ranks;
        forked_start(&ranks, &limits, gather_rows, NULL);
        assert_int_equal(gather_rows(ranks.group, NULL), 0);
        for (uint32_t rank = 1; rank < count; rank++)
            assert_int_equal(forked_wait(&ranks, rank), 0);
        group_free(ranks.group);
    }
}

static void test_single_when_asked_leaves_values_as_they_are(void **state)
{
    struct comm *comm = comm_single_new();
    float values[3] = {1, 2, 3}, full[3] = {0, 0, 0};
    const uint32_t three[1] = {3};
    assert_int_equal(comm_all_reduce_sum(comm, values, 3), 0);
    assert_true(values[0] == 1 && values[2] == 3);
    assert_int_equal(comm_gather_columns(comm, values, 1, three, full), 0);
    assert_memory_equal(values, full, sizeof(values));
    comm_free(comm);
}

/* --- faults ---------------------------------------------------------------------------------- */

static int reduce_until_a_fault(struct group *group, void *user)
{
    static float values[SHARED_FLOATS];
    const size_t *count = user;
    struct comm *comm = comm_shm_new(group);
    int r = 0;
    comm->deadline_ms = 3000;
    for (uint64_t i = 0; r == 0; i++) {
        for (size_t k = 0; k < *count; k++)
            values[k] = 1.0f;
        r = comm_all_reduce_sum(comm, values, *count);
        group_beat(group, i);
    }
    comm_free(comm);
    return r == -ECANCELED || r == -ETIMEDOUT ? 77 : 1;
}

static void test_others_when_a_rank_is_killed_in_a_sum_are_told_within_the_deadline(void **state)
{
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t count = 2 + i / 2 * 2;
        size_t floats = i % 2 == 0 ? 576 : SHARED_FLOATS;
        const struct group_limits limits = {.ranks = count, .reduce_floats_max = SLOT_FLOATS};
        struct forked ranks;
        forked_start(&ranks, &limits, reduce_until_a_fault, &floats);
        pid_t killer = fork(); /* rank 0 is busy below */
        if (killer == 0) {
            (void)usleep(100000);
            _exit(kill(ranks.pids[count - 1], SIGKILL) == 0 ? 0 : 1);
        }
        uint64_t begin = clock_ms();
        assert_int_equal(reduce_until_a_fault(ranks.group, &floats), 77);
        for (uint32_t rank = 1; rank + 1 < count; rank++)
            assert_int_equal(forked_wait(&ranks, rank), 77);
        assert_true(clock_ms() - begin < 20000);
        assert_int_equal(forked_wait(&ranks, count - 1), 128 + SIGKILL);
        assert_int_equal(waitpid(killer, NULL, 0), killer);
        char reason[64];
        (void)snprintf(reason, sizeof(reason), "rank %u has died (all-reduce)", count - 1);
        assert_string_equal(group_aborted(ranks.group), reason);
        group_free(ranks.group);
    }
}

/* A rank that lives but does not come. */
static int sleep_until_aborted(struct group *group, void *user)
{
    while (group_aborted(group) == NULL)
        (void)usleep(10000);
    return 0;
}

static void test_sum_when_a_rank_does_not_come_times_out_with_a_reason(void **state)
{
    const struct group_limits limits = {.ranks = 2, .reduce_floats_max = SLOT_FLOATS};
    struct forked ranks;
    float value = 1;
    forked_start(&ranks, &limits, sleep_until_aborted, NULL);
    struct comm *comm = comm_shm_new(ranks.group);
    comm->deadline_ms = 120;
    assert_int_equal(comm_all_reduce_sum(comm, &value, 1), -ETIMEDOUT);
    assert_string_equal(group_aborted(ranks.group), "rank 0 waited 120 ms for rank 1 (all-reduce)");
    assert_int_equal(forked_wait(&ranks, 1), 0);
    comm_free(comm);
    group_free(ranks.group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_when_made_by_1_to_8_processes_have_the_same_bits_on_all),
        cmocka_unit_test(test_sums_when_made_by_threads_have_the_same_bits_on_all),
        cmocka_unit_test(test_columns_when_gathered_lie_in_rank_order_on_rank_0),
        cmocka_unit_test(test_single_when_asked_leaves_values_as_they_are),
        cmocka_unit_test(test_others_when_a_rank_is_killed_in_a_sum_are_told_within_the_deadline),
        cmocka_unit_test(test_sum_when_a_rank_does_not_come_times_out_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
