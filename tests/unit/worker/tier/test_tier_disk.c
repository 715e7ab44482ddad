/* test_tier_disk.c - pool, scheduler, disk tier and its threads together, with real files of two
 * ranks, on an engine whose KV is a hash chain: a block that comes back wrong, from another chat or
 * to the wrong place changes the output. */
#include <cmocka.h>
#include <errno.h>
#include <sched.h>
#include <sys/stat.h>

#include "proto/base/clock.h"
#include "tests/unit/worker/sched/fake_engine.h"
#include "tests/unit/worker/tier/tier_blocks.h"
#include "worker/tier/tier.h"
#include "worker/tier/tier_folder.h"
#include "worker/tier/tier_io.h"

#define PROMPT_MAX 1024
#define RANKS 2u
#define BUFFERS 24u
#define BLOCK_BYTES (BLOCK_TOKENS * sizeof(uint64_t))
#define DEADLINE_MS 20000u
#define SECOND_NS 1000000000ull

struct world {
    struct fake_engine engine;
    struct tier *tier;
    struct tier_io *io[RANKS];
    uint64_t *slots[RANKS]; /* [(host_slots + BUFFERS) * BLOCK_TOKENS] */
    uint32_t done[RANKS][BUFFERS + 1];
    uint64_t rank_kv[PROMPT_MAX * BLOCK_TOKENS]; /* rank 1's, all bits turned */
    bool hung;                                   /* the disks do not even begin */
    struct tier_scan scan;
};

static char path[64];
static struct tier_fs fs;
static uint32_t prompt[PROMPT_MAX];
static struct world world;

static const struct scheduler_settings usual = {
    .sequences_max = 8,
    .step_tokens_max = 64,
    .context_tokens_max = 600,
    .waiting_max = 32,
    .vocab_size = 1000,
};

static int setup(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/refrain-tier-XXXXXX");
    assert_non_null(mkdtemp(path));
    fs = tier_fs_system;
    for (uint32_t i = 0; i < PROMPT_MAX; i++)
        prompt[i] = i % 1000;
    return 0;
}

static int folder_of(uint32_t rank)
{
    char name[96];
    (void)snprintf(name, sizeof(name), "%s/rank-%u", path, rank);
    int fd = open(name, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    return fd;
}

static int teardown(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        char name[96];
        (void)snprintf(name, sizeof(name), "%s/rank-%u", path, rank);
        int fd = open(name, O_RDONLY | O_DIRECTORY);
        if (fd >= 0)
            tier_test_remove(fd, name);
    }
    assert_int_equal(rmdir(path), 0);
    return 0;
}

static unsigned files_of(uint32_t rank)
{
    int fd = folder_of(rank);
    unsigned count = tier_test_files(fd);
    (void)close(fd);
    return count;
}

static void start_io(struct world *w, uint32_t rank)
{
    struct tier_io_settings io = {.folder = -1,
                                  .fs = &fs,
                                  .buffers = (char *)w->slots[rank],
                                  .buffers_count = BUFFERS,
                                  .done = w->done[rank]};
    io.identity = tier_identity_make("fingerprint", "format", rank, RANKS, BLOCK_BYTES);
    assert_int_equal(tier_folder_open(path, rank, &io.folder, NULL), 0);
    assert_int_equal(tier_io_new(&io, &w->io[rank], NULL), 0);
}

static struct world *start(uint32_t blocks, uint32_t host_slots, uint32_t files)
{
    struct world *w = &world;
    struct scheduler_settings settings = usual;
    struct tier_settings tier = {
        .host_slots = host_slots,
        .sequence_blocks = 600 / 16 + 1,
        .disk = {.nodes_max = files, .buffers = BUFFERS, .pool_blocks = blocks, .ranks = RANKS}};
    memset(w, 0, sizeof(*w));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        w->slots[rank] = mem_calloc((host_slots + BUFFERS) * BLOCK_TOKENS, sizeof(uint64_t));
        tier.disk.done[rank] = w->done[rank];
        start_io(w, rank);
    }
    assert_int_equal(tier_new(&tier, &w->tier, NULL), 0);
    w->scan = (struct tier_scan){.path = path, .time_ms = 10000};
    w->scan.identity = tier_identity_make("fingerprint", "format", 0, RANKS, BLOCK_BYTES);
    assert_int_equal(tier_folder_scan(&w->scan, tier_files(w->tier), NULL), 0);
    settings.tiers = tier_lookup_of(w->tier);
    settings.tiers.wait_max_ns = SECOND_NS;
    struct block_pool_settings pool = {.blocks_total = blocks, .prefix_caching = true};
    tier_watch_pool(w->tier, &pool.events);
    fake_engine_start(&w->engine, &pool, &settings);
    tier_check(w->tier);
    return w;
}

