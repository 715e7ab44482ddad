/* process.c: real children through /bin/sh, and folders in /tmp. */
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/process.h"

static char folder[64]; /* a fresh one for each test */

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/refrain-process-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        return -1;
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : -1; /* no child is left */
}

/* Run a shell script; its output is in text, its wait status the answer. */
static int run_script(const char *script, const int *keep_fds, size_t keep_count, char *text,
                      size_t text_max)
{
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)script, NULL};
    struct errmsg err = {""};
    size_t bytes = 0;
    ssize_t got;
    int fds[2];
    int status = -1;
    pid_t pid;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = process_spawn(argv, keep_fds, keep_count, fds[1], fds[1], SIGKILL, &err);
    assert_true(pid > 0);
    (void)close(fds[1]);
    while (bytes < text_max - 1 && (got = read(fds[0], text + bytes, text_max - 1 - bytes)) > 0)
        bytes += (size_t)got;
    text[bytes] = '\0';
    (void)close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_spawn_when_the_program_runs_passes_output_and_status(void **state)
{
    char text[256];
    int status = run_script("echo out; echo err >&2; read line || echo eof; exit 7", NULL, 0, text,
                            sizeof(text));

    (void)state;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_string_equal(text, "out\nerr\neof\n"); /* stdin is /dev/null */
}

static void test_spawn_when_fds_are_open_passes_only_the_kept_ones(void **state)
{
    int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 20); /* CLOEXEC, and kept all the same */
    int other = fcntl(STDERR_FILENO, F_DUPFD, 21);
    int last = fcntl(STDERR_FILENO, F_DUPFD, 30);
    const int keep[] = {last, kept, kept};
    char expected[64];
    char text[512];

    (void)state;
    assert_true(kept >= 0 && other >= 0 && last >= 0);
    /* The glob's own directory is an fd too: take names above 2 that still exist. */
    (void)run_script("for f in /proc/self/fd/*; do n=${f##*/}; "
                     "[ $n -gt 2 ] && [ -e /proc/$$/fd/$n ] && echo $n; done; true",
                     keep, 3, text, sizeof(text));
    (void)snprintf(expected, sizeof(expected), "%d\n%d\n", kept, last);
    assert_string_equal(text, expected);
    assert_true(fcntl(other, F_GETFD) >= 0); /* ours stay */
    (void)close(kept);
    (void)close(other);
    (void)close(last);
}

static void test_spawn_when_signals_are_blocked_and_ignored_starts_clean(void **state)
{
    char text[512];
    sigset_t mask;
    sigset_t before;

    (void)state;
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGUSR1);
    assert_int_equal(sigprocmask(SIG_BLOCK, &mask, &before), 0);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)run_script("grep -E '^Sig(Blk|Ign)' /proc/self/status", NULL, 0, text, sizeof(text));
    (void)signal(SIGPIPE, SIG_DFL);
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &mask), 0);
    assert_true(sigismember(&mask, SIGUSR1)); /* our own mask is back */
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_string_equal(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

static void test_spawn_when_the_program_is_missing_tells_the_caller(void **state)
{
    char *argv[] = {(char *)"/nonexistent/worker", NULL};
    struct errmsg err = {""};

    (void)state;
    assert_int_equal(process_spawn(argv, NULL, 0, -1, -1, SIGKILL, &err), -ENOENT);
    assert_string_equal(err.text, "run '/nonexistent/worker': No such file or directory");
    argv[0] = folder;
    assert_int_equal(process_spawn(argv, NULL, 0, -1, -1, SIGKILL, NULL), -EACCES);
}

static void test_spawn_when_stdout_and_stderr_are_swapped_crosses_them(void **state)
{
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)"echo o; echo e >&2", NULL};
    char text[16] = "";
    int before_out = dup(STDOUT_FILENO);
    int before_err = dup(STDERR_FILENO);
    int a[2];
    int b[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(a, O_CLOEXEC), 0);
    assert_int_equal(pipe2(b, O_CLOEXEC), 0);
    (void)fflush(stdout);
    (void)dup2(a[1], STDOUT_FILENO);
    (void)dup2(b[1], STDERR_FILENO);
    pid = process_spawn(argv, NULL, 0, STDERR_FILENO, STDOUT_FILENO, SIGKILL, NULL);
    (void)dup2(before_out, STDOUT_FILENO);
    (void)dup2(before_err, STDERR_FILENO);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(read(b[0], text, sizeof(text)), 2);
    assert_memory_equal(text, "o\n", 2);
    assert_int_equal(read(a[0], text, sizeof(text)), 2);
    assert_memory_equal(text, "e\n", 2);
    for (int i = 0; i < 2; i++) {
        (void)close(a[i]);
        (void)close(b[i]);
    }
    (void)close(before_out);
    (void)close(before_err);
}

/* A middle process spawns a sleeper and dies: the sleeper must be gone, seen by a pipe it held. */
static void test_spawn_when_the_parent_dies_takes_the_child_along(void **state)
{
    char *argv[] = {(char *)"/bin/sleep", (char *)"1000", NULL};
    int alive[2];
    char byte;
    pid_t middle;

    (void)state;
    assert_int_equal(pipe(alive), 0);
    middle = fork();
    assert_true(middle >= 0);
    if (middle == 0) {
        (void)close(alive[0]);
        _exit(process_spawn(argv, &alive[1], 1, -1, -1, 0, NULL) > 0 ? 0 : 1);
    }
    (void)close(alive[1]);
    assert_int_equal(read(alive[0], &byte, 1), 0); /* ends when the last holder is dead */
    (void)close(alive[0]);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
}

