/* group.c - shared memory of one tensor-parallel group, and waiting in it.
 *
 *   memfd   header (abort word, published steps, a part per rank) | step slots | all-reduce slots |
 *           adapters of each rank
 *
 *   wait:   spin --> (more ranks than cores) yield for 1 ms --> sleep in slices --> fault
 *                    each slice looks at: the abort word, the peer's pidfd, the deadline
 *
 * Why slices: a rank that is killed wakes nobody. 50 ms while a deadline runs, 250 ms while idle,
 * bound how late a death or a missed wake is seen; four wake-ups a second cost nothing.
 * Why a pidfd and not the parent: a rank may die while the process that started it lives on, and a
 * zombie still answers kill(pid, 0).
 * Cost: a satisfied wait is one load; two ranks on two cores meet in 0.3 microseconds.
 * Invariant: a word is written by one rank only; who finds a fault sets the abort word, and from
 * then on every wait that is not already satisfied fails. */
#include "worker/tp/group_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "proto/base/relax.h"
#include "worker/tp/step_ring.h"

#define GROUP_MAGIC 0x50554f5247464552ull /* "REFGROUP" with two letters to spare */
#define GROUP_VERSION 3u
#define PAGE 4096u
#define STEP_BYTES_MAX (1ull << 30)
/* Bigger all-reduces are cut: a piece of 256 KiB stays in the second-level cache. */
#define REDUCE_FLOATS_MAX (1u << 16)

#define SPINS_ALONE 2000u   /* a core for each rank */
#define SPINS_SHARED 200u   /* more ranks than cores */
#define YIELD_NS 1000000ull /* 1 ms */
#define STEP_DEADLINE_DEFAULT_MS 10000u
#define SLICE_MS 50u       /* asleep with a deadline */
#define SLICE_IDLE_MS 250u /* asleep without one */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t slots_offset(void)
{
    return round_up(sizeof(struct group_header), PAGE);
}

static size_t reduce_offset(const struct group_header *header)
{
    return slots_offset() + STEP_RING_SLOTS * (size_t)header->step_bytes;
}

static size_t adapters_offset(const struct group_header *header)
{
    return reduce_offset(header) +
           (size_t)header->ranks * 2 * header->reduce_floats * sizeof(float);
}

static size_t layout_bytes(const struct group_header *header)
{
    return adapters_offset(header) + header->ranks * (size_t)header->adapter_bytes;
}

void *group_adapters(const struct group *group, uint32_t rank)
{
    const struct group_header *header = group->header;
    ASSERT(rank < group->ranks);
    if (header->adapter_bytes == 0)
        return NULL;
    return (char *)group->header + adapters_offset(header) + rank * (size_t)header->adapter_bytes;
}

void *group_step_slot(const struct group *group, uint32_t slot)
{
    ASSERT(slot < STEP_RING_SLOTS);
    return (char *)group->header + slots_offset() + slot * (size_t)group->header->step_bytes;
}

float *group_reduce_slot(const struct group *group, uint32_t rank, uint32_t slot)
{
    ASSERT(rank < group->ranks && slot < 2);
    char *base = (char *)group->header + reduce_offset(group->header);
    return (float *)(void *)base + ((size_t)rank * 2 + slot) * group->header->reduce_floats;
}

/* --- making and joining ---------------------------------------------------------------------- */

static struct group *view_new(struct group_header *header, size_t bytes, uint32_t rank,
                              bool owns_mapping)
{
    struct group *group = mem_zalloc(sizeof(*group));
    group->header = header;
    group->bytes = bytes;
    group->owns_mapping = owns_mapping;
    group->rank = rank;
    group->ranks = header->ranks;
    group->yields = header->ranks > process_cpus();
    group->step_deadline_ms = STEP_DEADLINE_DEFAULT_MS;
    group->spins = group->yields ? SPINS_SHARED : SPINS_ALONE;
    for (uint32_t i = 0; i < TP_RANKS_MAX; i++)
        group->pidfd[i] = -1;
    return group;
}

static int map_shared(int fd, size_t bytes, struct group_header **ret_header, struct errmsg *err)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return errmsg_errno(err, "map %zu bytes of group memory", bytes);
    (void)madvise(map, bytes, MADV_DONTDUMP); /* activations come from users' text */
    *ret_header = map;
    return 0;
}

static int size_memory(int fd, size_t bytes, struct errmsg *err)
{
    if (ftruncate(fd, (off_t)bytes) < 0)
        return errmsg_errno(err, "resize group memory to %zu bytes", bytes);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return errmsg_errno(err, "seal group memory");
    return 0;
}