/* As a killed worker ends: nothing is said to the disk. */
static void stop(struct world *w)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(tier_io_free(w->io[rank]), 0);
        mem_free(w->slots[rank]);
    }
    tier_check(w->tier);
    fake_engine_done(&w->engine);
    tier_free(w->tier);
}

static void copy(struct world *w, uint32_t rank, const struct step_tier_op *op)
{
    uint64_t *kv = w->engine.kv + (size_t)op->block * BLOCK_TOKENS;
    uint64_t *slot = w->slots[rank] + (size_t)op->slot * BLOCK_TOKENS;
    for (uint32_t i = 0; i < BLOCK_TOKENS; i++) {
        if (op->kind == STEP_TIER_STORE)
            slot[i] = rank == 0 ? kv[i] : ~kv[i];
        else if (rank == 0)
            kv[i] = slot[i];
        else
            assert_int_equal(slot[i], ~kv[i]);
    }
}

static void apply(struct world *w)
{
    uint32_t count, files;
    const struct step_tier_op *ops = tier_ops(w->tier, &count);
    const struct step_disk_op *file_ops = tier_file_ops(w->tier, &files);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t rank = 0; rank < RANKS; rank++)
            copy(w, rank, &ops[i]);
    for (uint32_t rank = 0; rank < RANKS && !w->hung; rank++)
        tier_io_submit(w->io[rank], file_ops, files);
}

static void step(struct world *w)
{
    tier_begin(w->tier, w->engine.now_ns);
    fake_plan(&w->engine);
    tier_add_stores(w->tier);
    apply(w);
    fake_forward(&w->engine);
    tier_step_done(w->tier);
    (void)fake_commit(&w->engine);
    scheduler_check(w->engine.scheduler);
}

/* Until the disk has nothing to do. */
static void settle(struct world *w)
{
    uint64_t end_ms = clock_ms() + DEADLINE_MS;
    while (tier_busy(w->tier)) {
        step(w);
        (void)sched_yield();
        assert_true(clock_ms() < end_ms);
    }
    tier_check(w->tier);
}

static void assert_exact(const struct world *w, const struct sequence *seq)
{
    uint32_t alone[PROMPT_MAX];
    enum sequence_finish why;
    uint32_t count = fake_alone(&seq->params, seq->ids_max, w->engine.vocab_size, alone, &why);
    assert_int_equal(sequence_output_tokens(seq), count);
    assert_memory_equal(seq->ids + seq->prompt_tokens, alone, count * sizeof(uint32_t));
}

static void finish(struct world *w, struct sequence *seq)
{
    uint64_t end_ms = clock_ms() + DEADLINE_MS;
    while (seq->state != SEQ_FINISHED) {
        step(w);
        (void)sched_yield();
        assert_true(clock_ms() < end_ms);
    }
    assert_exact(w, seq);
}

static struct sequence *run(struct world *w, const char *name, const uint32_t *ids, uint32_t count,
                            uint32_t tokens_max)
{
    struct sequence_params params = fake_params(name, ids, count, tokens_max);
    struct sequence *seq = fake_add(&w->engine, &params);
    finish(w, seq);
    return seq;
}

static struct tier_counts counts_of(const struct world *w)
{
    struct tier_counts counts;
    tier_get_counts(w->tier, &counts);
    return counts;
}

