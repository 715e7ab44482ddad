/* harness.c - starting a cluster, stopping it, and looking for what is left.
 *
 * Left over is: a process with our mark in its environment or our folder in its command line, the
 * run dir, a new name in /dev/shm. The death signal of process_spawn ends the cluster with the
 * test, so that a test that hits ctest's limit leaves nothing either. */
#include "tests/e2e/harness.h"

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "tests/model_path.h"

#define READY_DEADLINE_MS 60000u
#define STOP_DEADLINE_MS 45000u
#define LEFT_DEADLINE_MS 3000u
#define LOGS_MAX 64
#define LOG_TAIL_BYTES 12000

static char *logs[LOGS_MAX];
static size_t logs_count;

void e2e_begin(void)
{
    http_init();
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
}

int e2e_finish(int failed)
{
    for (size_t i = 0; i < logs_count; i++) {
        size_t bytes = 0;
        char *text = failed ? file_read(logs[i], &bytes) : NULL;
        if (text)
            (void)fprintf(stderr, "---- log of cluster %zu, its end ----\n%s\n", i,
                          bytes > LOG_TAIL_BYTES ? text + bytes - LOG_TAIL_BYTES : text);
        mem_free(text);
        (void)unlink(logs[i]);
        *strrchr(logs[i], '/') = '\0';
        folder_remove(logs[i]);
        mem_free(logs[i]);
    }
    logs_count = 0;
    return failed;
}

void e2e_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stdout, "skipped: ");
    (void)vfprintf(stdout, format, args);
    (void)fprintf(stdout, "\n");
    va_end(args);
    (void)fflush(stdout);
    exit(E2E_SKIPPED);
}

const char *e2e_smollm2(void)
{
    const char *path = model_path(SMOLLM2_FILE);
    if (access(path, R_OK) < 0)
        e2e_skip("%s is absent (deploy/quickstart.sh and tests/run.sh fetch it)", path);
    return path;
}

const char *e2e_gemma3(void)
{
    const char *path = model_path(GEMMA3_FILE);
    if (access(path, R_OK) < 0)
        e2e_skip("%s is absent (tests/run.sh fetches it)", path);
    return path;
}

const char *e2e_tiny(const char *name)
{
    static char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), SHARED_DIR "/golden/tiny/%s/model.gguf", name);
    if (access(path, R_OK) < 0)
        e2e_skip("%s is absent", path);
    return path;
}

json_t *e2e_json(const char *path)
{
    char whole[PATH_MAX];
    (void)snprintf(whole, sizeof(whole), SHARED_DIR "/%s", path);
    return json_load_file(whole, 0, NULL);
}

/* ---- starting ---- */

static void make_folder(struct cluster *cluster)
{
    assert_true(logs_count < LOGS_MAX);
    (void)snprintf(cluster->folder, sizeof(cluster->folder), "/tmp/refrain-e2e-XXXXXX");
    assert_non_null(mkdtemp(cluster->folder));
    (void)snprintf(cluster->run_dir, sizeof(cluster->run_dir), "%s/run", cluster->folder);
    (void)snprintf(cluster->log_path, sizeof(cluster->log_path), "%s/log", cluster->folder);
    (void)snprintf(cluster->mark, sizeof(cluster->mark), "REFRAIN_E2E_MARK=%s", cluster->folder);
    logs[logs_count++] = mem_strdup(cluster->log_path);
}

static void take_names(struct cluster *cluster, const char *model, const char *const *flags)
{
    for (; flags && flags[0] && flags[1]; flags++) {
        if (strcmp(flags[0], "--api-key") == 0)
            (void)snprintf(cluster->bearer, sizeof(cluster->bearer), "Authorization: Bearer %.*s",
                           (int)strcspn(flags[1], ","), flags[1]);
    }
    const char *name = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
    size_t bytes = strlen(name), suffix = strlen(".gguf");
    if (bytes > suffix && strcmp(name + bytes - suffix, ".gguf") == 0)
        bytes -= suffix;
    (void)snprintf(cluster->model_name, sizeof(cluster->model_name), "%.*s", (int)bytes, name);
    cluster->model = cluster->model_name;
}

