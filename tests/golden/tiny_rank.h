/* tiny_rank.h - decoders of tiny models without an engine around them: steps that a test composes,
 * prompts alone and all at once, and ranks on threads. */
#ifndef REFRAIN_TESTS_GOLDEN_TINY_RANK_H
#define REFRAIN_TESTS_GOLDEN_TINY_RANK_H

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/golden/golden.h"
#include "worker/load/model_source.h"
#include "worker/model/decoder_private.h"

#define VOCAB 320u
#define ROWS_MAX 160u
#define BLOCKS 40u
#define STRIDE 10u
#define PROMPTS 3u
#define WINDOW_BLOCKS 30u

/* --- one rank -------------------------------------------------------------------------------- */

struct model_settings {
    const char *path, *backend, *isa; /* isa NULL: the best */
    unsigned threads;
    struct group *group; /* NULL: the only rank */
    uint32_t ranks;
    bool own_windows;               /* layers that slide keep blocks of the window alone */
    const struct lora_limits *lora; /* NULL: no adapters */
};

/* One rank with everything it needs. */
struct model {
    struct model_source *source;
    struct model_config config;
    struct shard shard;
    struct backend *backend;
    struct weights *weights;
    struct comm *comm;
    struct lora *lora;
    struct decoder *decoder;
};

/* 0, or what failed: a rank that fails has others to tell. */
static inline int model_open(struct model *m, const struct model_settings *settings)
{
    struct errmsg err = {""};
    const struct backend_settings backend = {
        .name = settings->backend, .isa = settings->isa, .threads = settings->threads};
    struct group *group = settings->group;
    memset(m, 0, sizeof(*m));
    int r = model_source_open(settings->path, &m->source, &err);
    if (r == 0)
        r = model_config_read(m->source, &m->config, &err);
    if (r == 0)
        r = shard_compute(&m->config, group == NULL ? 0 : group_rank(group), settings->ranks,
                          &m->shard, &err);
    if (r == 0)
        r = backend_open(&backend, &m->backend, &err);
    if (r == 0) {
        const struct weights_slice slice = shard_slice(&m->shard);
        r = weights_load(m->source, &m->config, &slice, m->backend, &m->weights, &err);
    }
    if (r == 0 && settings->lora != NULL)
        r = lora_new(&m->config, &m->shard, settings->lora, NULL, &m->lora, &err);
    if (r == 0) {
        m->comm = group == NULL ? comm_single_new() : comm_shm_new(group);
        m->comm->deadline_ms = 60000;
        const struct decoder_settings decoder = {
            .config = &m->config,
            .shard = &m->shard,
            .weights = m->weights,
            .backend = m->backend,
            .comm = m->comm,
            .lora = m->lora,
            .rows_max = ROWS_MAX,
            .outputs_max = ROWS_MAX,
            .positions_max = ROWS_MAX,
            .kv_blocks = BLOCKS,
            .window_blocks = WINDOW_BLOCKS,
            .groups = layer_groups_of(&m->config, !settings->own_windows)};
        r = decoder_new(&decoder, &m->decoder, &err);
    }
    if (r < 0)
        print_message("%s: %s\n", settings->path, err.text);
    return r;
}

static inline void model_close(struct model *m)
{
    decoder_free(m->decoder);
    lora_free(m->lora);
    comm_free(m->comm);
    weights_free(m->weights, &m->config, m->backend);
    backend_close(m->backend);
    model_source_close(m->source);
}

/* --- one text -------------------------------------------------------------------------------- */

static inline uint32_t text_id(uint32_t position)
{
    return (position * 37 + 11) % VOCAB;
}

/* A step of the first rows of the text, and what it points to. No logits are wanted. */
struct text_step {
    uint32_t ids[ROWS_MAX], position[ROWS_MAX], row_first[2], table[STRIDE];
    struct step step;
};

static inline void text_step_fill(struct text_step *text, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        text->ids[i] = text_id(i);
        text->position[i] = i;
    }
    for (uint32_t k = 0; k < STRIDE; k++)
        text->table[k] = BLOCKS - 1 - 2 * k;
    text->row_first[0] = 0;
    text->row_first[1] = rows;
    text->step = (struct step){.rows = rows,
                               .sequences = 1,
                               .ids = text->ids,
                               .position = text->position,
                               .row_first = text->row_first,
                               .table = text->table,
                               .table_stride = STRIDE};
}

/* --- batches --------------------------------------------------------------------------------- */

struct prompts {
    uint32_t *ids[PROMPTS], count[PROMPTS];
    uint32_t adapters[PROMPTS]; /* as struct step has them */
    float *logits[PROMPTS];     /* [count, VOCAB] */
};

static inline void free_prompts(struct prompts *prompts)
{
    for (uint32_t p = 0; p < PROMPTS; p++) {
        mem_free(prompts->ids[p]);
        mem_free(prompts->logits[p]);
    }
}

/* Window blocks of prompt p from the first one on that its rows see; no block before. They go round
 * in a third of WINDOW_BLOCKS: what the window has passed is written over. */
