/* ranks.c - fork+exec of /proc/self/exe, a pidfd for each rank.
 *
 *   RUNNING --the process ends--> ENDED (pidfd readable) --ranks_reap--> REAPED
 *
 * Why exec and not fork alone: rank 0 has threads by then, and a rank wants its own clean memory.
 * Why the arguments come first: they are no settings, a user must not find them in --help.
 * Invariant: a pid is signalled only before it was reaped, so it can be no one else's. */
#include "worker/tp/ranks.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/number.h"
#include "proto/base/process.h"
#include "worker/tp/shard.h"

#define RANK_PROGRAM "/proc/self/exe"
#define RANK_ARGUMENTS 8 /* --rank R --group-fd FD --kv-blocks N --window-blocks N */
#define FLAGS_MAX 128

struct rank_process {
    pid_t pid; /* 0: not started or reaped */
    int fd;    /* pidfd, -1 */
};

struct ranks {
    uint32_t count; /* with rank 0 */
    struct rank_process processes[TP_RANKS_MAX];
};

static int start_one(const struct ranks_settings *settings, uint32_t rank,
                     struct rank_process *ret_process, struct errmsg *err)
{
    char texts[4][16];
    char *argv[1 + RANK_ARGUMENTS + FLAGS_MAX + 1] = {(char *)RANK_PROGRAM,
                                                      (char *)"--rank",
                                                      texts[0],
                                                      (char *)"--group-fd",
                                                      texts[1],
                                                      (char *)"--kv-blocks",
                                                      texts[2],
                                                      (char *)"--window-blocks",
                                                      texts[3]};
    size_t count = 1 + RANK_ARGUMENTS;
    pid_t pid;
    int fd;

    (void)snprintf(texts[0], sizeof(texts[0]), "%u", rank);
    (void)snprintf(texts[1], sizeof(texts[1]), "%d", settings->group_fd);
    (void)snprintf(texts[2], sizeof(texts[2]), "%u", settings->kv_blocks);
    (void)snprintf(texts[3], sizeof(texts[3]), "%u", settings->window_blocks);
    for (char *const *flag = settings->flags; *flag != NULL; flag++) {
        ASSERT(count < 1 + RANK_ARGUMENTS + FLAGS_MAX);
        argv[count++] = *flag;
    }
    pid = process_spawn(argv, &settings->group_fd, 1, -1, -1, SIGKILL, err);
    if (pid < 0)
        return errmsg_prefix(err, (int)pid, "start rank %u", rank);
    fd = process_pidfd(pid);
    if (fd < 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return errmsg_set(err, fd, "pidfd of rank %u: %s", rank, strerror(-fd));
    }
    ret_process->pid = pid;
    ret_process->fd = fd;
    return 0;
}

int ranks_start(const struct ranks_settings *settings, struct ranks **ret_ranks, struct errmsg *err)
{
    struct ranks *ranks = mem_zalloc(sizeof(*ranks));
    int r = 0;

    ASSERT(settings->ranks >= 1 && settings->ranks <= TP_RANKS_MAX);
    ranks->count = settings->ranks;
    for (uint32_t rank = 0; rank < ranks->count; rank++)
        ranks->processes[rank].fd = -1;
    for (uint32_t rank = 1; rank < ranks->count && r == 0; rank++)
        r = start_one(settings, rank, &ranks->processes[rank], err);
    if (r < 0) {
        ranks_free(ranks);
        return r;
    }
    *ret_ranks = ranks;
    return 0;
}

void ranks_free(struct ranks *ranks)
{
    if (ranks == NULL)
        return;
    ranks_kill(ranks);
    mem_free(ranks);
}

pid_t ranks_pid(const struct ranks *ranks, uint32_t rank)
{
    ASSERT(rank < ranks->count);
    return rank == 0 ? getpid() : ranks->processes[rank].pid;
}