/* The one line that refrain up prints on stdout. */
static void await_ready_line(struct cluster *cluster)
{
    uint64_t began = clock_ms();
    char line[128] = "";
    size_t got = 0;

    while (!strchr(line, '\n')) {
        struct pollfd poll_fd = {cluster->stdout_fd, POLLIN, 0};
        if (poll(&poll_fd, 1, 100) > 0) {
            ssize_t n = read(cluster->stdout_fd, line + got, sizeof(line) - 1 - got);
            if (n <= 0)
                fail_msg("refrain up ended before it was ready");
            got += (size_t)n;
        }
        if (clock_ms() - began > READY_DEADLINE_MS)
            fail_msg("refrain up is not ready after %u ms", READY_DEADLINE_MS);
    }
    cluster->ready_s = (double)(clock_ms() - began) / 1000;
    assert_int_equal(strncmp(line, "ready http://127.0.0.1:", 23), 0);
    cluster->port = (uint16_t)strtoul(line + 23, NULL, 10);
    assert_true(cluster->port > 0);
    (void)snprintf(cluster->url, sizeof(cluster->url), "http://127.0.0.1:%u", cluster->port);
}

struct fds_watch {
    pid_t pid;
    int fds, same;
};

static bool is_steady(void *user)
{
    struct fds_watch *watch = user;
    int fds = proc_fds(watch->pid);
    watch->same = fds == watch->fds ? watch->same + 1 : 0;
    watch->fds = fds;
    return watch->same >= 40; /* 200 ms without a change */
}

static int steady_fds(pid_t pid)
{
    struct fds_watch watch = {.pid = pid};
    assert_true(poll_until(is_steady, &watch, 10000));
    return watch.fds;
}

