/* test_disk_tier.c - chats outlive the process that computed them: after kill -9 the next turn
 * computes what it brings and has the bits of a run that nothing happened to. Files that were
 * damaged, a folder that is in use and a disk that is full change no answer. Prompts are token ids,
 * so that every count is worked out by hand. */
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/harness_fault.h"

#define MODEL "llama-gguf-f32" /* vocabulary 320, context 512 */
#define VOCAB 300u
#define USER_TOKENS 50
#define ANSWER_TOKENS 20
#define TURNS 3
#define CHATS 3
#define IDS_MAX (TURNS * (USER_TOKENS + ANSWER_TOKENS))
#define TIER_SIZE "64MiB"
#define SETTLED_DEADLINE_MS 10000u

struct run {
    uint32_t ids[CHATS][IDS_MAX];
    size_t count[CHATS];
    char *answers[CHATS][TURNS];
    uint64_t computed, disk; /* tokens of the last turn that was sent, all chats */
};

static struct cluster cluster;
static char folder[64], tier[96];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/refrain-disk-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(tier, sizeof(tier), "%s/tier", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    folder_remove(folder);
    return 0;
}

/* size: of the tier; NULL: there is none. */
static void start(const char *ranks, const char *size)
{
    char path[96], conf[512];
    (void)snprintf(path, sizeof(path), "%s/cluster.conf", folder);
    int length = snprintf(conf, sizeof(conf), "[router]\nexplain = true\n[worker]\n");
    if (size != NULL)
        (void)snprintf(conf + length, sizeof(conf) - (size_t)length,
                       "disk-tier-path = %s\ndisk-tier-size = %s\n", tier, size);
    file_write(path, conf);
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--config", path, "--groups", "1", "--tp", ranks,
                                        "--kv-cache-memory", "64MiB", "--max-model-len", "512",
                                        NULL});
}

static uint64_t disk_number(const char *name)
{
    json_t *tiers = cluster_admin(&cluster, 0, "show tiers");
    uint64_t value = json_count(tiers, "disk", name);
    json_decref(tiers);
    return value;
}

static void assert_disk_state(const char *state)
{
    json_t *tiers = cluster_admin(&cluster, 0, "show tiers");
    const json_t *disk = json_object_get(tiers, "disk");
    assert_string_equal(json_string_value(json_object_get(disk, "state")), state);
    json_decref(tiers);
}

static bool is_settled(void *user)
{
    (void)user;
    return disk_number("pending") == 0;
}

static void settle(void)
{
    if (!poll_until(is_settled, NULL, SETTLED_DEADLINE_MS))
        fail_msg("blocks still wait for their files");
}

struct metric_watch {
    const char *name, *label;
    double least;
};

static bool has_metric(void *user)
{
    const struct metric_watch *watch = user;
    return cluster_metric(&cluster, watch->name, watch->label, NULL) >= watch->least;
}

/* Heartbeats carry them to the page. */
static void await_metric(const char *name, const char *label, double least)
{
    struct metric_watch watch = {name, label, least};
    if (!poll_until(has_metric, &watch, SETTLED_DEADLINE_MS))
        fail_msg("%s %s is below %g", name, label, least);
}

/* One turn of one chat: 50 tokens of the user, 20 of the model. */
static void send_turn(struct run *run, size_t c, size_t turn)
{
    struct http_answer answer;
    json_t *ids = json_array();
    for (uint32_t i = 0; i < USER_TOKENS; i++)
        run->ids[c][run->count[c]++] = 3 + (uint32_t)(c * 97 + turn * 31 + i * 17) % VOCAB;
    for (size_t i = 0; i < run->count[c]; i++)
        json_array_append_new(ids, json_integer(run->ids[c][i]));
    http_post_json(cluster.url, "/v1/completions",
                   json_pack("{s:s, s:o, s:i, s:i, s:b, s:b, s:i}", "model", cluster.model,
                             "prompt", ids, "max_tokens", ANSWER_TOKENS, "temperature", 0,
                             "ignore_eos", 1, "return_token_ids", 1, "logprobs", 1),
                   &answer);
    if (answer.status != 200)
        fail_msg("status %d: %s", answer.status, answer.body);
    const json_t *usage = json_object_get(answer.json, "usage");
    const json_t *choice = json_array_get(json_object_get(answer.json, "choices"), 0);
    const json_t *tiers =
        json_object_get(json_object_get(answer.json, "refrain"), "cached_by_tier");
    const json_t *generated = json_object_get(choice, "token_ids");
    assert_int_equal(json_count(usage, NULL, "prompt_tokens"), run->count[c]);
    assert_int_equal(json_array_size(generated), ANSWER_TOKENS);
    run->computed += run->count[c] - json_count(usage, "prompt_tokens_details", "cached_tokens");
    run->disk += json_count(tiers, NULL, "disk");
    for (size_t i = 0; i < ANSWER_TOKENS; i++)
        run->ids[c][run->count[c]++] = (uint32_t)json_integer_value(json_array_get(generated, i));
    char *text = json_dumps(choice, JSON_SORT_KEYS);
    run->answers[c][turn] = mem_strdup(text);
    free(text); /* jansson's */
    http_answer_done(&answer);
}

