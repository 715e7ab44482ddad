/* harness_fault.c - see the header. */
#include "tests/e2e/harness_fault.h"

#include <cmocka.h>
#include <signal.h>

#include "proto/base/clock.h"

bool fault_all_gone(const struct worker_view *worker)
{
    for (uint32_t rank = 0; rank < worker->ranks; rank++) {
        if (proc_is_alive(worker->pids[rank]))
            return false;
    }
    return true;
}

static bool all_gone(void *user)
{
    return fault_all_gone(user);
}

uint32_t fault_kill_rank(const struct worker_view *worker, uint32_t rank)
{
    struct worker_view copy = *worker;
    uint64_t began = clock_ms();

    assert_true(rank < worker->ranks && worker->pids[rank] > 0);
    assert_int_equal(kill(worker->pids[rank], SIGKILL), 0);
    if (!poll_until(all_gone, &copy, GROUP_END_MS))
        fail_msg("group %d does not end within %u ms of the death of rank %u", worker->group,
                 GROUP_END_MS, rank);
    return (uint32_t)(clock_ms() - began);
}

struct restart_watch {
    const struct cluster *cluster;
    const struct worker_view *before;
};

static bool is_back(void *user)
{
    const struct restart_watch *watch = user;
    struct worker_view now;
    return cluster_worker(watch->cluster, watch->before->group, &now) && now.ready &&
           now.pids[0] != watch->before->pids[0] && proc_is_alive(now.pids[0]);
}

uint32_t fault_await_restart(const struct cluster *cluster, const struct worker_view *before)
{
    struct restart_watch watch = {cluster, before};
    uint64_t began = clock_ms();

    if (!poll_until(is_back, &watch, RESTART_DEADLINE_MS))
        fail_msg("group %d is not back after %u ms", before->group, RESTART_DEADLINE_MS);
    return (uint32_t)(clock_ms() - began);
}