static void test_pidfd_when_the_child_dies_becomes_readable(void **state)
{
    char *argv[] = {(char *)"/bin/sleep", (char *)"1000", NULL};
    pid_t pid = process_spawn(argv, NULL, 0, -1, -1, SIGKILL, NULL);
    int fd = process_pidfd(pid);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    (void)state;
    assert_true(pid > 0 && fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(poll(&poll_fd, 1, 10000), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(fd);
    assert_int_equal(process_pidfd(pid), -ESRCH);
}

static void test_sibling_when_it_lies_beside_us_gives_its_path(void **state)
{
    char self[PATH_MAX];
    char path[PATH_MAX];
    struct errmsg err = {""};
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);

    (void)state;
    assert_true(bytes > 0);
    self[bytes] = '\0';
    assert_int_equal(process_sibling(strrchr(self, '/') + 1, path, sizeof(path), &err), 0);
    assert_string_equal(path, self);
    assert_int_equal(process_sibling("no-such-program", path, sizeof(path), &err), -ENOENT);
    assert_memory_equal(err.text, "no program 'no-such-program' in /", 33);
    assert_string_equal(path, self); /* untouched */
    assert_int_equal(process_sibling(strrchr(self, '/') + 1, path, 5, &err), -ENOENT);
}

static void test_default_run_dir_when_the_session_has_one_lies_in_it(void **state)
{
    char path[PATH_MAX];
    char expected[64];

    (void)state;
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    assert_int_equal(process_default_run_dir(path, sizeof(path)), 0);
    assert_string_equal(path, "/run/user/7/refrain");
    assert_int_equal(process_default_run_dir(path, 10), -ENAMETOOLONG);
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(process_default_run_dir(path, sizeof(path)), 0);
    (void)snprintf(expected, sizeof(expected), "/tmp/refrain-%u", (unsigned)geteuid());
    assert_true(strcmp(path, expected) == 0 ||
                (geteuid() == 0 && strcmp(path, "/run/refrain") == 0));
}

static unsigned mode_of(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

static void test_make_private_dir_when_missing_makes_all_levels(void **state)
{
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/a/b/c/", folder);
    assert_int_equal(process_make_private_dir(path, NULL), 0);
    assert_int_equal(mode_of(path), 0700);
    assert_int_equal(process_make_private_dir(path, NULL), 0); /* again: as it is */
}

static void test_make_private_dir_when_ours_is_open_closes_it(void **state)
{
    (void)state;
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(process_make_private_dir(folder, NULL), 0);
    assert_int_equal(mode_of(folder), 0700);
}

static void test_make_private_dir_when_it_is_a_link_or_a_file_refuses(void **state)
{
    struct errmsg err = {""};
    char path[128];
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/link/", folder);
    path[strlen(path) - 1] = '\0';
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(process_make_private_dir(path, &err), -EPERM);
    strcat(path, "/"); /* the slash must not make it follow */
    assert_int_equal(process_make_private_dir(path, &err), -EPERM);
    (void)snprintf(path, sizeof(path), "%s/file", folder);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(process_make_private_dir(path, &err), -EPERM);
    strcat(path, "/below");
    assert_int_equal(process_make_private_dir(path, &err), -ENOTDIR);
    assert_int_equal(process_make_private_dir("", &err), -EINVAL);
}

static void test_make_private_dir_when_it_is_someone_elses_refuses(void **state)
{
    struct errmsg err = {""};

    (void)state;
    if (geteuid() != 0) {
        assert_int_equal(process_make_private_dir("/tmp", &err), -EPERM);
    } else {
        assert_int_equal(chown(folder, 12345, 12345), 0);
        assert_int_equal(process_make_private_dir(folder, &err), -EPERM);
        assert_int_equal(chown(folder, 0, 0), 0);
    }
    assert_non_null(strstr(err.text, "belongs to user"));
}

static void test_memory_when_asked_is_at_most_the_machines(void **state)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes_max = 0, available = 0;

    (void)state;
    process_memory(&bytes_max, &available);
    assert_in_range(bytes_max, 1u << 20, machine);
    assert_in_range(available, 1, bytes_max);
}

static void test_cpus_when_asked_is_between_one_and_the_affinity(void **state)
{
    unsigned cpus = process_cpus();
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    (void)state;
    assert_in_range(cpus, 1, online);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_spawn_when_the_program_runs_passes_output_and_status),
        TEST(test_spawn_when_fds_are_open_passes_only_the_kept_ones),
        TEST(test_spawn_when_signals_are_blocked_and_ignored_starts_clean),
        TEST(test_spawn_when_the_program_is_missing_tells_the_caller),
        TEST(test_spawn_when_stdout_and_stderr_are_swapped_crosses_them),
        TEST(test_spawn_when_the_parent_dies_takes_the_child_along),
        TEST(test_pidfd_when_the_child_dies_becomes_readable),
        TEST(test_sibling_when_it_lies_beside_us_gives_its_path),
        TEST(test_default_run_dir_when_the_session_has_one_lies_in_it),
        TEST(test_make_private_dir_when_missing_makes_all_levels),
        TEST(test_make_private_dir_when_ours_is_open_closes_it),
        TEST(test_make_private_dir_when_it_is_a_link_or_a_file_refuses),
        TEST(test_make_private_dir_when_it_is_someone_elses_refuses),
        TEST(test_memory_when_asked_is_at_most_the_machines),
        TEST(test_cpus_when_asked_is_between_one_and_the_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
