/* step_time.h - how long rows of a step take, as learnt from earlier steps. Pure.
 *
 * Work is counted in rows without context: a row at position p is 1 + p / row_positions of them,
 * for attention goes over all positions before it. */
#ifndef REFRAIN_WORKER_SCHED_STEP_TIME_H
#define REFRAIN_WORKER_SCHED_STEP_TIME_H

#include <stdint.h>

struct step_time {
    uint32_t row_positions; /* attention to so many costs as much as the rest of a row; 0: nothing
                               is known of it, and it is not counted */
    double work_ns;         /* of work 1 in recent steps; 0: none was measured */
};

/* Of `rows` rows of one sequence, the first at `position`. */
double step_time_work(const struct step_time *time, uint32_t position, uint32_t rows);
/* About as many rows from `position` on as `work` is enough for, at most `rows_max`. */
uint32_t step_time_rows(const struct step_time *time, uint32_t position, double work,
                        uint32_t rows_max);
/* A step of that much work has taken so long. */
void step_time_learn(struct step_time *time, double work, uint64_t taken_ns);

#endif
