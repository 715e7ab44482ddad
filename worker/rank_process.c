/* rank_process.c - join the group, load, follow.
 *
 *   main thread: the follower's loop        admin thread: the rank's own admin socket
 *
 * Signals: rank 0 decides when a group stops, so SIGINT (Ctrl-C reaches the whole foreground group)
 * and SIGTERM (systemd sends it to the whole unit) are ignored here; STEP_STOP, the abort word and
 * the death of rank 0 end this process. */
#include "worker/rank_process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#define LOG_MODULE "rank"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "worker/admin_commands.h"
#include "worker/engine/follower.h"
#include "worker/info.h"
#include "worker/worker.h"

#define LOAD_TIMEOUT_MS (30 * 60 * 1000)
#define ADMIN_TURN_MS 5000 /* closes idle clients */

struct rank_process {
    struct group *group;
    struct rank_model *model;
    struct follower follower;
    struct worker_info info;
    struct admin_context context;
    pthread_t admin_thread;
    int stop_fd;
};

static int load(struct rank_process *process, const struct worker_settings *settings,
                const struct rank_arguments *arguments, struct errmsg *err)
{
    const struct rank_model_settings open = {settings->model, arguments->rank, settings->ranks,
                                             worker_backend_settings(settings),
                                             worker_whole_windows(settings)};
    struct worker_info *info = &process->info;
    info->settings = settings;
    info->step_tokens_max = settings->step_tokens_max; /* rank 0 checked it */
    info->rank = arguments->rank;
    info->pool.blocks = arguments->kv_blocks;
    info->pool.window_blocks = arguments->window_blocks;
    info->pool.context_tokens = settings->context_tokens;
    if (settings->disk_tier_path != NULL)
        worker_disk_path(settings, info->disk_path);
    int r = group_join(arguments->group_fd, arguments->rank, &process->group, err);
    if (r == 0 && group_ranks(process->group) != settings->ranks)
        r = errmsg_set(err, -EINVAL, "the group has %u ranks, not %u", group_ranks(process->group),
                       settings->ranks);
    if (r == 0)
        r = rank_model_open(&open, &process->model, err);
    if (r == 0)
        r = group_check_kv_format(process->group, process->model->backend->kv_format, err);
    info->model = process->model;
    if (r == 0) {
        const struct rank_limits limits = worker_info_limits(info);
        r = rank_model_load(process->model, &limits, process->group, err);
    }
    if (r == 0 && group_barrier(process->group, LOAD_TIMEOUT_MS) < 0)
        r = errmsg_set(err, -ECANCELED, "wait for the other ranks: %s",
                       group_aborted(process->group) != NULL ? group_aborted(process->group)
                                                             : "too slow");
    return r;
}

static void *admin_main(void *user)
{
    struct rank_process *process = user;
    for (;;) {
        struct pollfd fds[1 + ADMIN_CLIENTS_MAX + 1];
        fds[0] = (struct pollfd){.fd = process->stop_fd, .events = POLLIN};
        uint32_t count = admin_socket_fds(process->context.admin, fds + 1);
        (void)poll(fds, 1 + count, ADMIN_TURN_MS);
        if (fds[0].revents != 0)
            return NULL;
        admin_socket_turn(process->context.admin, fds + 1, count, clock_ms());
    }
}

static int start_admin(struct rank_process *process, const struct worker_settings *settings,
                       const struct rank_arguments *arguments, struct errmsg *err)
{
    struct worker_info *info = &process->info;
    info->started_ms = clock_ms();
    info->block_bytes = rank_model_own_block_bytes(process->model);
    info->window_block_bytes = rank_model_own_window_block_bytes(process->model);
    worker_admin_path(settings, arguments->rank, info->admin_path);
    process->context.info = info;
    process->context.follower = &process->follower;
    process->stop_fd = eventfd(0, EFD_CLOEXEC);
    ASSERT(process->stop_fd >= 0);
    int r = admin_socket_new(info->admin_path, admin_commands_call, &process->context,
                             &process->context.admin, err);
    if (r < 0)
        return r;
    r = pthread_create(&process->admin_thread, NULL, admin_main, process);
    if (r != 0) {
        admin_socket_free(process->context.admin);
        process->context.admin = NULL;
        return errmsg_set(err, -r, "start the admin thread: %s", strerror(r));
    }
    (void)pthread_setname_np(process->admin_thread, "admin");
    return 0;
}

static void stop_admin(struct rank_process *process)
{
    const uint64_t one = 1;
    if (process->context.admin == NULL)
        return;
    ssize_t written = write(process->stop_fd, &one, sizeof(one));
    ASSERT(written == (ssize_t)sizeof(one));
    (void)pthread_join(process->admin_thread, NULL);
    admin_socket_free(process->context.admin);
}

int rank_process_run(const struct worker_settings *settings, const struct rank_arguments *arguments)
{
    struct rank_process process = {.stop_fd = -1};
    struct errmsg err = {""};
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    char name[32];
    (void)snprintf(name, sizeof(name), "worker.%u.%u", settings->group, arguments->rank);
    log_init(name, (enum log_level)settings->log_level);

    int r = load(&process, settings, arguments, &err);
    if (r == 0) {
        process.follower.model = process.model;
        process.follower.group = process.group;
        r = start_admin(&process, settings, arguments, &err);
    }
    if (r == 0) {
        log_info("following", "rank=%u weights_bytes=%llu", arguments->rank,
                 (unsigned long long)process.model->weights->bytes);
        r = follower_run(&process.follower, &err);
    }
    if (r < 0) {
        log_error("rank_failed", "rank=%u error=\"%s\"", arguments->rank, err.text);
        if (process.group != NULL)
            group_abort(process.group, err.text);
    }
    stop_admin(&process);
    rank_model_close(process.model);
    if (process.group != NULL)
        group_free(process.group);
    if (process.stop_fd >= 0)
        (void)close(process.stop_fd);
    return r < 0 ? WORKER_EXIT_GROUP : 0;
}
