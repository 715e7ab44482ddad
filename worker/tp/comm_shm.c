/* comm_shm.c - collectives over the group's shared memory.
 *
 *   operation n, on every rank:
 *     copy own values into own slot n % 2 --> post n --> wait until all have posted n --> read
 *
 *   sum of few values, one operation:   slot of rank 0 + slot of rank 1 + ...
 *   sum of many, two:                    the same, but each rank adds up its own share of them, and
 *                                        operation n + 1 hands the shares round
 *
 * Sums go in rank order, so all ranks hold the same bits, and both ways the same ones.
 * Why two slots and no second barrier: who writes slot n % 2 again does so in operation n + 2, and
 * has by then seen everybody post n + 1, which each did after it had read all of operation n. A
 * gather's senders wait for nobody, so every operation first makes sure that all have posted n - 1;
 * after an all-reduce that is one load per rank.
 * Cost: two ranks on two cores 0.3 microseconds for 2304 bytes, 10 for 64 KiB. In one operation
 * each of R ranks reads R times the values, in two it reads them twice and waits once more. */
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/tp/comm.h"
#include "worker/tp/group_private.h"

#define DEADLINE_DEFAULT_MS 2000u
#define SUM_FLOATS 2048u /* added up at once: stays in the first-level cache */
/* Sums of so many values are shared: 8 ranks on 2 cores gain nothing below, and 2 ranks never. */
#define SHARES_FLOATS 32768u
#define SHARES_RANKS 3u
#define SHARE_UNIT 16u /* floats: of a cache line, which one rank writes */