static void send_turns(struct run *run, size_t turn)
{
    run->computed = run->disk = 0;
    for (size_t c = 0; c < CHATS; c++)
        send_turn(run, c, turn);
    cluster_assert_pool(&cluster, 0);
}

/* All turns on a cluster that nothing happens to. */
static void run_untouched(struct run *run, const char *ranks)
{
    memset(run, 0, sizeof(*run));
    start(ranks, NULL);
    for (size_t turn = 0; turn < TURNS; turn++)
        send_turns(run, turn);
    cluster_stop(&cluster);
}

static void assert_same(const struct run *a, const struct run *b)
{
    for (size_t c = 0; c < CHATS; c++)
        for (size_t turn = 0; turn < TURNS; turn++)
            assert_string_equal(a->answers[c][turn], b->answers[c][turn]);
}

static void done(struct run *run)
{
    for (size_t c = 0; c < CHATS; c++)
        for (size_t turn = 0; turn < TURNS; turn++)
            mem_free(run->answers[c][turn]);
}

static void kill_and_await(void)
{
    struct worker_view worker;
    assert_true(cluster_worker(&cluster, 0, &worker));
    (void)fault_kill_rank(&worker, 0);
    (void)fault_await_restart(&cluster, &worker);
}

/* fn(path) for each block file of a rank; how many. */
static unsigned each_file(unsigned rank, void (*fn)(const char *path))
{
    char path[160], name[480];
    unsigned count = 0;
    (void)snprintf(path, sizeof(path), "%s/worker-0/rank-%u", tier, rank);
    DIR *listing = opendir(path);
    if (listing == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        count++;
        if (fn != NULL)
            fn(name);
    }
    (void)closedir(listing);
    return count;
}

