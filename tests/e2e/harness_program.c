/* harness_program.c - running a program to its end, with what it said. */
#include <cmocka.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "tests/e2e/harness.h"

struct exit_watch {
    pid_t pid;
    int status;
};

static bool has_exited(void *user)
{
    struct exit_watch *watch = user;
    return waitpid(watch->pid, &watch->status, WNOHANG) == watch->pid;
}

/* Files, not pipes: no program blocks because nobody reads. */
static int open_output(const struct program *program, const char *name, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/%s", program->folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static char *read_output(const struct program *program, const char *name)
{
    char path[PATH_MAX];
    (void)snprintf(path, PATH_MAX, "%s/%s", program->folder, name);
    return file_read(path, NULL);
}

void program_start(struct program *ret_program, const char *const *argv)
{
    char name[PATH_MAX], path[PATH_MAX];
    const char *copy[64] = {NULL};
    struct errmsg err = {""};

    *ret_program = (struct program){.folder = "/tmp/refrain-e2e-run-XXXXXX"};
    assert_non_null(mkdtemp(ret_program->folder));
    int out_fd = open_output(ret_program, "out", path),
        err_fd = open_output(ret_program, "err", path);
    (void)snprintf(name, sizeof(name), "%s%s", strchr(argv[0], '/') ? "" : BUILD_DIR "/", argv[0]);
    copy[0] = name;
    for (size_t i = 1; argv[i]; i++) {
        assert_true(i + 1 < sizeof(copy) / sizeof(copy[0]));
        copy[i] = argv[i];
    }
    ret_program->pid =
        process_spawn((char *const *)(uintptr_t)copy, NULL, 0, out_fd, err_fd, SIGKILL, &err);
    (void)close(out_fd);
    (void)close(err_fd);
    if (ret_program->pid < 0)
        fail_msg("start %s: %s", name, err.text);
}

void program_wait(struct program *program, uint32_t deadline_ms)
{
    struct exit_watch watch = {.pid = program->pid};

    bool ended = poll_until(has_exited, &watch, deadline_ms);
    if (!ended) {
        (void)kill(watch.pid, SIGKILL);
        (void)waitpid(watch.pid, &watch.status, 0);
    }
    program->code = !ended                    ? -1000
                    : WIFEXITED(watch.status) ? WEXITSTATUS(watch.status)
                                              : -WTERMSIG(watch.status);
    program->pid = 0;
    program->out = read_output(program, "out");
    program->err = read_output(program, "err");
    folder_remove(program->folder);
}

void program_run(struct program *ret_program, uint32_t deadline_ms, const char *const *argv)
{
    program_start(ret_program, argv);
    program_wait(ret_program, deadline_ms);
}

void program_done(struct program *program)
{
    mem_free(program->out);
    mem_free(program->err);
    *program = (struct program){0};
}