/* The file of the block `index` of the prompt's chain. */
static void damage(uint32_t rank, const uint32_t *ids, uint32_t index, unsigned at)
{
    const struct tier_identity identity =
        tier_identity_make("fingerprint", "format", rank, RANKS, BLOCK_BYTES);
    struct block_hash hashes[PROMPT_MAX / BLOCK_TOKENS];
    char name[TIER_FILE_NAME_MAX];
    unsigned char byte;
    (void)block_hash_chain(tier_root, ids, (index + 1) * BLOCK_TOKENS, hashes);
    tier_file_name(&identity, hashes[index], name);
    int folder = folder_of(rank), fd = openat(folder, name, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 16;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
    (void)close(folder);
}

static void test_chat_when_the_worker_was_killed_goes_on_where_it_was(void **state)
{
    uint32_t turn[400];
    (void)state;
    struct world *w = start(40, 0, 200);
    struct sequence *seq = run(w, "first", prompt, 100, 8); /* KV of 107: 6 blocks and 11 tokens */
    memcpy(turn, seq->ids, seq->ids_count * sizeof(*turn));
    for (uint32_t i = seq->ids_count; i < 200; i++)
        turn[i] = 7 * i % 1000;
    settle(w);
    assert_int_equal(files_of(0), 7);
    assert_int_equal(files_of(1), 7);
    assert_int_equal(counts_of(w).disk.stores_total, 7);
    stop(w);
    w = start(40, 0, 200);
    assert_int_equal(w->scan.kept, 7);
    assert_int_equal(counts_of(w).disk.used, 7);
    seq = run(w, "second", turn, 200, 4);
    assert_int_equal(seq->cached_tokens, 107);
    assert_int_equal(seq->cached_disk_tokens, 107);
    assert_int_equal(counts_of(w).disk_hits_total, 6);
    assert_int_equal(counts_of(w).disk.loads_total, 7);
    assert_true(seq->load_wait_ns > 0);
    stop(w);
}

static void test_prompt_when_salted_finds_nothing_of_others(void **state)
{
    (void)state;
    struct world *w = start(40, 0, 200);
    (void)run(w, "first", prompt, 100, 8);
    settle(w);
    stop(w);
    w = start(40, 0, 200);
    struct sequence_params params = fake_params("salted", prompt, 100, 8);
    params.root.low++;
    struct sequence *seq = fake_add(&w->engine, &params);
    finish(w, seq);
    assert_int_equal(seq->cached_tokens, 0);
    stop(w);
}

static void test_host_tier_in_front_is_asked_first(void **state)
{
    (void)state;
    struct world *w = start(20, 40, 200);
    (void)run(w, "first", prompt, 200, 9);
    settle(w);
    (void)run(w, "other", prompt + 500, 300, 2);
    struct sequence *seq = run(w, "again", prompt, 200, 9);
    assert_int_equal(seq->cached_tokens, 12 * BLOCK_TOKENS);
    assert_int_equal(seq->cached_host_tokens, 11 * BLOCK_TOKENS);
    assert_int_equal(seq->cached_disk_tokens, 0);
    stop(w);
}

static void test_file_when_damaged_is_refused_removed_and_computed_again(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct world *w = start(40, 0, 200);
        (void)run(w, "first", prompt, 200, 9);
        settle(w);
        stop(w);
        w = start(40, 0, 200);
        damage(rank, prompt, 5, TIER_FILE_HEADER_BYTES + 77);
        struct sequence *seq = run(w, "second", prompt, 200, 9);
        assert_int_equal(seq->cached_disk_tokens, 5 * BLOCK_TOKENS);
        settle(w);
        assert_int_equal(counts_of(w).disk.errors[TIER_IO_REFUSED], 1);
        assert_int_equal(counts_of(w).disk.state, TIER_DISK_UP);
        stop(w);
        w = start(40, 0, 200);
        damage(rank, prompt, 3, 40); /* rank 0's scan sees that, rank 1 when it reads */
        stop(w);
        w = start(40, 0, 200);
        assert_int_equal(w->scan.refused, rank == 0);
        seq = run(w, "third", prompt, 200, 9);
        assert_int_equal(seq->cached_disk_tokens, 3 * BLOCK_TOKENS);
        settle(w);
        seq = run(w, "fourth", prompt, 200, 9);
        assert_int_equal(seq->cached_tokens, 199); /* of the pool */
        settle(w);
        assert_int_equal(files_of(0), files_of(1));
        stop(w);
        w = start(40, 0, 200);
        seq = run(w, "fifth", prompt, 200, 9);
        assert_int_equal(seq->cached_disk_tokens, 12 * BLOCK_TOKENS);
        assert_true(tier_reset(w->tier) > 0);
        settle(w);
        stop(w);
    }
}