int ranks_fd(const struct ranks *ranks, uint32_t rank)
{
    ASSERT(rank < ranks->count);
    return ranks->processes[rank].fd;
}

static void forget(struct rank_process *process)
{
    (void)close(process->fd);
    process->fd = -1;
    process->pid = 0;
}

bool ranks_reap(struct ranks *ranks, uint32_t *ret_rank, int *ret_status)
{
    for (uint32_t rank = 1; rank < ranks->count; rank++) {
        struct rank_process *process = &ranks->processes[rank];
        int status = 0;
        if (process->pid == 0 || waitpid(process->pid, &status, WNOHANG) != process->pid)
            continue;
        forget(process);
        *ret_rank = rank;
        *ret_status = status;
        return true;
    }
    return false;
}

uint32_t ranks_running(const struct ranks *ranks)
{
    uint32_t running = 0;
    for (uint32_t rank = 1; rank < ranks->count; rank++)
        running += ranks->processes[rank].pid != 0;
    return running;
}

int ranks_wait(struct ranks *ranks, int timeout_ms)
{
    uint64_t deadline_ms = clock_ms() + (uint64_t)timeout_ms;
    int outcome = 0;

    while (ranks_running(ranks) > 0) {
        struct pollfd fds[TP_RANKS_MAX];
        nfds_t count = 0;
        uint32_t rank;
        int status;
        uint64_t now_ms = clock_ms();

        while (ranks_reap(ranks, &rank, &status)) {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                outcome = -EIO;
        }
        if (now_ms >= deadline_ms) {
            outcome = ranks_running(ranks) > 0 ? -ETIMEDOUT : outcome;
            ranks_kill(ranks);
            break;
        }
        for (uint32_t i = 1; i < ranks->count; i++) {
            if (ranks->processes[i].pid != 0)
                fds[count++] = (struct pollfd){.fd = ranks->processes[i].fd, .events = POLLIN};
        }
        if (count > 0)
            (void)poll(fds, count, (int)(deadline_ms - now_ms));
    }
    return outcome;
}

void ranks_kill(struct ranks *ranks)
{
    for (uint32_t rank = 1; rank < ranks->count; rank++) {
        if (ranks->processes[rank].pid != 0)
            (void)kill(ranks->processes[rank].pid, SIGKILL);
    }
    for (uint32_t rank = 1; rank < ranks->count; rank++) {
        struct rank_process *process = &ranks->processes[rank];
        if (process->pid == 0)
            continue;
        while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        forget(process);
    }
}

int rank_arguments_take(int *argc, char ***argv, struct rank_arguments *ret_arguments)
{
    static const char *const names[] = {"--rank", "--group-fd", "--kv-blocks", "--window-blocks"};
    static const uint64_t most[] = {TP_RANKS_MAX - 1, 1u << 20, UINT32_MAX - 1, UINT32_MAX - 1};
    uint64_t values[4];

    if (*argc < 2 || strcmp((*argv)[1], names[0]) != 0)
        return -ENOENT;
    if (*argc < 1 + RANK_ARGUMENTS)
        return -EINVAL;
    for (int i = 0; i < 4; i++) {
        if (strcmp((*argv)[1 + 2 * i], names[i]) != 0 ||
            number_parse_u64((*argv)[2 + 2 * i], &values[i]) < 0 || values[i] > most[i])
            return -EINVAL;
    }
    if (values[0] == 0 || values[1] == 0 || values[2] + values[3] == 0)
        return -EINVAL;
    ret_arguments->rank = (uint32_t)values[0];
    ret_arguments->group_fd = (int)values[1];
    ret_arguments->kv_blocks = (uint32_t)values[2];
    ret_arguments->window_blocks = (uint32_t)values[3];
    (*argv)[RANK_ARGUMENTS] = (*argv)[0];
    *argv += RANK_ARGUMENTS;
    *argc -= RANK_ARGUMENTS;
    return 0;
}