/* All ranks have posted operation `n`. */
static int wait_all(struct comm *comm, struct group *group, uint32_t n, const char *what)
{
    for (uint32_t i = 0; i < comm->ranks; i++) {
        int r = group_wait(group, &group->header->rank[i].reduced, n, i, comm->deadline_ms, what);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Publish `count` values at `at` of the slot as the next operation, whose number is returned in
 * *ret_n. */
static int post_values(struct comm *comm, struct group *group, const float *values, size_t at,
                       size_t count, const char *what, uint32_t *ret_n)
{
    int r = wait_all(comm, group, group->collectives, what);
    if (r < 0)
        return r;
    uint32_t n = ++group->collectives;
    if (count > 0)
        memcpy(group_reduce_slot(group, comm->rank, n % 2) + at, values, count * sizeof(float));
    group_post(&group->header->rank[comm->rank].reduced, n);
    *ret_n = n;
    return 0;
}

/* The same of an all-reduce, until all have published theirs. */
static int meet(struct comm *comm, struct group *group, const float *values, size_t at,
                size_t count, uint32_t *ret_n)
{
    int r = post_values(comm, group, values, at, count, "all-reduce", ret_n);
    return r < 0 ? r : wait_all(comm, group, *ret_n, "all-reduce");
}

/* values = sum of the slots' floats [first, end). */
static void sum_in_rank_order(const struct group *group, uint32_t slot, size_t first, size_t end,
                              float *values)
{
    for (size_t at = first; at < end; at += SUM_FLOATS) {
        size_t n = end - at < SUM_FLOATS ? end - at : SUM_FLOATS;
        float *to = values + at;
        memcpy(to, group_reduce_slot(group, 0, slot) + at, n * sizeof(float));
        for (uint32_t rank = 1; rank < group->ranks; rank++) {
            const float *from = group_reduce_slot(group, rank, slot) + at;
            for (size_t i = 0; i < n; i++)
                to[i] += from[i];
        }
    }
}

/* Where rank's share of `count` values starts; that of rank `ranks` is their end. */
static size_t share_start(size_t count, uint32_t rank, uint32_t ranks)
{
    return rank == ranks ? count : count / SHARE_UNIT * rank / ranks * SHARE_UNIT;
}

/* The second operation of a sum: own share is told, the others' are read. */
static int exchange_shares(struct comm *comm, struct group *group, float *values, size_t count)
{
    size_t first = share_start(count, comm->rank, comm->ranks);
    size_t end = share_start(count, comm->rank + 1, comm->ranks);
    uint32_t operation = 0;
    int r = meet(comm, group, values + first, first, end - first, &operation);
    if (r < 0)
        return r;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        if (rank == comm->rank)
            continue;
        first = share_start(count, rank, comm->ranks);
        end = share_start(count, rank + 1, comm->ranks);
        memcpy(values + first, group_reduce_slot(group, rank, operation % 2) + first,
               (end - first) * sizeof(float));
    }
    return 0;
}

/* At most as many values as fit a slot. */
static int reduce_piece(struct comm *comm, struct group *group, float *values, size_t count)
{
    uint32_t operation = 0;
    int r = meet(comm, group, values, 0, count, &operation);
    if (r < 0)
        return r;
    if (comm->ranks < SHARES_RANKS || count < SHARES_FLOATS) {
        sum_in_rank_order(group, operation % 2, 0, count, values);
        return 0;
    }
    sum_in_rank_order(group, operation % 2, share_start(count, comm->rank, comm->ranks),
                      share_start(count, comm->rank + 1, comm->ranks), values);
    return exchange_shares(comm, group, values, count);
}

static int shm_all_reduce_sum(struct comm *comm, float *values, size_t count)
{
    struct group *group = comm->state;
    size_t piece = group->header->reduce_floats;
    int r = 0;
    for (size_t at = 0; at < count && r == 0; at += piece)
        r = reduce_piece(comm, group, values + at, count - at < piece ? count - at : piece);
    return r;
}

/* Values [at, at + count) of a [rows, width] matrix go to columns `column`.. of rows of `stride`.
 */
static void spread(const float *from, size_t at, size_t count, uint32_t width, uint32_t column,
                   uint32_t stride, float *to)
{
    while (count > 0) {
        size_t row = at / width, in_row = at % width;
        size_t n = width - in_row < count ? width - in_row : count;
        memcpy(to + row * stride + column + in_row, from, n * sizeof(float));
        from += n;
        at += n;
        count -= n;
    }
}

/* What is left of a part of `total` values from `at` on, one piece at most. */
static size_t piece_of(size_t total, size_t at, size_t piece)
{
    size_t left = total > at ? total - at : 0;
    return left < piece ? left : piece;
}

static int shm_gather_columns(struct comm *comm, const float *part, uint32_t rows,
                              const uint32_t *columns, float *ret_full)
{
    struct group *group = comm->state;
    size_t piece = group->header->reduce_floats, most = 0;
    uint32_t stride = 0;
    for (uint32_t i = 0; i < comm->ranks; i++) {
        stride += columns[i];
        most = columns[i] > most ? columns[i] : most;
    }
    most *= rows;
    size_t own = comm->rank == 0 ? 0 : (size_t)rows * columns[comm->rank];
    if (comm->rank == 0 && columns[0] > 0)
        spread(part, 0, (size_t)rows * columns[0], columns[0], 0, stride, ret_full);
    for (size_t at = 0; at < most; at += piece) {
        uint32_t operation = 0;
        size_t n = piece_of(own, at, piece);
        int r = post_values(comm, group, n > 0 ? part + at : NULL, 0, n, "gather", &operation);
        if (r == 0 && comm->rank == 0)
            r = wait_all(comm, group, operation, "gather");
        if (r < 0)
            return r;
        uint32_t column = columns[0];
        for (uint32_t i = 1; i < comm->ranks && comm->rank == 0; i++) {
            n = piece_of((size_t)rows * columns[i], at, piece);
            spread(group_reduce_slot(group, i, operation % 2), at, n, columns[i], column, stride,
                   ret_full);
            column += columns[i];
        }
    }
    return 0;
}

static void shm_free(struct comm *comm)
{
    mem_free(comm);
}

static const struct comm_ops shm_ops = {
    .name = "shm",
    .all_reduce_sum = shm_all_reduce_sum,
    .gather_columns = shm_gather_columns,
    .free = shm_free,
};

struct comm *comm_shm_new(struct group *group)
{
    struct comm *comm = mem_zalloc(sizeof(*comm));
    ASSERT(group->collectives == 0); /* one communicator per view */
    comm->ops = &shm_ops;
    comm->rank = group->rank;
    comm->ranks = group->ranks;
    comm->deadline_ms = DEADLINE_DEFAULT_MS;
    comm->state = group;
    return comm;
}