static void spawn(struct cluster *cluster, const char *model, const char *const *flags,
                  const char *run_dir)
{
    char *program = mem_printf("%s/refrain", cluster->programs ? cluster->programs : BUILD_DIR);
    const char *argv[64] = {program, "up", "--model", model, "--port", "0"};
    size_t count = 6;
    struct errmsg err = {""};
    int fds[2];

    if (run_dir) {
        argv[count++] = "--run-dir";
        argv[count++] = run_dir;
    }
    for (; flags && *flags; flags++)
        argv[count++] = *flags;
    assert_true(count < sizeof(argv) / sizeof(argv[0]));
    int log_fd = open(cluster->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(log_fd >= 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    (void)setenv("REFRAIN_E2E_MARK", cluster->folder, 1);
    cluster->pid =
        process_spawn((char *const *)(uintptr_t)argv, NULL, 0, fds[1], log_fd, SIGTERM, &err);
    (void)unsetenv("REFRAIN_E2E_MARK");
    mem_free(program);
    (void)close(fds[1]);
    (void)close(log_fd);
    cluster->stdout_fd = fds[0];
    if (cluster->pid < 0)
        fail_msg("start refrain: %s", err.text);
}

static void prepare(struct cluster *cluster, const char *model, const char *const *flags)
{
    *cluster = (struct cluster){.stdout_fd = -1};
    make_folder(cluster);
    take_names(cluster, model, flags);
    cluster->shm_before = folder_listing("/dev/shm");
}

static void finish_start(struct cluster *cluster)
{
    await_ready_line(cluster);
    cluster->router_fds_idle = steady_fds(cluster_router_pid(cluster));
}

void cluster_launch(struct cluster *cluster, const char *model, const char *const *flags)
{
    prepare(cluster, model, flags);
    spawn(cluster, model, flags, cluster->run_dir);
}

void cluster_start(struct cluster *cluster, const char *model, const char *const *flags)
{
    cluster_launch(cluster, model, flags);
    finish_start(cluster);
}

void cluster_start_from(struct cluster *cluster, const char *programs, const char *model,
                        const char *const *flags)
{
    prepare(cluster, model, flags);
    cluster->programs = programs;
    spawn(cluster, model, flags, cluster->run_dir);
    finish_start(cluster);
}

void cluster_start_in(struct cluster *cluster, const char *model, const char *const *flags,
                      const char *runtime_dir)
{
    prepare(cluster, model, flags);
    (void)setenv("XDG_RUNTIME_DIR", runtime_dir, 1);
    spawn(cluster, model, flags, NULL);
    (void)unsetenv("XDG_RUNTIME_DIR");
    (void)snprintf(cluster->run_dir, sizeof(cluster->run_dir), "%s/refrain/up-%d", runtime_dir,
                   (int)cluster->pid);
    finish_start(cluster);
}

/* ---- ending ---- */

static size_t members(const struct cluster *cluster, pid_t *ret_pids, size_t pids_max)
{
    size_t count = proc_with_text(cluster->mark, ret_pids, pids_max);
    return count > 0 ? count : proc_with_text(cluster->run_dir, ret_pids, pids_max);
}

static void assert_shm_unchanged(const struct cluster *cluster)
{
    char *now = folder_listing("/dev/shm");
    for (char *at = now; *at;) {
        size_t bytes = strcspn(at, "\n") + 1;
        char *name = mem_strndup(at, bytes);
        if (!strstr(cluster->shm_before, name))
            fail_msg("left in /dev/shm: %s", name);
        mem_free(name);
        at += bytes;
    }
    mem_free(now);
}

static bool nothing_runs(void *user)
{
    pid_t pids[1];
    return members(user, pids, 1) == 0;
}

void cluster_assert_gone(struct cluster *cluster, uint32_t deadline_ms)
{
    if (!poll_until(nothing_runs, cluster, deadline_ms)) {
        pid_t pids[32];
        size_t count = members(cluster, pids, 32);
        for (size_t i = 0; i < count && i < 32; i++) {
            char line[256];
            proc_command_line(pids[i], line, sizeof(line));
            print_error("left: pid %d: %s\n", (int)pids[i], line);
        }
        fail_msg("%zu processes are left after %u ms", count, deadline_ms);
    }
    assert_shm_unchanged(cluster);
}

struct exit_watch {
    pid_t pid;
    int status;
};

static bool has_exited(void *user)
{
    struct exit_watch *watch = user;
    return waitpid(watch->pid, &watch->status, WNOHANG) == watch->pid;
}

static void release(struct cluster *cluster)
{
    if (cluster->stdout_fd >= 0)
        (void)close(cluster->stdout_fd);
    cluster->stdout_fd = -1;
    mem_free(cluster->shm_before);
    cluster->shm_before = NULL;
    cluster->pid = 0;
    cluster->stopped = true;
}

/* What a process says when it broke, and its exit code would go unseen. */
static void assert_log_is_clean(const struct cluster *cluster)
{
    static const char *const words[] = {"Sanitizer", "runtime error:", "ASSERT("};
    char *text = file_read(cluster->log_path, NULL);

    for (size_t i = 0; text && i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(text, words[i]))
            fail_msg("the log holds '%s'", words[i]);
    }
    mem_free(text);
}

void cluster_end(struct cluster *cluster, int signal_number)
{
    struct exit_watch watch = {.pid = cluster->pid};

    if (signal_number)
        assert_int_equal(kill(cluster->pid, signal_number), 0);
    if (!poll_until(has_exited, &watch, STOP_DEADLINE_MS))
        fail_msg("refrain up does not end within %u ms", STOP_DEADLINE_MS);
    cluster->pid = 0;
    assert_true(WIFEXITED(watch.status));
    assert_int_equal(WEXITSTATUS(watch.status), 0);
    cluster_assert_gone(cluster, LEFT_DEADLINE_MS);
    if (file_exists(cluster->run_dir)) {
        char *names = folder_listing(cluster->run_dir);
        fail_msg("the run dir is left, with: %s", names);
    }
    assert_log_is_clean(cluster);
    release(cluster);
}

void cluster_stop(struct cluster *cluster)
{
    cluster_assert_idle(cluster);
    cluster_end(cluster, SIGTERM);
}

void cluster_abort(struct cluster *cluster)
{
    pid_t pids[64];

    if (!cluster->folder[0] || cluster->stopped)
        return;
    size_t count = members(cluster, pids, 64);
    for (size_t i = 0; i < count && i < 64; i++)
        (void)kill(pids[i], SIGKILL);
    if (cluster->pid > 0) {
        (void)kill(cluster->pid, SIGKILL);
        (void)waitpid(cluster->pid, NULL, 0);
    }
    (void)poll_until(nothing_runs, cluster, LEFT_DEADLINE_MS);
    folder_remove(cluster->run_dir);
    release(cluster);
}
