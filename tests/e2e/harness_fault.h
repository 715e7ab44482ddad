/* harness_fault.h - killing processes of a cluster and timing what follows. */
#ifndef REFRAIN_TESTS_E2E_HARNESS_FAULT_H
#define REFRAIN_TESTS_E2E_HARNESS_FAULT_H

#include "tests/e2e/harness.h"

/* Issue 3: the death of a rank ends its group within 2 s. Sanitizers make everything slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GROUP_END_MS 6000u
#else
#define GROUP_END_MS 2000u
#endif
#define RESTART_DEADLINE_MS 30000u

/* SIGKILL to one rank; waits until every rank of the group is gone and asserts GROUP_END_MS.
 * Returns the milliseconds. */
uint32_t fault_kill_rank(const struct worker_view *worker, uint32_t rank);
/* Wait until the group is ready with other processes than `before`; returns the milliseconds. */
uint32_t fault_await_restart(const struct cluster *cluster, const struct worker_view *before);
bool fault_all_gone(const struct worker_view *worker);

#endif
