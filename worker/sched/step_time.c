/* step_time.c - a row costs its matmuls and attention to what is before it.
 *
 *   work of rows p .. p + n - 1 = n + (p + (p + 1) + ...) / R = n (1 + p / R) + n (n - 1) / 2R
 *
 * Why R is given and only the time of work 1 is learnt: with R from the model's shapes one number
 * is left, so a step tells of the next one though that computes other rows: a prompt with a long
 * reused prefix, or a new prompt after a deep one. R counts operations and kernels are not equally
 * good at both, so the number drifts by less than twice along a prompt; half old and half new
 * follows it. */
#include "worker/sched/step_time.h"

#include "proto/base/assert.h"

double step_time_work(const struct step_time *time, uint32_t position, uint32_t rows)
{
    double positions = (double)rows * position + (double)rows * (rows > 0 ? rows - 1 : 0) / 2;

    return rows + (time->row_positions > 0 ? positions / time->row_positions : 0);
}

uint32_t step_time_rows(const struct step_time *time, uint32_t position, double work,
                        uint32_t rows_max)
{
    double rows = work;

    if (work <= 0)
        return 0;
    if (time->row_positions > 0) { /* as if all of them stood where the middle one does */
        double at_first = work / (1 + (double)position / time->row_positions);
        rows = work / (1 + (position + at_first / 2) / time->row_positions);
    }
    return rows < rows_max ? (uint32_t)rows : rows_max;
}

void step_time_learn(struct step_time *time, double work, uint64_t taken_ns)
{
    ASSERT(work > 0);
    double work_ns = (double)taken_ns / work;
    time->work_ns = time->work_ns > 0 ? (time->work_ns + work_ns) / 2 : work_ns;
}