static void test_file_when_one_rank_lacks_it_counts_for_none(void **state)
{
    (void)state;
    struct world *w = start(40, 0, 200);
    (void)run(w, "first", prompt, 200, 9);
    settle(w);
    unsigned files = files_of(0);
    stop(w);
    int folder = folder_of(1);
    struct tier_identity identity =
        tier_identity_make("fingerprint", "format", 1, RANKS, BLOCK_BYTES);
    struct block_hash hashes[8];
    (void)block_hash_chain(tier_root, prompt, 8 * BLOCK_TOKENS, hashes);
    assert_int_equal(tier_file_remove(&fs, folder, &identity, hashes[7]), TIER_IO_OK);
    (void)close(folder);
    w = start(40, 0, 200);
    assert_int_equal(w->scan.kept, files - 1);
    settle(w); /* what hung under it is removed */
    assert_int_equal(files_of(0), 7);
    assert_int_equal(files_of(1), 7);
    struct sequence *seq = run(w, "second", prompt, 200, 9);
    assert_int_equal(seq->cached_disk_tokens, 7 * BLOCK_TOKENS);
    stop(w);
}

static void test_request_when_the_disk_hangs_lets_others_pass_and_computes(void **state)
{
    (void)state;
    struct world *w = start(60, 0, 200);
    (void)run(w, "first", prompt, 200, 9);
    settle(w);
    stop(w);
    w = start(60, 0, 200);
    w->hung = true;
    struct sequence_params params = fake_params("waits", prompt, 200, 9);
    struct sequence *waits = fake_add(&w->engine, &params);
    for (uint32_t i = 0; i < 12; i++) { /* more than BYPASS_MAX */
        char name[16];
        (void)snprintf(name, sizeof(name), "passes %u", i);
        struct sequence *seq = run(w, name, prompt + 300 + i, 20, 2);
        scheduler_release(w->engine.scheduler, seq);
        assert_int_equal(waits->state, SEQ_WAITING);
    }
    assert_int_equal(w->engine.plan.rows, 1);
    w->engine.now_ns += SECOND_NS;
    finish(w, waits);
    assert_int_equal(waits->cached_tokens, 0);
    assert_true(waits->load_wait_ns >= SECOND_NS);
    stop(w);
}

static void test_cancelled_request_when_its_blocks_come_gives_the_buffers_back(void **state)
{
    (void)state;
    struct world *w = start(60, 0, 200);
    (void)run(w, "first", prompt, 200, 9);
    settle(w);
    stop(w);
    w = start(60, 0, 200);
    struct sequence_params params = fake_params("gone", prompt, 200, 9);
    struct sequence *seq = fake_add(&w->engine, &params);
    step(w);
    assert_int_equal(seq->state, SEQ_WAITING);
    scheduler_cancel(w->engine.scheduler, seq, SEQ_FINISH_CANCELLED);
    settle(w);
    for (unsigned i = 0; i < 100; i++)
        step(w);
    tier_check(w->tier);
    seq = run(w, "again", prompt, 200, 9);
    assert_int_equal(seq->cached_disk_tokens, 12 * BLOCK_TOKENS);
    stop(w);
}

static void test_chat_when_longer_than_the_tier_keeps_its_beginning(void **state)
{
    (void)state;
    struct world *w = start(60, 0, 17);
    (void)run(w, "long", prompt, 500, 9);
    settle(w);
    assert_int_equal(files_of(0), 17);
    assert_int_equal(counts_of(w).disk.lost_total, 0);
    assert_int_equal(counts_of(w).disk.drops_total, 15); /* 31 blocks and a tail */
    stop(w);
    w = start(60, 0, 17);
    struct sequence *seq = run(w, "again", prompt, 500, 9);
    assert_int_equal(seq->cached_disk_tokens, 17 * BLOCK_TOKENS);
    stop(w);
}