int group_create(const struct group_limits *limits, struct group **ret_group, int *ret_fd,
                 struct errmsg *err)
{
    ASSERT(limits->ranks >= 1 && limits->ranks <= TP_RANKS_MAX);
    ASSERT(limits->step_bytes_max <= STEP_BYTES_MAX);
    size_t floats = limits->reduce_floats_max;
    floats = floats > REDUCE_FLOATS_MAX ? REDUCE_FLOATS_MAX : floats;
    struct group_header sizes = {
        .ranks = limits->ranks,
        .step_bytes = round_up(limits->step_bytes_max, PAGE),
        .reduce_floats = round_up(floats < 1 ? 1 : floats, PAGE / sizeof(float)),
        .adapter_bytes = round_up(limits->adapter_bytes, PAGE),
    };
    struct group_header *header = NULL;
    size_t bytes = layout_bytes(&sizes);
    int fd = memfd_create("refrain-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return errmsg_errno(err, "make group memory");
    int r = size_memory(fd, bytes, err);
    if (r == 0)
        r = map_shared(fd, bytes, &header, err);
    if (r < 0) {
        (void)close(fd);
        return r;
    }
    ASSERT(header != NULL);
    header->bytes = bytes;
    header->version = GROUP_VERSION;
    header->ranks = sizes.ranks;
    header->step_bytes = sizes.step_bytes;
    header->reduce_floats = sizes.reduce_floats;
    header->adapter_bytes = sizes.adapter_bytes;
    header->adapter_slots = limits->adapter_slots;
    header->ids_max = limits->ids_max;
    header->blocks_max = limits->blocks_max;
    header->window_tokens = limits->window_tokens;
    header->window_blocks_max = limits->window_blocks_max;
    header->tier_slots = limits->tier_slots;
    header->tier_buffers = limits->tier_buffers;
    (void)snprintf(header->tag, sizeof(header->tag), "%s", limits->tag != NULL ? limits->tag : "");
    (void)snprintf(header->kv_format, sizeof(header->kv_format), "%s",
                   limits->kv_format != NULL ? limits->kv_format : "");
    header->rank[0].pid = (uint32_t)getpid();
    header->magic = GROUP_MAGIC;
    struct group *group = view_new(header, bytes, 0, true);
    if (limits->step_deadline_ms != 0)
        group->step_deadline_ms = limits->step_deadline_ms;
    *ret_group = group;
    *ret_fd = fd;
    return 0;
}

static int check_header(const struct group_header *header, size_t bytes, struct errmsg *err)
{
    if (header->magic != GROUP_MAGIC || header->version != GROUP_VERSION)
        return errmsg_set(err, -EINVAL, "this is not group memory of version %u", GROUP_VERSION);
    if (header->ranks < 1 || header->ranks > TP_RANKS_MAX ||
        header->tag[GROUP_TAG_MAX - 1] != '\0' || header->kv_format[GROUP_TAG_MAX - 1] != '\0' ||
        header->tier_buffers >= GROUP_TIER_TOKENS_MAX || header->step_bytes > STEP_BYTES_MAX ||
        header->step_bytes % PAGE != 0 || header->reduce_floats < 1 ||
        header->reduce_floats > REDUCE_FLOATS_MAX || header->adapter_bytes > bytes ||
        header->adapter_bytes % PAGE != 0 || header->bytes != bytes ||
        layout_bytes(header) != bytes)
        return errmsg_set(err, -EINVAL, "group memory of %zu bytes contradicts its own header",
                          bytes);
    return 0;
}

static int take_rank(struct group_header *header, uint32_t rank, struct errmsg *err)
{
    uint32_t nobody = 0;
    if (rank == 0 || rank >= header->ranks)
        return errmsg_set(err, -EINVAL, "rank %u in a group of %u", rank, header->ranks);
    if (!__atomic_compare_exchange_n(&header->rank[rank].pid, &nobody, (uint32_t)getpid(), false,
                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return errmsg_set(err, -EBUSY, "rank %u is taken by process %u", rank, nobody);
    return 0;
}

int group_join(int fd, uint32_t rank, struct group **ret_group, struct errmsg *err)
{
    struct group_header *header = NULL;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return errmsg_errno(err, "stat group memory");
    if (st.st_size < (off_t)sizeof(*header))
        return errmsg_set(err, -EINVAL, "group memory of %lld bytes", (long long)st.st_size);
    int r = map_shared(fd, (size_t)st.st_size, &header, err);
    if (r < 0)
        return r;
    ASSERT(header != NULL);
    r = check_header(header, (size_t)st.st_size, err);
    if (r == 0)
        r = take_rank(header, rank, err);
    if (r < 0) {
        (void)munmap(header, (size_t)st.st_size);
        return r;
    }
    *ret_group = view_new(header, (size_t)st.st_size, rank, true);
    return 0;
}

int group_attach(struct group *group, uint32_t rank, struct group **ret_group, struct errmsg *err)
{
    int r = take_rank(group->header, rank, err);
    if (r < 0)
        return r;
    *ret_group = view_new(group->header, group->bytes, rank, false);
    return 0;
}

void group_free(struct group *group)
{
    if (group == NULL)
        return;
    for (uint32_t i = 0; i < TP_RANKS_MAX; i++) {
        if (group->pidfd[i] >= 0)
            (void)close(group->pidfd[i]);
    }
    if (group->owns_mapping)
        (void)munmap(group->header, group->bytes);
    mem_free(group);
}

uint32_t group_rank(const struct group *group)
{
    return group->rank;
}

const char *group_tag(const struct group *group)
{
    ASSERT(group->header->tag[GROUP_TAG_MAX - 1] == '\0'); /* checked when it was joined */
    return group->header->tag;
}

int group_check_kv_format(const struct group *group, const char *kv_format, struct errmsg *err)
{
    const char *wanted = group->header->kv_format;
    ASSERT(wanted[GROUP_TAG_MAX - 1] == '\0'); /* checked when it was joined */
    if (strcmp(wanted, kv_format) != 0)
        return errmsg_set(err, -EINVAL,
                          "the group's KV blocks are %s, this rank's are %s: --kv-cache-dtype, "
                          "--backend and --cpu-isa are the same for all ranks",
                          wanted, kv_format);
    return 0;
}

uint32_t group_ranks(const struct group *group)
{
    return group->ranks;
}

/* --- abort ----------------------------------------------------------------------------------- */

static void futex_wake(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void group_abort(struct group *group, const char *reason)
{
    struct group_header *header = group->header;
    uint32_t none = ABORT_NONE;
    if (!__atomic_compare_exchange_n(&header->abort_state, &none, ABORT_WRITING, false,
                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return; /* the first reason is kept */
    (void)snprintf(header->abort_reason, sizeof(header->abort_reason), "%s", reason);
    __atomic_store_n(&header->abort_state, ABORT_SET, __ATOMIC_SEQ_CST);
    futex_wake(&header->published.value);
    for (uint32_t i = 0; i < group->ranks; i++) {
        futex_wake(&header->rank[i].reduced.value);
        futex_wake(&header->rank[i].done.value);
        futex_wake(&header->rank[i].barrier.value);
    }
}

const char *group_aborted(const struct group *group)
{
    switch (__atomic_load_n(&group->header->abort_state, __ATOMIC_ACQUIRE)) {
    case ABORT_NONE:
        return NULL;
    case ABORT_SET:
        return group->header->abort_reason;
    default:
        return "aborted"; /* its reason is being written, or the writer died in the middle */
    }
}

/* --- waiting --------------------------------------------------------------------------------- */

static bool reached(const struct group_word *word, uint32_t value)
{
    return (int32_t)(__atomic_load_n(&word->value, __ATOMIC_ACQUIRE) - value) >= 0;
}

/* Sleep until the word moves on from `seen`, for `ms` at most. */
static void doze(struct group_word *word, uint32_t seen, uint32_t ms)
{
    const struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)syscall(SYS_futex, &word->value, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

/* Has this rank's process ended? A rank that never joined, or lives in this process, has not. */
static bool has_died(struct group *group, uint32_t rank)
{
    uint32_t pid = __atomic_load_n(&group->header->rank[rank].pid, __ATOMIC_ACQUIRE);
    if (pid == 0 || pid > INT_MAX || (pid_t)pid == getpid())
        return false;
    if (group->pidfd[rank] < 0) {
        group->pidfd[rank] = process_pidfd((pid_t)pid);
        if (group->pidfd[rank] < 0)
            return group->pidfd[rank] == -ESRCH;
    }
    struct pollfd poll_fd = {.fd = group->pidfd[rank], .events = POLLIN};
    return poll(&poll_fd, 1, 0) > 0;
}

/* The part of a wait that sleeps. */
static int wait_asleep(struct group *group, struct group_word *word, uint32_t value, uint32_t peer,
                       uint32_t deadline_ms, const char *what)
{
    char reason[GROUP_REASON_MAX];
    bool idle = deadline_ms == GROUP_NO_DEADLINE;
    uint64_t begin = clock_ms();
    while (!reached(word, value)) {
        uint64_t waited = clock_ms() - begin;
        if (group_aborted(group) != NULL)
            return -ECANCELED;
        if (has_died(group, peer)) {
            if (reached(word, value))
                return 0; /* its last act */
            (void)snprintf(reason, sizeof(reason), "rank %u has died (%s)", peer, what);
            group_abort(group, reason);
            return -ECANCELED;
        }
        if (!idle && waited >= deadline_ms) {
            (void)snprintf(reason, sizeof(reason), "rank %u waited %u ms for rank %u (%s)",
                           group->rank, deadline_ms, peer, what);
            group_abort(group, reason);
            return -ETIMEDOUT;
        }
        uint64_t slice = idle ? SLICE_IDLE_MS : deadline_ms - waited;
        slice = idle || slice < SLICE_MS ? slice : SLICE_MS;
        __atomic_fetch_add(&word->waiters, 1, __ATOMIC_SEQ_CST);
        uint32_t seen = __atomic_load_n(&word->value, __ATOMIC_SEQ_CST);
        if ((int32_t)(seen - value) < 0)
            doze(word, seen, (uint32_t)slice);
        __atomic_fetch_sub(&word->waiters, 1, __ATOMIC_SEQ_CST);
    }
    return 0;
}

int group_wait(struct group *group, struct group_word *word, uint32_t value, uint32_t peer,
               uint32_t deadline_ms, const char *what)
{
    for (unsigned i = 0; i < group->spins; i++) {
        if (reached(word, value))
            return 0;
        cpu_relax();
    }
    if (group->yields) {
        uint64_t begin = clock_ns();
        while (clock_ns() - begin < YIELD_NS) {
            if (reached(word, value))
                return 0;
            (void)sched_yield();
        }
    }
    return wait_asleep(group, word, value, peer, deadline_ms, what);
}

void group_post(struct group_word *word, uint32_t value)
{
    __atomic_store_n(&word->value, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&word->waiters, __ATOMIC_SEQ_CST) != 0)
        futex_wake(&word->value);
}

/* --- heartbeat, barrier ---------------------------------------------------------------------- */

void group_beat(struct group *group, uint64_t step)
{
    struct group_rank *rank = &group->header->rank[group->rank];
    __atomic_store_n(&rank->beat_step, step, __ATOMIC_RELAXED);
    __atomic_store_n(&rank->beat_ns, clock_ns(), __ATOMIC_RELAXED);
}

void group_set_bytes(struct group *group, uint64_t weights_bytes, uint64_t kv_bytes)
{
    struct group_rank *rank = &group->header->rank[group->rank];
    __atomic_store_n(&rank->weights_bytes, weights_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&rank->kv_bytes, kv_bytes, __ATOMIC_RELAXED);
}

void group_bytes(const struct group *group, uint32_t rank, uint64_t *ret_weights_bytes,
                 uint64_t *ret_kv_bytes)
{
    ASSERT(rank < group->ranks);
    const struct group_rank *from = &group->header->rank[rank];
    *ret_weights_bytes = __atomic_load_n(&from->weights_bytes, __ATOMIC_RELAXED);
    *ret_kv_bytes = __atomic_load_n(&from->kv_bytes, __ATOMIC_RELAXED);
}

uint32_t *group_tier_done(const struct group *group, uint32_t rank)
{
    ASSERT(rank < group->ranks);
    return group->header->rank[rank].tier_done;
}

uint64_t group_beat_age_ms(const struct group *group, uint32_t rank)
{
    ASSERT(rank < group->ranks);
    uint64_t beat = __atomic_load_n(&group->header->rank[rank].beat_ns, __ATOMIC_RELAXED);
    uint64_t now = clock_ns();
    if (beat == 0)
        return UINT64_MAX;
    return now > beat ? (now - beat) / 1000000 : 0;
}

int group_barrier(struct group *group, uint32_t deadline_ms)
{
    struct group_word *own = &group->header->rank[group->rank].barrier;
    uint32_t turn = own->value + 1;
    group_post(own, turn);
    for (uint32_t i = 0; i < group->ranks; i++) {
        int r = group_wait(group, &group->header->rank[i].barrier, turn, i, deadline_ms, "barrier");
        if (r < 0)
            return r;
    }
    return 0;
}
