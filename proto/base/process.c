/* process.c - start children that cannot outlive us, and folders that nobody else can enter.
 *
 * Between fork and exec the child of a program with threads may only make system calls: everything
 * that allocates or sorts is done before the fork, in struct launch. How the child tells that exec
 * failed: it writes errno into a CLOEXEC pipe; a successful exec closes it, and the parent reads
 * the end of file. */
#include "proto/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define EXIT_NOT_STARTED 127

struct launch {
    char *const *argv;
    int *keep; /* rising, from 3 on, the pipe among them */
    size_t keep_count;
    int stdout_fd;
    int stderr_fd;
    int death_signal;
    int pipe_fd; /* the child's end */
    pid_t parent;
};

static int compare_fds(const void *a, const void *b)
{
    int left = *(const int *)a;
    int right = *(const int *)b;

    return (left > right) - (left < right);
}

/* Everything from 3 on that is not kept. */
static int close_others(const struct launch *launch)
{
    unsigned from = 3;

    for (size_t i = 0; i < launch->keep_count; i++) {
        unsigned fd = (unsigned)launch->keep[i];

        if (fd > from && syscall(SYS_close_range, from, fd - 1, 0) < 0)
            return -errno;
        from = fd + 1;
    }
    return syscall(SYS_close_range, from, ~0u, 0) < 0 ? -errno : 0;
}

static int connect_standard(const struct launch *launch)
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* Copies first: stdout_fd may be 2 and stderr_fd 1. */
    int out = launch->stdout_fd >= 0 ? fcntl(launch->stdout_fd, F_DUPFD_CLOEXEC, 3) : -1;
    int err = launch->stderr_fd >= 0 ? fcntl(launch->stderr_fd, F_DUPFD_CLOEXEC, 3) : -1;

    if (null_fd < 0 || (launch->stdout_fd >= 0 && out < 0) || (launch->stderr_fd >= 0 && err < 0))
        return -errno;
    if (null_fd == STDIN_FILENO) {
        if (fcntl(null_fd, F_SETFD, 0) < 0) /* dup2 to itself would keep CLOEXEC */
            return -errno;
    } else if (dup2(null_fd, STDIN_FILENO) < 0) {
        return -errno;
    }
    if (out >= 0 && dup2(out, STDOUT_FILENO) < 0)
        return -errno;
    if (err >= 0 && dup2(err, STDERR_FILENO) < 0)
        return -errno;
    return 0;
}

/* In the child, all signals blocked. Returns only when it failed. */
static int launch_exec(const struct launch *launch)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;
    int r;

    if (prctl(PR_SET_PDEATHSIG, launch->death_signal) < 0)
        return -errno;
    if (getppid() != launch->parent)
        return -ESRCH; /* the parent died before the line above: its death signal never comes */
    (void)setpgid(0, 0);
    r = connect_standard(launch);
    if (r < 0)
        return r;
    for (size_t i = 0; i < launch->keep_count; i++) {
        if (launch->keep[i] != launch->pipe_fd && fcntl(launch->keep[i], F_SETFD, 0) < 0)
            return -errno;
    }
    r = close_others(launch);
    if (r < 0)
        return r;
    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, &action, NULL); /* KILL, STOP and libc's own refuse: fine */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execv(launch->argv[0], launch->argv);
    return -errno;
}

/* A pipe above the standard numbers, which the child overwrites. */
static int make_pipe(int ret_fds[2], struct errmsg *err)
{
    int fds[2];
    int r = 0;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return errmsg_errno(err, "create a pipe");
    for (int i = 0; i < 2; i++) {
        ret_fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (ret_fds[i] < 0 && r == 0)
            r = errmsg_errno(err, "create a pipe");
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    for (int i = 0; r < 0 && i < 2; i++) {
        if (ret_fds[i] >= 0)
            (void)close(ret_fds[i]);
    }
    return r;
}

/* The child's errno, or 0 when exec closed the pipe. */
static int read_outcome(int fd)
{
    int code = 0;
    ssize_t got;

    do
        got = read(fd, &code, sizeof(code));
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(code) ? code : 0;
}

/* fork with all signals blocked: a handler of ours must not run in the child. */
static pid_t fork_and_exec(const struct launch *launch)
{
    sigset_t all;
    sigset_t before;
    pid_t pid;
    int fork_errno;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0) {
        int code = launch_exec(launch);

        if (write(launch->pipe_fd, &code, sizeof(code)) < 0)
            _exit(EXIT_NOT_STARTED);
        _exit(EXIT_NOT_STARTED);
    }
    fork_errno = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = fork_errno;
    return pid;
}