/* ---- a disk that fails ---- */

static struct {
    _Atomic int error; /* of every write; 0: none */
    _Atomic unsigned tries;
} disk;

static ssize_t failing_writev(int fd, const struct iovec *parts, int count)
{
    disk.tries++;
    if (disk.error == 0)
        return writev(fd, parts, count);
    errno = disk.error;
    return -1;
}

static void fall(int error, enum tier_disk_state state)
{
    unsigned tries;
    fs.writev = failing_writev;
    disk.error = error;
    struct world *w = start(60, 0, 200);
    (void)run(w, "first", prompt, 200, 9);
    settle(w);
    assert_int_equal(counts_of(w).disk.state, state);
    assert_int_equal(counts_of(w).disk.used, 0);
    assert_true(counts_of(w).disk.drops_total > 0);
    tries = disk.tries;
    (void)run(w, "second", prompt + 300, 200, 9);
    settle(w);
    assert_int_equal(disk.tries, tries); /* it is left alone */
    disk.error = 0;
    (void)run(w, "third", prompt + 100, 100, 9);
    settle(w);
    assert_int_equal(disk.tries, tries); /* even when it would do now */
    w->engine.now_ns += 61 * SECOND_NS;
    disk.error = error;
    (void)run(w, "fourth", prompt + 200, 100, 9);
    settle(w);
    assert_int_equal(disk.tries, tries + RANKS); /* one trial */
    assert_int_equal(counts_of(w).disk.state, state);
    w->engine.now_ns += 61 * SECOND_NS;
    disk.error = 0;
    (void)run(w, "fifth", prompt + 250, 100, 9);
    settle(w);
    assert_int_equal(disk.tries, tries + RANKS); /* the second one comes later */
    w->engine.now_ns += 60 * SECOND_NS;
    (void)run(w, "sixth", prompt + 400, 100, 9);
    settle(w);
    assert_int_equal(counts_of(w).disk.state, TIER_DISK_UP);
    (void)run(w, "seventh", prompt + 500, 100, 9);
    settle(w);
    assert_int_equal(files_of(0), counts_of(w).disk.used);
    assert_true(files_of(0) >= 6);
    assert_true(tier_reset(w->tier) > 0);
    settle(w);
    assert_int_equal(files_of(0) + files_of(1), 0);
    stop(w);
}

static void test_disk_when_full_is_tried_again_seldom(void **state)
{
    (void)state;
    fall(ENOSPC, TIER_DISK_FULL);
}

static void test_disk_when_it_fails_is_tried_again_seldom(void **state)
{
    (void)state;
    fall(EIO, TIER_DISK_FAILED);
    fall(EROFS, TIER_DISK_FAILED);
}

static void test_disk_when_full_is_still_read(void **state)
{
    (void)state;
    struct world *w = start(60, 0, 200);
    (void)run(w, "first", prompt, 200, 9);
    settle(w);
    stop(w);
    fs.writev = failing_writev;
    disk.error = ENOSPC;
    w = start(60, 0, 200);
    (void)run(w, "other", prompt + 300, 100, 9);
    settle(w);
    assert_int_equal(counts_of(w).disk.state, TIER_DISK_FULL);
    struct sequence *seq = run(w, "again", prompt, 200, 9);
    assert_int_equal(seq->cached_disk_tokens, 12 * BLOCK_TOKENS);
    stop(w);
}

static void test_folder_when_it_vanishes_is_no_tier(void **state)
{
    (void)state;
    struct world *w = start(60, 0, 200);
    (void)run(w, "first", prompt, 100, 9);
    settle(w);
    char name[96];
    (void)snprintf(name, sizeof(name), "%s/rank-1", path);
    tier_test_remove(folder_of(1), name);
    (void)run(w, "second", prompt + 300, 100, 9);
    settle(w);
    assert_int_equal(counts_of(w).disk.state, TIER_DISK_FAILED);
    assert_true(counts_of(w).disk.errors[TIER_IO_FOLDER] > 0);
    (void)run(w, "third", prompt + 600, 100, 9);
    stop(w);
}

