/* comm.c - the calls of every transport: arguments checked once, then the transport's function. */
#include "worker/tp/comm.h"

#include "proto/base/assert.h"

void comm_free(struct comm *comm)
{
    if (comm != NULL)
        comm->ops->free(comm);
}

int comm_all_reduce_sum(struct comm *comm, float *values, size_t count)
{
    ASSERT(values != NULL || count == 0);
    return count == 0 ? 0 : comm->ops->all_reduce_sum(comm, values, count);
}

int comm_gather_columns(struct comm *comm, const float *part, uint32_t rows,
                        const uint32_t *columns, float *ret_full)
{
    ASSERT((comm->rank == 0) == (ret_full != NULL) || rows == 0);
    ASSERT(part != NULL || columns[comm->rank] == 0);
    return rows == 0 ? 0 : comm->ops->gather_columns(comm, part, rows, columns, ret_full);
}
