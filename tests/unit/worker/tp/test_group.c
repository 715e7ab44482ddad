/* test_group.c - joining, aborting, beating, meeting and sleeping in a group's shared memory. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "proto/base/clock.h"
#include "tests/unit/worker/tp/forked.h"
#include "worker/tp/group_private.h"
#include "worker/tp/step_ring.h"

static const struct group_limits two = {
    .ranks = 2, .step_bytes_max = 1000, .reduce_floats_max = 100};

static struct group *create(const struct group_limits *limits, int *ret_fd)
{
    struct group *group = NULL;
    struct errmsg err = {""};
    if (group_create(limits, &group, ret_fd, &err) < 0)
        fail_msg("%s", err.text);
    return group;
}

/* --- joining --------------------------------------------------------------------------------- */

static void test_join_when_the_rank_is_taken_or_out_of_range_is_refused(void **state)
{
    struct errmsg err = {""};
    struct group *joined = NULL, *again = NULL;
    int fd = -1;
    struct group *group = create(&two, &fd);
    assert_int_equal(group_join(fd, 0, &again, &err), -EINVAL);
    assert_int_equal(group_join(fd, 2, &again, &err), -EINVAL);
    assert_int_equal(group_join(fd, 1, &joined, &err), 0);
    assert_int_equal(group_rank(joined), 1);
    assert_int_equal(group_ranks(joined), 2);
    assert_int_equal(group_join(fd, 1, &again, &err), -EBUSY);
    assert_non_null(strstr(err.text, "rank 1 is taken by process"));
    group_free(joined);
    group_free(group);
    (void)close(fd);
}

static void test_join_when_the_memory_is_not_a_groups_is_refused(void **state)
{
    struct errmsg err = {""};
    struct group *joined = NULL;
    int fd = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(group_join(fd, 1, &joined, &err), -EINVAL); /* empty */
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(group_join(fd, 1, &joined, &err), -EINVAL); /* zeros */
    (void)close(fd);
    struct group *group = create(&two, &fd);
    group->header->step_bytes *= 2; /* more than there is */
    assert_int_equal(group_join(fd, 1, &joined, &err), -EINVAL);
    assert_non_null(strstr(err.text, "contradicts"));
    group->header->step_bytes = UINT64_MAX - 4095;
    assert_int_equal(group_join(fd, 1, &joined, &err), -EINVAL);
    group->header->step_bytes = 4096;
    group->header->ranks = 1000;
    assert_int_equal(group_join(fd, 1, &joined, &err), -EINVAL);
    group_free(group);
    (void)close(fd);
}

static void test_rank_when_its_kv_blocks_differ_is_refused_with_both_names(void **state)
{
    struct group_limits limits = two;
    struct group *joined = NULL;
    struct errmsg err = {""};
    int fd = -1;
    limits.kv_format = "cpu-avx-1";
    struct group *group = create(&limits, &fd);
    assert_int_equal(group_join(fd, 1, &joined, &err), 0);
    assert_int_equal(group_check_kv_format(joined, "cpu-avx-1", &err), 0);
    assert_int_equal(group_check_kv_format(joined, "cpu-avx-int8-1", &err), -EINVAL);
    assert_non_null(strstr(err.text, "are cpu-avx-1, this rank's are cpu-avx-int8-1"));
    assert_non_null(strstr(err.text, "--kv-cache-dtype"));
    group_free(joined);
    group_free(group);
    (void)close(fd);
}

static void test_memory_when_created_has_its_size_sealed(void **state)
{
    int fd = -1;
    struct group *group = create(&two, &fd);
    assert_int_equal(ftruncate(fd, 4096), -1); /* nobody can make us fault */
    group_free(group);
    (void)close(fd);
}

/* --- abort ----------------------------------------------------------------------------------- */

static void test_abort_when_called_twice_keeps_the_first_reason(void **state)
{
    char longest[300];
    int fd = -1;
    struct group *group = create(&two, &fd);
    assert_null(group_aborted(group));
    group_abort(group, "first");
    group_abort(group, "second");
    assert_string_equal(group_aborted(group), "first");
    group_free(group);
    (void)close(fd);
    group = create(&two, &fd);
    memset(longest, 'x', sizeof(longest));
    longest[299] = '\0';
    group_abort(group, longest);
    assert_int_equal(strlen(group_aborted(group)), 127);
    group_free(group);
    (void)close(fd);
}

static int meet(struct group *group, void *user)
{
    return -group_barrier(group, *(uint32_t *)user);
}

static void test_waits_when_aborted_by_another_rank_end_at_once(void **state)
{
    struct forked ranks;
    uint32_t deadline_ms = 60000;
    forked_start(&ranks, &two, meet, &deadline_ms);
    (void)usleep(50000); /* asleep by now, most likely; right in any case */
    uint64_t begin = clock_ms();
    group_abort(ranks.group, "test");
    assert_int_equal(forked_wait(&ranks, 1), ECANCELED);
    assert_true(clock_ms() - begin < 20000); /* far from the deadline */
    group_free(ranks.group);
}

