/* comm.h - what ranks tell each other inside a forward pass. One vtable, one file per transport.
 *
 * comm_single.c (1 rank: everything is a no-op or a copy), comm_shm.c (shared memory, sums in rank
 * order, so bit-identical on all ranks). All ranks make the same calls in the same order. */
#ifndef REFRAIN_WORKER_TP_COMM_H
#define REFRAIN_WORKER_TP_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "worker/tp/group.h"

struct comm;

struct comm_ops {
    const char *name;
    int (*all_reduce_sum)(struct comm *comm, float *values, size_t count);
    int (*gather_columns)(struct comm *comm, const float *part, uint32_t rows,
                          const uint32_t *columns, float *ret_full);
    void (*free)(struct comm *comm);
};

struct comm {
    const struct comm_ops *ops;
    uint32_t rank, ranks;
    uint32_t deadline_ms; /* of every wait; 2000 by default once steps run */
    void *state;
};

struct comm *comm_single_new(void);
/* group outlives the comm. */
struct comm *comm_shm_new(struct group *group);
void comm_free(struct comm *comm);

/* values[i] = sum over ranks, in rank order, of values[i]; in place. 0, -ECANCELED, -ETIMEDOUT. */
int comm_all_reduce_sum(struct comm *comm, float *values, size_t count);
/* Rank r has part [rows, columns[r]]; rank 0 gets ret_full [rows, sum of columns]; others pass
 * NULL. `columns` has one entry per rank and is the same on all. */
int comm_gather_columns(struct comm *comm, const float *part, uint32_t rows,
                        const uint32_t *columns, float *ret_full);

#endif