static void test_reset_when_called_leaves_no_file(void **state)
{
    (void)state;
    struct world *w = start(40, 0, 200);
    (void)run(w, "first", prompt, 200, 9);
    for (unsigned i = 0; i < 3; i++) /* some are written, some not */
        step(w);
    block_pool_reset_cache(w->engine.pool);
    (void)tier_reset(w->tier);
    settle(w);
    assert_int_equal(files_of(0), 0);
    assert_int_equal(files_of(1), 0);
    assert_int_equal(counts_of(w).disk.used, 0);
    struct sequence *seq = run(w, "again", prompt, 200, 9);
    assert_int_equal(seq->cached_tokens, 0);
    stop(w);
}

static void test_scan_when_there_are_foreign_files_removes_ours_and_leaves_theirs(void **state)
{
    const struct tier_identity other =
        tier_identity_make("another model", "format", 0, RANKS, BLOCK_BYTES);
    const struct tier_block block = tier_block_make(tier_root, 5, BLOCK_TOKENS);
    char payload[BLOCK_BYTES] = {0};
    (void)state;
    struct world *w = start(40, 0, 200);
    stop(w);
    int folder = folder_of(0);
    assert_int_equal(tier_file_write(&fs, folder, &other, &block, payload), TIER_IO_OK);
    int fd = openat(folder, "notes.txt", O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    w = start(40, 0, 200);
    assert_int_equal(w->scan.refused, 1);
    assert_int_equal(tier_test_files(folder), 1);
    assert_int_equal(faccessat(folder, "notes.txt", F_OK, 0), 0);
    (void)close(folder);
    stop(w);
}

static void test_lock_when_held_names_the_holder(void **state)
{
    struct errmsg err = {""};
    char name[96], pid[24];
    int first = -1, second = -1;
    struct stat st;
    (void)state;
    (void)snprintf(name, sizeof(name), "%s/worker-0", path);
    assert_int_equal(tier_folder_lock(name, &first, &err), 0);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(tier_folder_lock(name, &second, &err), -EBUSY);
    (void)snprintf(pid, sizeof(pid), "process %d", (int)getpid());
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, "in use by another worker"));
    (void)close(first);
    assert_int_equal(tier_folder_lock(name, &second, &err), 0);
    (void)close(second);
    (void)snprintf(name, sizeof(name), "%s/worker-0/lock", path);
    assert_int_equal(unlink(name), 0);
    (void)snprintf(name, sizeof(name), "%s/worker-0", path);
    assert_int_equal(rmdir(name), 0);
}

/* ---- chats that come back in any order, over restarts, with little of everything ---- */

enum { CHATS = 6 };

struct chats {
    struct sequence *live[CHATS];
    uint32_t ids[CHATS][PROMPT_MAX], count[CHATS], number, done;
    uint64_t disk_tokens;
};

static struct chats chats;

static void maybe_start_a_turn(struct world *w, uint32_t c)
{
    char name[16];
    uint32_t add = 1 + (uint32_t)random() % 50;
    if (chats.live[c] != NULL)
        return;
    if (chats.count[c] + add > 400 || random() % 12 == 0)
        chats.count[c] = 40;
    for (uint32_t i = 0; i < add; i++)
        chats.ids[c][chats.count[c]++] = (uint32_t)random() % 1000;
    (void)snprintf(name, sizeof(name), "%u", chats.number++);
    struct sequence_params params =
        fake_params(name, chats.ids[c], chats.count[c], 1 + (uint32_t)random() % 20);
    chats.live[c] = fake_add(&w->engine, &params);
}

static void take_ended(struct world *w)
{
    for (uint32_t c = 0; c < CHATS; c++) {
        struct sequence *seq = chats.live[c];
        if (seq == NULL || seq->state != SEQ_FINISHED || !seq->reported)
            continue;
        assert_exact(w, seq);
        chats.disk_tokens += seq->cached_disk_tokens;
        chats.count[c] = seq->ids_count;
        memcpy(chats.ids[c], seq->ids, seq->ids_count * sizeof(uint32_t));
        scheduler_release(w->engine.scheduler, seq);
        chats.live[c] = NULL;
        chats.done++;
    }
}

