/* test_tiny_bits.c - every tiny model: a row's logits have the same bits alone and in a batch of
 * prompts and continuations (promise 2), and all ranks hold the same bits after every layer. */
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

static const char *const folders[] = {"llama",
                                      "llama_rope_llama3",
                                      "llama_tied_9_3",
                                      "llama_bias",
                                      "mistral",
                                      "qwen2",
                                      "qwen2_yarn",
                                      "qwen3",
                                      "gemma2",
                                      "gemma3",
                                      "phi3",
                                      "mixtral",
                                      "qwen3_moe",
                                      "olmo2",
                                      "granite",
                                      "deepseek_v2",
                                      "deepseek_v3",
                                      "smollm3",
                                      "qwen2_moe",
                                      "phi4_mini",
                                      "qwen3-bf16-shards",
                                      "llama-gguf-q8_0/model.gguf"};
#define FOLDERS (sizeof(folders) / sizeof(folders[0]))

#define WINDOW_BLOCKS 30u

/* One rank with everything it needs. */
struct model {
    struct model_source *source;
    struct model_config config;
    struct shard shard;
    struct backend *backend;
    struct weights *weights;
    struct comm *comm;
    struct decoder *decoder;
};

static int model_open_as(struct model *m, const char *folder, const char *backend, unsigned threads,
                         struct group *group, uint32_t ranks, bool whole_windows)
{
    struct errmsg err = {""};
    char path[512];
    const struct backend_settings settings = {.name = backend, .threads = threads};
    (void)snprintf(path, sizeof(path), "%s/%s", golden_tiny_root(folder), folder);
    memset(m, 0, sizeof(*m));
    int r = model_source_open(path, &m->source, &err);
    if (r == 0)
        r = model_config_read(m->source, &m->config, &err);
    if (r == 0)
        r = shard_compute(&m->config, group == NULL ? 0 : group_rank(group), ranks, &m->shard,
                          &err);
    if (r == 0)
        r = backend_open(&settings, &m->backend, &err);
    if (r == 0) {
        const struct weights_slice slice = shard_slice(&m->shard);
        r = weights_load(m->source, &m->config, &slice, m->backend, &m->weights, &err);
    }
    if (r < 0) {
        print_message("%s: %s\n", folder, err.text);
        return r;
    }
    m->comm = group == NULL ? comm_single_new() : comm_shm_new(group);
    m->comm->deadline_ms = 60000;
    const struct decoder_settings decoder = {.config = &m->config,
                                             .shard = &m->shard,
                                             .weights = m->weights,
                                             .backend = m->backend,
                                             .comm = m->comm,
                                             .rows_max = ROWS_MAX,
                                             .outputs_max = ROWS_MAX,
                                             .positions_max = ROWS_MAX,
                                             .kv_blocks = BLOCKS,
                                             .window_blocks = WINDOW_BLOCKS,
                                             .groups = layer_groups_of(&m->config, whole_windows)};
    return decoder_new(&decoder, &m->decoder, &err);
}

static int model_open(struct model *m, const char *folder, const char *backend, unsigned threads,
                      struct group *group, uint32_t ranks)
{
    return model_open_as(m, folder, backend, threads, group, ranks, true);
}

static void model_close(struct model *m)
{
    decoder_free(m->decoder);
    comm_free(m->comm);
    weights_free(m->weights, &m->config, m->backend);
    backend_close(m->backend);
    model_source_close(m->source);
}

/* --- batches --------------------------------------------------------------------------------- */

/* The golden prompts are of 7, 33 and 130 ids. */
struct prompts {
    uint32_t *ids[PROMPTS], count[PROMPTS];
    float *logits[PROMPTS]; /* [count, VOCAB] */
};

/* Window blocks of prompt p from the first one on that its rows see; no block before. They go round
 * in a third of WINDOW_BLOCKS: what the window has passed is written over. */
static void fill_windows(const struct model *m, uint32_t p, uint32_t first, uint32_t count,
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
static void run_step(struct model *m, const struct prompts *prompts, const uint32_t *first,
                     const uint32_t *count)
{
    uint32_t ids[ROWS_MAX], position[ROWS_MAX], out_row[ROWS_MAX], row_first[PROMPTS + 1] = {0};
    uint32_t table[PROMPTS * STRIDE], window_table[PROMPTS * STRIDE], sequences = 0, rows = 0,
                                                                      which[PROMPTS];
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
                              .outputs = rows};
    assert_int_equal(decoder_forward(m->decoder, &step, logits), 0);
    for (uint32_t s = 0; s < sequences; s++)
        memcpy(prompts->logits[which[s]] + (size_t)first[which[s]] * VOCAB,
               logits + (size_t)row_first[s] * VOCAB,
               (size_t)count[which[s]] * VOCAB * sizeof(float));
    mem_free(logits);
}

static void run_alone(struct model *m, const struct prompts *prompts)
{
    const uint32_t first[PROMPTS] = {0};
    for (uint32_t p = 0; p < PROMPTS; p++) {
        uint32_t count[PROMPTS] = {0};
        count[p] = prompts->count[p];
        run_step(m, prompts, first, count);
    }
}

/* The short one token by token, the others in chunks of 9 and 31, all at once. */
static void run_batched(struct model *m, const struct prompts *prompts)
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

static void load_prompts(struct prompts *prompts)
{
    json_t *golden = golden_read_json(SHARED_DIR "/golden/tiny/llama/golden.json");
    const json_t *list = json_object_get(golden, "prompts");
    for (uint32_t p = 0; p < PROMPTS; p++) {
        prompts->ids[p] =
            golden_ids(json_object_get(json_array_get(list, p), "ids"), &prompts->count[p]);
        assert_true(prompts->count[p] <= STRIDE * KV_BLOCK_TOKENS);
        prompts->logits[p] = mem_calloc((size_t)prompts->count[p] * VOCAB, sizeof(float));
    }
    json_decref(golden);
}