/* --- barrier and beat ------------------------------------------------------------------------ */

static int meet_100_times(struct group *group, void *user)
{
    int r = 0;
    for (uint32_t i = 0; i < 100 && r == 0; i++) {
        r = group_barrier(group, 30000);
        group_beat(group, i);
    }
    return -r;
}

static void test_barrier_when_all_arrive_lets_them_pass_even_oversubscribed(void **state)
{
    for (uint32_t count = 1; count <= TP_RANKS_MAX; count++) {
        const struct group_limits limits = {.ranks = count};
        struct forked ranks;
        forked_start(&ranks, &limits, meet_100_times, NULL);
        assert_int_equal(meet_100_times(ranks.group, NULL), 0);
        for (uint32_t rank = 1; rank < count; rank++)
            assert_int_equal(forked_wait(&ranks, rank), 0);
        group_free(ranks.group);
    }
}

static void test_barrier_when_a_rank_never_joins_times_out(void **state)
{
    int fd = -1;
    struct group *group = create(&two, &fd);
    assert_int_equal(group_barrier(group, 80), -ETIMEDOUT);
    assert_string_equal(group_aborted(group), "rank 0 waited 80 ms for rank 1 (barrier)");
    group_free(group);
    (void)close(fd);
}

static void test_beat_when_never_or_just_given_tells_its_age(void **state)
{
    int fd = -1;
    struct group *group = create(&two, &fd);
    assert_true(group_beat_age_ms(group, 0) == UINT64_MAX);
    group_beat(group, 7);
    assert_true(group_beat_age_ms(group, 0) < 10000);
    assert_true(group_beat_age_ms(group, 1) == UINT64_MAX);
    group_free(group);
    (void)close(fd);
}

/* --- idling ---------------------------------------------------------------------------------- */

static int wait_for_a_step(struct group *group, void *user)
{
    struct step_descriptor descriptor;
    struct rusage usage;
    int r = step_ring_wait(group, &descriptor);
    (void)getrusage(RUSAGE_SELF, &usage);
    int64_t used_ms = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                      (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
    if (r < 0)
        return -r;
    return used_ms < 300 ? 0 : 1;
}

static void test_followers_when_idle_use_no_processor_time(void **state)
{
    const struct group_limits limits = {
        .ranks = 4,
        .step_bytes_max = step_ring_bytes_max(&(struct step_sizes){1, 1, 1, 0, 0, 1, 0})};
    const struct step_descriptor stop = {.kind = STEP_STOP, .number = 1};
    struct forked ranks;
    forked_start(&ranks, &limits, wait_for_a_step, NULL);
    (void)usleep(1000000); /* a spinning follower would use all of it */
    assert_int_equal(step_ring_publish(ranks.group, &stop), 0);
    for (uint32_t rank = 1; rank < 4; rank++)
        assert_int_equal(forked_wait(&ranks, rank), 0);
    group_free(ranks.group);
}

static void test_followers_when_rank_0_dies_are_told_while_idle(void **state)
{
    const struct group_limits limits = {
        .ranks = 2,
        .step_bytes_max = step_ring_bytes_max(&(struct step_sizes){1, 1, 1, 0, 0, 1, 0})};
    int report[2];
    assert_int_equal(pipe(report), 0);
    pid_t rank0 = fork();
    if (rank0 == 0) {
        struct group *group = NULL;
        int fd = -1;
        if (group_create(&limits, &group, &fd, NULL) < 0)
            _exit(1);
        if (fork() == 0) { /* without the parent-death signal that real ranks have */
            struct group *joined = NULL;
            if (group_join(fd, 1, &joined, NULL) < 0)
                _exit(1);
            uint8_t answer = (uint8_t)wait_for_a_step(joined, NULL);
            _exit(write(report[1], &answer, 1) == 1 ? 0 : 1);
        }
        (void)usleep(100000);
        _exit(0);
    }
    uint8_t answer = 0;
    (void)close(report[1]);
    assert_int_equal(read(report[0], &answer, 1), 1);
    assert_int_equal(answer, ECANCELED);
    assert_int_equal(waitpid(rank0, NULL, 0), rank0);
    (void)close(report[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_when_the_rank_is_taken_or_out_of_range_is_refused),
        cmocka_unit_test(test_join_when_the_memory_is_not_a_groups_is_refused),
        cmocka_unit_test(test_rank_when_its_kv_blocks_differ_is_refused_with_both_names),
        cmocka_unit_test(test_memory_when_created_has_its_size_sealed),
        cmocka_unit_test(test_abort_when_called_twice_keeps_the_first_reason),
        cmocka_unit_test(test_waits_when_aborted_by_another_rank_end_at_once),
        cmocka_unit_test(test_barrier_when_all_arrive_lets_them_pass_even_oversubscribed),
        cmocka_unit_test(test_barrier_when_a_rank_never_joins_times_out),
        cmocka_unit_test(test_beat_when_never_or_just_given_tells_its_age),
        cmocka_unit_test(test_followers_when_idle_use_no_processor_time),
        cmocka_unit_test(test_followers_when_rank_0_dies_are_told_while_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
