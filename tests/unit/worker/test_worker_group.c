/* test_worker_group.c - several ranks: the same answers, and the group lives and dies as one. */
#include "tests/unit/worker/router_side.h"

#define END_MS 2000 /* the death of a rank ends its group within 2 s */

struct group_fixture {
    struct process process;
    struct side side;
    struct golden golden;
    int pidfds[8]; /* of ranks 1.. */
};

static bool golden_there(struct golden *golden)
{
    if (golden_open(golden))
        return true;
    print_message("skipped: %s is not there\n", MODEL);
    return false;
}

static void start_group(struct group_fixture *f, const char *const *flags)
{
    process_init(&f->process, flags);
    side_open(&f->side, &f->process);
    side_attach(&f->side);
    for (size_t rank = 1; rank < f->side.hello->n_pids; rank++) {
        f->pidfds[rank] = process_pidfd(f->side.hello->pids[rank]);
        assert_true(f->pidfds[rank] >= 0);
    }
}

static void close_pidfds(struct group_fixture *f)
{
    for (size_t rank = 1; rank < 8; rank++) {
        if (f->pidfds[rank] > 0)
            (void)close(f->pidfds[rank]);
    }
}

/* Ours only: other programs' tests run beside. */
static uint32_t shm_files(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        count += strstr(entry->d_name, "refrain") != NULL;
    if (folder != NULL)
        (void)closedir(folder);
    return count;
}

static void assert_ranks_give_golden_answers(const char *ranks)
{
    const char *flags[] = {"--tensor-parallel-size", ranks, NULL};
    struct group_fixture f = {0};
    assert_true(golden_open(&f.golden));
    start_group(&f, flags);
    assert_int_equal(f.side.hello->ranks, atoi(ranks));
    assert_golden_answers(&f.side, &f.golden);
    assert_golden_answers(&f.side, &f.golden); /* once more from the cache */
    side_close(&f.side);
    process_stop(&f.process);
    for (int rank = 1; rank < atoi(ranks); rank++)
        assert_true(fd_readable_within(f.pidfds[rank], 0)); /* reaped before rank 0 ended */
    close_pidfds(&f);
    json_decref(f.golden.root);
}

static void test_two_ranks_give_the_golden_answers(void **state)
{
    (void)state;
    assert_ranks_give_golden_answers("2");
}

static void test_three_ranks_give_the_golden_answers(void **state)
{
    (void)state; /* 4 query heads on 2 KV heads: KV heads are replicated */
    assert_ranks_give_golden_answers("3");
}

/* Kill one process with requests running: all end, with the group's exit code, and nothing stays.
 */
static void kill_one(uint32_t rank)
{
    static const char *const flags[] = {"--tensor-parallel-size=3", NULL};
    static const char *const id = "k1";
    struct group_fixture f = {0};
    struct answer answer;
    uint32_t ids[TOKENS_MAX];
    assert_true(golden_open(&f.golden));
    start_group(&f, flags);
    side_submit(&f.side, id, ids, golden_ids(&f.golden, 0, "ids", ids), 480);
    side_collect(&f.side, &id, &answer, 1, 1);
    assert_int_equal(kill(f.side.hello->pids[rank], SIGKILL), 0);
    int code = process_wait(&f.process, END_MS);
    assert_int_equal(code, rank == 0 ? 128 + SIGKILL : 70);
    for (uint32_t other = 1; other < 3; other++)
        assert_true(fd_readable_within(f.pidfds[other], END_MS));
    side_close(&f.side);
    if (rank != 0)
        assert_int_equal(files_in(f.process.run_dir), 0);
    assert_int_equal(shm_files(), 0);
    close_pidfds(&f);
    json_decref(f.golden.root);

    /* What a killed rank 0 left behind does not keep the next group out. */
    process_start(&f.process, flags);
    side_open(&f.side, &f.process);
    side_attach(&f.side);
    side_close(&f.side);
    process_stop(&f.process);
}

static void test_a_killed_rank_ends_the_group(void **state)
{
    (void)state;
    kill_one(2);
}

static void test_a_killed_rank_0_takes_the_others_along(void **state)
{
    (void)state;
    kill_one(0);
}

static void test_a_stopped_rank_ends_the_group_by_its_deadline(void **state)
{
    static const char *const flags[] = {"--tensor-parallel-size=2", "--rank-timeout-ms=1000", NULL};
    struct group_fixture f = {0};
    uint32_t ids[TOKENS_MAX];
    (void)state;
    assert_true(golden_open(&f.golden));
    start_group(&f, flags);
    assert_int_equal(kill(f.side.hello->pids[1], SIGSTOP), 0);
    side_submit(&f.side, "h1", ids, golden_ids(&f.golden, 0, "ids", ids), 400);
    assert_int_equal(process_wait(&f.process, (int)WAIT_MS), 70);
    assert_true(fd_readable_within(f.pidfds[1], END_MS)); /* killed, though stopped */
    side_close(&f.side);
    assert_int_equal(files_in(f.process.run_dir), 0);
    assert_int_equal(rmdir(f.process.run_dir), 0);
    close_pidfds(&f);
    json_decref(f.golden.root);
}

static void test_term_to_every_process_is_a_clean_stop(void **state)
{
    static const char *const flags[] = {"--tensor-parallel-size=2", NULL};
    struct group_fixture f = {0};
    (void)state;
    start_group(&f, flags);
    assert_int_equal(kill(f.side.hello->pids[1], SIGINT), 0); /* as Ctrl-C and systemd do */
    assert_int_equal(kill(f.side.hello->pids[1], SIGTERM), 0);
    side_close(&f.side);
    process_stop(&f.process);
    assert_true(fd_readable_within(f.pidfds[1], 0));
    close_pidfds(&f);
}

static void test_bad_starts_are_refused_by_exit_code(void **state)
{
    static const struct {
        const char *flags[2];
        int code; /* 2: the flag itself; 1: not with this model or machine */
    } cases[] = {
        {{"--max-model-len=513", NULL}, 1},
        {{"--kv-cache-memory=4096", NULL}, 1},
        {{"--block-size=32", NULL}, 2},
        {{"--gpu-memory-utilization=0.9", NULL}, 2},
        {{"--cpu-isa=none-such", NULL}, 1},
        {{"--tensor-parallel-size=9", NULL}, 2},
        {{"--router-endpoint=tcp://x:1", NULL}, 2},
        {{"--model=/dev/null", NULL}, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct process process;
        process_init(&process, cases[i].flags);
        assert_int_equal(process_wait(&process, (int)WAIT_MS), cases[i].code);
        assert_int_equal(files_in(process.run_dir), 0);
        assert_int_equal(rmdir(process.run_dir), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks_give_the_golden_answers),
        cmocka_unit_test(test_three_ranks_give_the_golden_answers),
        cmocka_unit_test(test_a_killed_rank_ends_the_group),
        cmocka_unit_test(test_a_killed_rank_0_takes_the_others_along),
        cmocka_unit_test(test_a_stopped_rank_ends_the_group_by_its_deadline),
        cmocka_unit_test(test_term_to_every_process_is_a_clean_stop),
        cmocka_unit_test(test_bad_starts_are_refused_by_exit_code),
    };
    struct golden golden;
    if (!golden_there(&golden))
        return 77;
    json_decref(golden.root);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