static void free_prompts(struct prompts *prompts)
{
    for (uint32_t p = 0; p < PROMPTS; p++) {
        mem_free(prompts->ids[p]);
        mem_free(prompts->logits[p]);
    }
}

static void compare_batch(const char *folder, const char *backend, bool whole_windows)
{
    struct prompts alone, batched;
    struct model m;
    load_prompts(&alone);
    load_prompts(&batched);
    assert_int_equal(model_open(&m, folder, backend, 1, NULL, 1), 0);
    run_alone(&m, &alone);
    model_close(&m);
    assert_int_equal(model_open_as(&m, folder, backend, 2, NULL, 1, whole_windows), 0);
    assert_int_equal(m.decoder->window_kv == NULL, whole_windows);
    run_batched(&m, &batched);
    model_close(&m);
    for (uint32_t p = 0; p < PROMPTS; p++) {
        size_t bytes = (size_t)alone.count[p] * VOCAB * sizeof(float);
        if (memcmp(alone.logits[p], batched.logits[p], bytes) != 0)
            fail_msg("%s %s: prompt %u has other bits in a batch", folder, backend, p);
    }
    free_prompts(&alone);
    free_prompts(&batched);
}

static void test_logits_when_batched_have_the_bits_of_the_prompt_alone(void **state)
{
    for (size_t f = 0; f < FOLDERS; f++) {
        compare_batch(folders[f], "ref", true);
        compare_batch(folders[f], "cpu", true);
    }
}

/* Against masks over whole KV: with blocks of the window alone, written over behind it. */
static void test_logits_when_windows_are_given_back_have_the_same_bits(void **state)
{
    static const char *const sliding[] = {"mistral", "gemma2", "gemma3"};
    for (size_t f = 0; f < 3; f++) {
        compare_batch(sliding[f], "ref", false);
        compare_batch(sliding[f], "cpu", false);
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

struct rank {
    struct group *group;
    const char *folder, *backend;
    uint32_t ranks, columns;
    int result;
    float *x; /* after the last layer: [ROWS, columns] */
};

#define ROWS 40u

static void *run_rank(void *user)
{
    struct rank *rank = user;
    struct model m;
    uint32_t ids[ROWS], position[ROWS], table[STRIDE];
    const uint32_t row_first[2] = {0, ROWS};
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = (i * 37 + 11) % VOCAB;
        position[i] = i;
    }
    for (uint32_t k = 0; k < STRIDE; k++)
        table[k] = BLOCKS - 1 - 2 * k;
    const struct step step = {.rows = ROWS,
                              .sequences = 1,
                              .ids = ids,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .table_stride = STRIDE};
    rank->result = model_open(&m, rank->folder, rank->backend, 1, rank->group, rank->ranks);
    if (rank->result < 0) {
        group_abort(rank->group, "a rank could not open the model");
        return NULL;
    }
    rank->result = decoder_forward(m.decoder, &step, NULL);
    rank->columns = m.config.hidden;
    rank->x = mem_calloc((size_t)ROWS * rank->columns, sizeof(float));
    memcpy(rank->x, m.decoder->x, (size_t)ROWS * rank->columns * sizeof(float));
    model_close(&m);
    return NULL;
}

static void compare_ranks(const char *folder, const char *backend, uint32_t ranks)
{
    const struct group_limits limits = {
        .ranks = ranks, .step_bytes_max = 4096, .reduce_floats_max = (size_t)ROWS * 128};
    struct rank all[TP_RANKS_MAX];
    pthread_t threads[TP_RANKS_MAX];
    int fd = -1;
    memset(all, 0, sizeof(all));
    assert_int_equal(group_create(&limits, &all[0].group, &fd, NULL), 0);
    for (uint32_t i = 0; i < ranks; i++) {
        if (i > 0)
            assert_int_equal(group_attach(all[0].group, i, &all[i].group, NULL), 0);
        all[i].folder = folder;
        all[i].backend = backend;
        all[i].ranks = ranks;
    }
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &all[i]), 0);
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < ranks; i++) {
        assert_int_equal(all[i].result, 0);
        size_t bytes = (size_t)ROWS * all[0].columns * sizeof(float);
        if (memcmp(all[i].x, all[0].x, bytes) != 0)
            fail_msg("%s %s: rank %u of %u has other bits", folder, backend, i, ranks);
    }
    for (uint32_t i = ranks; i-- > 0;) {
        mem_free(all[i].x);
        group_free(all[i].group);
    }
    (void)close(fd);
}

static void test_ranks_after_all_layers_hold_the_same_bits(void **state)
{
    static const uint32_t ranks[] = {2, 3, 8};
    for (size_t f = 0; f < FOLDERS; f++) {
        for (size_t i = 0; i < 3; i++) {
            compare_ranks(folders[f], "ref", ranks[i]);
            compare_ranks(folders[f], "cpu", ranks[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_when_batched_have_the_bits_of_the_prompt_alone),
        cmocka_unit_test(test_logits_when_windows_are_given_back_have_the_same_bits),
        cmocka_unit_test(test_ranks_after_all_layers_hold_the_same_bits),
    };
    json_t *golden = golden_read_json(SHARED_DIR "/golden/tiny/llama/golden.json");
    if (golden == NULL) {
        (void)fprintf(stderr, "skipped: %s/golden is not there\n", SHARED_DIR);
        return GOLDEN_SKIPPED;
    }
    json_decref(golden);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