static inline void fill_windows(const struct model *m, uint32_t p, uint32_t first, uint32_t count,
                                uint32_t *table)
{
    uint32_t seen = step_first_block(first, m->config.window);
    for (uint32_t k = 0; k < STRIDE; k++)
        table[k] = UINT32_MAX;
    for (uint32_t k = seen; k * KV_BLOCK_TOKENS < first + count; k++) {
        assert_true(k - seen < WINDOW_BLOCKS / PROMPTS);
        table[k] = k % (WINDOW_BLOCKS / PROMPTS) * PROMPTS + p;
    }
}

/* Rows [first, first + count) of some prompts in one step; block tables are scattered. */
static inline void run_step(struct model *m, const struct prompts *prompts, const uint32_t *first,
                            const uint32_t *count)
{
    uint32_t ids[ROWS_MAX], position[ROWS_MAX], out_row[ROWS_MAX], row_first[PROMPTS + 1] = {0};
    uint32_t table[PROMPTS * STRIDE], window_table[PROMPTS * STRIDE], adapters[PROMPTS];
    uint32_t which[PROMPTS], sequences = 0, rows = 0;
    float *logits = mem_calloc((size_t)ROWS_MAX * VOCAB, sizeof(*logits));
    for (uint32_t p = 0; p < PROMPTS; p++) {
        if (count[p] == 0)
            continue;
        for (uint32_t k = 0; k < STRIDE; k++)
            table[sequences * STRIDE + k] = BLOCKS - 1 - (k * PROMPTS + p);
        fill_windows(m, p, first[p], count[p], window_table + (size_t)sequences * STRIDE);
        for (uint32_t i = 0; i < count[p]; i++, rows++) {
            ids[rows] = prompts->ids[p][first[p] + i];
            position[rows] = first[p] + i;
            out_row[rows] = rows;
        }
        adapters[sequences] = prompts->adapters[p];
        which[sequences++] = p;
        row_first[sequences] = rows;
    }
    const struct step step = {.rows = rows,
                              .sequences = sequences,
                              .ids = ids,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .window_table = window_table,
                              .table_stride = STRIDE,
                              .out_row = out_row,
                              .outputs = rows,
                              .adapters = m->lora != NULL ? adapters : NULL};
    assert_int_equal(decoder_forward(m->decoder, &step, logits), 0);
    for (uint32_t s = 0; s < sequences; s++)
        memcpy(prompts->logits[which[s]] + (size_t)first[which[s]] * VOCAB,
               logits + (size_t)row_first[s] * VOCAB,
               (size_t)count[which[s]] * VOCAB * sizeof(float));
    mem_free(logits);
}

static inline void run_alone(struct model *m, const struct prompts *prompts)
{
    const uint32_t first[PROMPTS] = {0};
    for (uint32_t p = 0; p < PROMPTS; p++) {
        uint32_t count[PROMPTS] = {0};
        count[p] = prompts->count[p];
        run_step(m, prompts, first, count);
    }
}

/* The short one token by token, the others in chunks of 9 and 31, all at once. */
static inline void run_batched(struct model *m, const struct prompts *prompts)
{
    static const uint32_t pace[PROMPTS] = {1, 9, 31};
    uint32_t done[PROMPTS] = {0}, left = 1;
    while (left > 0) {
        uint32_t count[PROMPTS];
        left = 0;
        for (uint32_t p = 0; p < PROMPTS; p++) {
            count[p] = prompts->count[p] - done[p];
            count[p] = count[p] > pace[p] ? pace[p] : count[p];
            left += count[p];
        }
        if (left > 0)
            run_step(m, prompts, done, count);
        for (uint32_t p = 0; p < PROMPTS; p++)
            done[p] += count[p];
    }
}

static inline void compare_prompts(const struct prompts *alone, const struct prompts *batched,
                                   const char *model, const char *backend)
{
    for (uint32_t p = 0; p < PROMPTS; p++) {
        size_t bytes = (size_t)alone->count[p] * VOCAB * sizeof(float);
        if (memcmp(alone->logits[p], batched->logits[p], bytes) != 0)
            fail_msg("%s %s: prompt %u has other bits in a batch", model, backend, p);
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

struct rank {
    struct model_settings settings;
    const char *adapter; /* folder; NULL: none */
    float *out;          /* what the test wants of it */
    uint32_t columns;    /* of out */
    int result;
};

/* run(&all[i]) on a thread each, all with the settings of the first. rows: of a step. */
static inline void run_ranks(struct rank *all, uint32_t rows, void *(*run)(void *rank))
{
    uint32_t ranks = all[0].settings.ranks;
    const struct group_limits limits = {
        .ranks = ranks, .step_bytes_max = 4096, .reduce_floats_max = (size_t)rows * 128};
    struct group *groups[TP_RANKS_MAX] = {NULL};
    pthread_t threads[TP_RANKS_MAX];
    int fd = -1;
    if (ranks > 1)
        assert_int_equal(group_create(&limits, &groups[0], &fd, NULL), 0);
    for (uint32_t i = 0; i < ranks; i++) {
        if (i > 0)
            assert_int_equal(group_attach(groups[0], i, &groups[i], NULL), 0);
        all[i].settings = all[0].settings;
        all[i].settings.group = groups[i];
        all[i].adapter = all[0].adapter;
    }
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &all[i]), 0);
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = ranks; i-- > 0 && ranks > 1;)
        group_free(groups[i]);
    if (fd >= 0)
        (void)close(fd);
}

#endif