/* Any file of any rank, any byte. */
static void damage_one(void)
{
    char name[300] = "";
    unsigned char byte;
    int folder = folder_of((uint32_t)random() % RANKS);
    DIR *listing = fdopendir(folder);
    unsigned skip = (unsigned)random() % 20;
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL && skip > 0;) {
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof(name), "%s", entry->d_name);
        skip--;
    }
    int fd = name[0] != '\0' ? openat(folder, name, O_RDWR) : -1;
    off_t at = random() % (off_t)(TIER_FILE_HEADER_BYTES + BLOCK_BYTES);
    if (fd >= 0 && pread(fd, &byte, 1, at) == 1) {
        byte ^= 1;
        (void)!pwrite(fd, &byte, 1, at);
    }
    if (fd >= 0)
        (void)close(fd);
    (void)closedir(listing);
}

static void random_life(uint32_t blocks, uint32_t host_slots, uint32_t files)
{
    struct world *w = start(blocks, host_slots, files);
    memset(chats.live, 0, sizeof(chats.live));
    for (uint32_t s = 0; s < 400; s++) {
        maybe_start_a_turn(w, (uint32_t)random() % CHATS);
        step(w);
        take_ended(w);
        if (random() % 100 == 0)
            damage_one();
        if (random() % 300 == 0) {
            block_pool_reset_cache(w->engine.pool);
            (void)tier_reset(w->tier);
        }
        if (s % 64 == 0) {
            tier_check(w->tier);
            assert_true(files_of(0) <= files + 1); /* a new one is there before it has its name */
            assert_true(files_of(1) <= files + 1);
        }
        if (random() % 4 == 0)
            (void)sched_yield();
    }
    for (uint32_t c = 0; c < CHATS; c++) {
        if (chats.live[c] == NULL)
            continue;
        finish(w, chats.live[c]);
    }
    step(w);
    take_ended(w);
    if (random() % 2 == 0)
        settle(w); /* else it is killed in the middle of it */
    stop(w);
}

static void test_random_chats_over_restarts_and_damage_are_exact(void **state)
{
    (void)state;
    memset(&chats, 0, sizeof(chats));
    for (uint32_t c = 0; c < CHATS; c++) {
        chats.count[c] = 40; /* a shared system prompt */
        memcpy(chats.ids[c], prompt, 40 * sizeof(uint32_t));
    }
    for (uint32_t seed = 1; seed <= 16; seed++) {
        srandom(seed);
        random_life(36 + seed % 5 * 10, seed % 3 * 12, seed % 4 == 0 ? 20 : 150);
    }
    print_message("%u turns, %llu tokens from disk\n", chats.done,
                  (unsigned long long)chats.disk_tokens);
    assert_true(chats.done > 300);
    assert_true(chats.disk_tokens > 5000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chat_when_the_worker_was_killed_goes_on_where_it_was),
        TEST(test_prompt_when_salted_finds_nothing_of_others),
        TEST(test_host_tier_in_front_is_asked_first),
        TEST(test_file_when_damaged_is_refused_removed_and_computed_again),
        TEST(test_file_when_one_rank_lacks_it_counts_for_none),
        TEST(test_request_when_the_disk_hangs_lets_others_pass_and_computes),
        TEST(test_cancelled_request_when_its_blocks_come_gives_the_buffers_back),
        TEST(test_chat_when_longer_than_the_tier_keeps_its_beginning),
        TEST(test_disk_when_full_is_tried_again_seldom),
        TEST(test_disk_when_it_fails_is_tried_again_seldom),
        TEST(test_disk_when_full_is_still_read),
        TEST(test_folder_when_it_vanishes_is_no_tier),
        TEST(test_reset_when_called_leaves_no_file),
        TEST(test_scan_when_there_are_foreign_files_removes_ours_and_leaves_theirs),
        TEST(test_lock_when_held_names_the_holder),
        TEST(test_random_chats_over_restarts_and_damage_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