static void assert_private(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* Turn 2 computes the two turns' own tokens: 50 each, and the one that was only sampled. */
static void chats_outlive_a_killed_worker(const char *ranks)
{
    struct run untouched, killed = {0};
    char path[160];
    struct stat st;
    run_untouched(&untouched, ranks);
    start(ranks, TIER_SIZE);
    send_turns(&killed, 0);
    settle();
    kill_and_await();
    send_turns(&killed, 1);
    assert_int_equal(killed.computed, CHATS * (USER_TOKENS + 1));
    assert_int_equal(killed.disk, CHATS * (USER_TOKENS + ANSWER_TOKENS - 1));
    settle();
    kill_and_await();
    send_turns(&killed, 2);
    assert_int_equal(killed.computed, CHATS * (USER_TOKENS + 1));
    assert_int_equal(killed.disk, CHATS * (2 * (USER_TOKENS + ANSWER_TOKENS) - 1));
    assert_int_equal(disk_number("cached_tokens"), killed.disk);
    assert_int_equal(disk_number("errors"), 0);
    settle(); /* or a file gets its name while we list them */
    for (unsigned rank = 0; rank < (unsigned)(ranks[0] - '0'); rank++)
        assert_true(each_file(rank, assert_private) > 0);
    (void)snprintf(path, sizeof(path), "%s/worker-0/rank-0", tier);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    cluster_stop(&cluster);
    assert_same(&untouched, &killed);
    done(&untouched);
    done(&killed);
}

static void test_chats_when_the_worker_is_killed_go_on_where_they_were(void **state)
{
    (void)state;
    chats_outlive_a_killed_worker("1");
}

static void test_chats_when_a_group_of_two_is_killed_go_on_where_they_were(void **state)
{
    (void)state;
    chats_outlive_a_killed_worker("2");
}

static void damage(const char *path)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 512 + 1000, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, 512 + 1000, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void test_files_when_damaged_are_refused_and_change_no_answer(void **state)
{
    struct run untouched, damaged = {0};
    (void)state;
    run_untouched(&untouched, "1");
    start("1", TIER_SIZE);
    send_turns(&damaged, 0);
    send_turns(&damaged, 1);
    settle();
    assert_true(each_file(0, damage) > 20);
    kill_and_await();
    send_turns(&damaged, 2);
    assert_int_equal(damaged.disk, 0);
    assert_true(disk_number("refused") >= CHATS);
    await_metric("refrain_disk_tier_errors_total", "refused", CHATS);
    assert_disk_state("up");
    cluster_stop(&cluster);
    assert_same(&untouched, &damaged);
    done(&untouched);
    done(&damaged);
}

static bool has_no_files(void *user)
{
    (void)user;
    return each_file(0, NULL) == 0;
}

static void test_reset_when_posted_empties_the_folder(void **state)
{
    struct run run = {0};
    struct http_answer answer;
    (void)state;
    start("1", TIER_SIZE);
    send_turns(&run, 0);
    settle();
    assert_true(each_file(0, NULL) > 10);
    http_post_json(cluster.url, "/reset_prefix_cache", json_object(), &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    assert_true(poll_until(has_no_files, NULL, SETTLED_DEADLINE_MS));
    assert_int_equal(disk_number("blocks"), 0);
    cluster_stop(&cluster);
    done(&run);
}

static void test_folder_when_another_worker_has_it_is_refused_at_start(void **state)
{
    struct program second;
    (void)state;
    start("1", TIER_SIZE);
    program_run(&second, 20000,
                (const char *const[]){"refrain-worker", "--model", e2e_tiny(MODEL), "--run-dir",
                                      folder, "--disk-tier-path", tier, "--disk-tier-size", "1MiB",
                                      NULL});
    assert_true(second.code > 0);
    if (strstr(second.err, "is in use by another worker (process ") == NULL)
        fail_msg("'%s'", second.err);
    program_done(&second);
    cluster_stop(&cluster);
}

/* No file may be as large as a block's (4096 + 512 bytes): as on a disk without space; and the tier
 * is to be larger than any disk here. */
static void test_disk_when_full_is_no_tier_and_says_so_once(void **state)
{
    struct run untouched, full = {0};
    struct rlimit before, small;
    size_t bytes = 0;
    (void)state;
    run_untouched(&untouched, "1");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4500;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    start("1", "64TiB");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t turn = 0; turn < TURNS; turn++)
        send_turns(&full, turn);
    assert_disk_state("full");
    assert_int_equal(disk_number("stores"), 0);
    assert_true(disk_number("drops") > 0);
    await_metric("refrain_disk_tier_state", "", 2);
    await_metric("refrain_disk_tier_errors_total", "full", 1);
    assert_int_equal(each_file(0, NULL), 0);
    char *log = file_read(cluster.log_path, &bytes);
    const char *line = strstr(log, "event=disk_tier state=full");
    assert_non_null(line);
    assert_null(strstr(line + 1, "event=disk_tier state="));
    line = strstr(log, "event=disk_tier_file rank=0 write=rank-0/");
    assert_non_null(line);
    assert_non_null(strstr(line, ".kv errno=27 error=\"File too large\""));
    assert_null(strstr(line + 1, "event=disk_tier_file"));
    line = strstr(log, "event=disk_tier_size path=");
    assert_non_null(line);
    assert_non_null(strstr(line, " size_bytes=70368744177664 used_bytes=0 free_bytes="));
    mem_free(log);
    cluster_stop(&cluster);
    assert_same(&untouched, &full);
    done(&untouched);
    done(&full);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chats_when_the_worker_is_killed_go_on_where_they_were),
        TEST(test_chats_when_a_group_of_two_is_killed_go_on_where_they_were),
        TEST(test_files_when_damaged_are_refused_and_change_no_answer),
        TEST(test_reset_when_posted_empties_the_folder),
        TEST(test_folder_when_another_worker_has_it_is_refused_at_start),
        TEST(test_disk_when_full_is_no_tier_and_says_so_once),
    };
    e2e_begin();
    return e2e_finish(cmocka_run_group_tests(tests, NULL, NULL));
}