pid_t process_spawn(char *const argv[], const int *keep_fds, size_t keep_count, int stdout_fd,
                    int stderr_fd, int death_signal, struct errmsg *err)
{
    struct launch launch = {.argv = argv,
                            .stdout_fd = stdout_fd,
                            .stderr_fd = stderr_fd,
                            .death_signal = death_signal > 0 ? death_signal : SIGKILL,
                            .parent = getpid()};
    int pipe_fds[2];
    pid_t pid;
    int r = make_pipe(pipe_fds, err);

    if (r < 0)
        return r;
    launch.pipe_fd = pipe_fds[1];
    launch.keep = mem_calloc(keep_count + 1, sizeof(*launch.keep));
    launch.keep[launch.keep_count++] = pipe_fds[1];
    for (size_t i = 0; i < keep_count; i++) {
        if (keep_fds[i] >= 3)
            launch.keep[launch.keep_count++] = keep_fds[i];
    }
    qsort(launch.keep, launch.keep_count, sizeof(*launch.keep), compare_fds);

    pid = fork_and_exec(&launch);
    if (pid < 0)
        r = errmsg_errno(err, "fork for '%s'", argv[0]);
    (void)close(pipe_fds[1]); /* ours: else the read below never ends */
    if (pid > 0) {
        r = read_outcome(pipe_fds[0]);
        if (r < 0) {
            (void)waitpid(pid, NULL, 0);
            errno = -r;
            r = errmsg_errno(err, "run '%s'", argv[0]);
        }
    }
    (void)close(pipe_fds[0]);
    mem_free(launch.keep);
    return r < 0 ? r : pid;
}

int process_pidfd(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* CLOEXEC by itself */

    return fd < 0 ? -errno : fd;
}

int process_sibling(const char *name, char *ret_path, size_t path_max, struct errmsg *err)
{
    char self[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;
    char path[PATH_MAX + NAME_MAX];
    int n;

    if (bytes < 0)
        return errmsg_errno(err, "read /proc/self/exe");
    self[bytes] = '\0';
    slash = strrchr(self, '/');
    ASSERT(slash != NULL); /* the kernel gives an absolute path */
    *slash = '\0';
    n = snprintf(path, sizeof(path), "%s/%s", self, name);
    if (n < 0 || (size_t)n >= sizeof(path) || (size_t)n >= path_max)
        return errmsg_set(err, -ENOENT, "path of '%.64s' is too long", name);
    if (access(path, X_OK) < 0)
        return errmsg_set(err, -ENOENT, "no program '%s' in %s", name, self);
    memcpy(ret_path, path, (size_t)n + 1);
    return 0;
}

int process_default_run_dir(char *ret_path, size_t path_max)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int n;

    if (runtime != NULL && runtime[0] == '/')
        n = snprintf(ret_path, path_max, "%s/refrain", runtime);
    else if (geteuid() == 0 && (access("/run/refrain", W_OK) == 0 || access("/run", W_OK) == 0))
        n = snprintf(ret_path, path_max, "/run/refrain");
    else
        n = snprintf(ret_path, path_max, "/tmp/refrain-%u", (unsigned)geteuid());
    return n < 0 || (size_t)n >= path_max ? -ENAMETOOLONG : 0;
}

/* Create what is missing of `path`, each level 0700. */
static int make_levels(char *path, struct errmsg *err)
{
    for (char *at = path + 1;; at++) {
        char here = *at;

        if (here != '/' && here != '\0')
            continue;
        *at = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return errmsg_errno(err, "create folder '%s'", path);
        *at = here;
        if (here == '\0')
            return 0;
    }
}

int process_make_private_dir(const char *path, struct errmsg *err)
{
    char copy[PATH_MAX];
    size_t bytes = strlen(path);
    struct stat st;
    int fd;
    int r = 0;

    if (bytes == 0 || bytes >= sizeof(copy))
        return errmsg_set(err, bytes == 0 ? -EINVAL : -ENAMETOOLONG, "a folder's path of %zu bytes",
                          bytes);
    memcpy(copy, path, bytes + 1);
    while (bytes > 1 && copy[bytes - 1] == '/')
        copy[--bytes] = '\0'; /* "link/" would follow the link */
    r = make_levels(copy, err);
    if (r < 0)
        return r;
    /* Checked on an open descriptor: in /tmp somebody may swap the name meanwhile. */
    fd = open(copy, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        r = errmsg_errno(err, "open folder '%s'", copy);
        return r == -EACCES || r == -ELOOP || r == -ENOTDIR ? -EPERM : r;
    }
    if (fstat(fd, &st) < 0)
        r = errmsg_errno(err, "look at '%s'", copy);
    else if (st.st_uid != geteuid())
        r = errmsg_set(err, -EPERM, "folder '%s' belongs to user %u, we are %u", copy,
                       (unsigned)st.st_uid, (unsigned)geteuid());
    else if ((st.st_mode & 0777) != 0700 && fchmod(fd, 0700) < 0)
        r = errmsg_set(err, -EPERM, "folder '%s' is open to others (mode %o)", copy,
                       (unsigned)st.st_mode & 0777);
    (void)close(fd);
    return r;
}

bool process_ignores_hangup(void)
{
    struct sigaction action;
    return sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}
