/* ranks.c - loading a group into threads, and overwriting its KV memory. */
#include "tests/exact/ranks.h"

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/engine/follower.h"

#define DISK_BUFFERS 32u
#define LOAD_TIMEOUT_MS (10 * 60 * 1000)

static int load(struct ranks_of *ranks, uint32_t rank, struct group *group,
                struct rank_model **ret_model, struct errmsg *err)
{
    struct rank_model_settings settings = ranks->settings;
    settings.rank = rank;
    int r = *ret_model == NULL ? rank_model_open(&settings, ret_model, err) : 0;
    if (r == 0)
        r = rank_model_load(*ret_model, &ranks->limits, group, err);
    if (r == 0 && group != NULL && group_barrier(group, LOAD_TIMEOUT_MS) < 0)
        r = errmsg_set(err, -ECANCELED, "rank %u: %s", rank, group_aborted(group));
    return r;
}

static void *follow(void *user)
{
    struct rank_thread *own = user;
    struct follower follower = {.group = own->group};
    struct errmsg err = {""};
    int r = load(own->all, group_rank(own->group), own->group, &follower.model, &err);
    if (r == 0)
        (void)follower_run(&follower, &err);
    else
        group_abort(own->group, err.text);
    rank_model_close(follower.model);
    return NULL;
}

static int start_threads(struct ranks_of *ranks, struct errmsg *err)
{
    const struct group_limits limits = rank_model_group_limits(ranks->model, &ranks->limits);
    int fd = -1;
    int r = group_create(&limits, &ranks->group, &fd, err);
    if (r < 0)
        return r;
    (void)close(fd);
    for (uint32_t rank = 1; rank < limits.ranks && r == 0; rank++) {
        struct rank_thread *own = &ranks->threads[rank];
        own->all = ranks;
        r = group_attach(ranks->group, rank, &own->group, err);
        if (r == 0)
            r = -pthread_create(&own->thread, NULL, follow, own);
        own->started = r == 0;
    }
    return r;
}

static int forward(struct ranks_of *ranks, struct step_descriptor *descriptor)
{
    descriptor->number = ++ranks->steps;
    int r = ranks->group != NULL ? step_ring_publish(ranks->group, descriptor) : 0;
    return r == 0 ? rank_model_forward(ranks->model, descriptor, NULL) : r;
}

/* The last block: 16 tokens that no prompt begins with. */
static int fill_last_block(struct ranks_of *ranks)
{
    uint32_t ids[KV_BLOCK_TOKENS], position[KV_BLOCK_TOKENS];
    const uint32_t row_first[2] = {0, KV_BLOCK_TOKENS}, table[1] = {ranks->limits.kv_blocks - 1};
    const uint32_t window_table[1] = {ranks->limits.window_blocks - 1};
    const struct layer_groups *groups = &ranks->model->groups;
    for (uint32_t i = 0; i < KV_BLOCK_TOKENS; i++) {
        ids[i] = ranks->model->config.vocab_size - 1 - i;
        position[i] = i;
    }
    struct step_descriptor descriptor = {
        .kind = STEP_FORWARD,
        .step = {.rows = KV_BLOCK_TOKENS,
                 .sequences = 1,
                 .ids = ids,
                 .position = position,
                 .row_first = row_first,
                 .table = groups->full_layers > 0 ? table : NULL,
                 .window_table = groups->window_layers > 0 ? window_table : NULL,
                 .table_stride = 1}};
    return forward(ranks, &descriptor);
}

/* Blocks [0, last) get what block `last` holds. */
static int scribble(struct ranks_of *ranks, uint32_t last, uint32_t window)
{
    struct step_copy copies[32];
    uint32_t most = ranks->limits.sequences_max;
    int r = 0;
    ASSERT(most <= sizeof(copies) / sizeof(copies[0]));
    for (uint32_t to = 0; to < last && r == 0;) {
        uint32_t count = 0;
        for (; count < most && to < last; count++)
            copies[count] = (struct step_copy){last, to++, KV_BLOCK_TOKENS, window};
        struct step_descriptor descriptor = {
            .kind = STEP_FORWARD, .copies = copies, .copies_count = count};
        r = forward(ranks, &descriptor);
    }
    return r;
}

int ranks_scribble(struct ranks_of *ranks)
{
    const struct layer_groups *groups = &ranks->model->groups;
    int r = groups->full_layers > 0 ? scribble(ranks, ranks->limits.kv_blocks - 1, 0) : 0;
    if (r == 0 && groups->window_layers > 0)
        r = scribble(ranks, ranks->limits.window_blocks - 1, 1);
    return r;
}

uint64_t ranks_host_bytes(const struct ranks_of *ranks, uint32_t host_blocks)
{
    return (uint64_t)host_blocks * rank_model_block_bytes(ranks->model);
}

struct disk_limits ranks_disk(const struct ranks_of *ranks, uint32_t files)
{
    uint64_t block_bytes = rank_model_block_bytes(ranks->model);
    return (struct disk_limits){.path = ranks->disk_path,
                                .size_bytes = (files + 1) * (block_bytes + 8192),
                                .buffer_bytes = DISK_BUFFERS * block_bytes,
                                .fingerprint = "exact"};
}

void ranks_await_disk(const struct ranks_of *ranks, const struct step_descriptor *descriptor)
{
    for (uint32_t i = 0; i < descriptor->disk_ops_count; i++) {
        const struct step_disk_op *op = &descriptor->disk_ops[i];
        for (uint32_t rank = 0; rank < ranks->settings.ranks; rank++) {
            const uint32_t *done = ranks->group != NULL ? group_tier_done(ranks->group, rank)
                                                        : ranks->model->tier_done;
            enum tier_io_result result;
            while (!tier_io_is_done(&done[op->token], op->ticket, &result))
                (void)sched_yield();
        }
    }
}

static void open_disk(struct ranks_of *ranks)
{
    (void)snprintf(ranks->disk_path, sizeof(ranks->disk_path), "/tmp/refrain-exact-XXXXXX");
    char *made = mkdtemp(ranks->disk_path);
    ASSERT(made != NULL);
    ranks->limits.disk = ranks_disk(ranks, 1024);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

int ranks_open(const struct rank_model_settings *settings, const struct rank_limits *limits,
               uint32_t host_blocks, struct ranks_of **ret_ranks, struct errmsg *err)
{
    struct ranks_of *ranks = mem_zalloc(sizeof(*ranks));
    ranks->settings = *settings;
    ranks->settings.rank = 0;
    ranks->limits = *limits;
    int r = rank_model_open(&ranks->settings, &ranks->model, err);
    if (r == 0)
        ranks->limits.host_tier_bytes =
            ranks->model->groups.window > 0 ? 0 : ranks_host_bytes(ranks, host_blocks);
    if (r == 0 && ranks->model->groups.window == 0)
        open_disk(ranks);
    if (r == 0 && settings->ranks > 1)
        r = start_threads(ranks, err);
    if (r == 0)
        r = load(ranks, 0, ranks->group, &ranks->model, err);
    if (r == 0)
        r = fill_last_block(ranks);
    if (r < 0) {
        if (ranks->group != NULL)
            group_abort(ranks->group, "rank 0 could not start");
        ranks_close(ranks);
        return r;
    }
    *ret_ranks = ranks;
    return 0;
}

void ranks_close(struct ranks_of *ranks)
{
    if (ranks == NULL)
        return;
    const struct step_descriptor stop = {.kind = STEP_STOP, .number = ranks->steps + 1};
    if (ranks->group != NULL && step_ring_publish(ranks->group, &stop) < 0)
        group_abort(ranks->group, "rank 0 stops");
    for (uint32_t rank = 1; rank < TP_RANKS_MAX; rank++) {
        if (ranks->threads[rank].started)
            (void)pthread_join(ranks->threads[rank].thread, NULL);
        group_free(ranks->threads[rank].group);
    }
    rank_model_close(ranks->model);
    group_free(ranks->group);
    if (ranks->disk_path[0] != '\0')
        (void)nftw(ranks->disk_path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    mem_free(ranks);
}
