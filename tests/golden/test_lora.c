/* test_lora.c - tiny models with random adapters: logits equal those of the same model with
 * W + factor * B A merged, on one rank and split over 2 and 3; a row in a batch of the base model
 * and two adapters has the bits that it has alone. */
#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/adapter_files.h"
#include "tests/golden/golden.h"
#include "worker/load/model_source.h"
#include "worker/lora/lora.h"
#include "worker/model/decoder.h"

#define VOCAB 320u
#define ROWS_MAX 160u
#define BLOCKS 40u
#define STRIDE 10u
#define PROMPTS 3u
#define ROWS 48u
#define SLOTS 3u
#define RANK_MAX 24u

static const char all_modules[] = "[\"q_proj\",\"k_proj\",\"v_proj\",\"o_proj\",\"gate_proj\","
                                  "\"up_proj\",\"down_proj\",\"qkv_proj\",\"gate_up_proj\"]";

struct shape {
    const char *base;   /* folder whose matrices are adapted and merged */
    const char *served; /* what the adapter is served on */
    struct adapter_spec spec;
};

static const struct shape shapes[] = {
    {"llama", "llama", {1, 8, 16, 0, "F32", all_modules, NULL, NULL, 0}},
    {"llama", "llama-gguf-f32/model.gguf", {2, 4, 8, 1, "BF16", all_modules, NULL, NULL, 0}},
    {"llama_tied_9_3", "llama_tied_9_3", {3, 3, 8, 0, "F32", "\"all-linear\"", NULL, NULL, 0}},
    {"qwen2", "qwen2", {4, 16, 16, 0, "F16", "[\"q_proj\",\"down_proj\"]", NULL, NULL, 0}},
    {"qwen3", "qwen3", {5, 8, 16, 1, "F32", all_modules, NULL, "layers.1.self_attn.v_proj", 20}},
    {"gemma2", "gemma2", {6, 8, 8, 0, "F32", "\".*_proj\"", NULL, NULL, 0}},
    {"phi3", "phi3", {7, 6, 12, 0, "F32", all_modules, NULL, "gate_up_proj", 17}},
    {"olmo2", "olmo2", {8, 8, 16, 0, "F32", all_modules, NULL, NULL, 0}},
    {"granite", "granite", {9, 8, 16, 0, "F32", all_modules, NULL, NULL, 0}},
    {"mixtral", "mixtral", {10, 8, 16, 0, "F32", all_modules, "self_attn", NULL, 0}},
    {"deepseek_v2", "deepseek_v2", {11, 8, 8, 0, "F32", "[\"o_proj\"]", NULL, NULL, 0}},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* --- one rank -------------------------------------------------------------------------------- */

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

static void must(int r, const struct errmsg *err)
{
    if (r < 0)
        fail_msg("%s", err->text);
}

static void model_open(struct model *m, const char *path, const char *backend, unsigned threads,
                       struct group *group, uint32_t ranks)
{
    const struct backend_settings settings = {.name = backend, .threads = threads};
    const struct lora_limits limits = {SLOTS, RANK_MAX};
    struct errmsg err = {""};
    memset(m, 0, sizeof(*m));
    must(model_source_open(path, &m->source, &err), &err);
    must(model_config_read(m->source, &m->config, &err), &err);
    must(shard_compute(&m->config, group == NULL ? 0 : group_rank(group), ranks, &m->shard, &err),
         &err);
    must(backend_open(&settings, &m->backend, &err), &err);
    const struct weights_slice slice = shard_slice(&m->shard);
    must(weights_load(m->source, &m->config, &slice, m->backend, &m->weights, &err), &err);
    must(lora_new(&m->config, &m->shard, &limits, NULL, &m->lora, &err), &err);
    m->comm = group == NULL ? comm_single_new() : comm_shm_new(group);
    m->comm->deadline_ms = 60000;
    const struct decoder_settings decoder = {.config = &m->config,
                                             .shard = &m->shard,
                                             .weights = m->weights,
                                             .backend = m->backend,
                                             .comm = m->comm,
                                             .lora = m->lora,
                                             .rows_max = ROWS_MAX,
                                             .outputs_max = ROWS_MAX,
                                             .positions_max = ROWS_MAX,
                                             .kv_blocks = BLOCKS};
    must(decoder_new(&decoder, &m->decoder, &err), &err);
}

static void model_close(struct model *m)
{
    decoder_free(m->decoder);
    lora_free(m->lora);
    comm_free(m->comm);
    weights_free(m->weights, &m->config, m->backend);
    backend_close(m->backend);
    model_source_close(m->source);
}

static void load_adapter(struct model *m, uint32_t slot, const char *folder)
{
    struct adapter *adapter = NULL;
    struct errmsg err = {""};
    must(adapter_open(folder, &m->config, &adapter, &err), &err);
    must(lora_fill(m->lora, slot, adapter, &err), &err);
    adapter_close(adapter);
}

/* --- against merged weights ------------------------------------------------------------------- */

/* Folders of one shape under a folder of our own. */
struct files {
    char root[64], adapter[128], merged[128], served[512];
};

static void make_files(const struct shape *shape, struct files *files)
{
    struct stored_file base, adapter;
    char path[640], link[640];
    (void)snprintf(files->root, sizeof(files->root), "/tmp/refrain-lora-XXXXXX");
    assert_non_null(mkdtemp(files->root));
    (void)snprintf(files->adapter, sizeof(files->adapter), "%s/adapter", files->root);
    (void)snprintf(files->merged, sizeof(files->merged), "%s/merged", files->root);
    (void)snprintf(files->served, sizeof(files->served), "%s/golden/tiny/%s", SHARED_DIR,
                   shape->served);
    (void)snprintf(path, sizeof(path), "%s/golden/tiny/%s/model.safetensors", SHARED_DIR,
                   shape->base);
    stored_read(path, &base);
    adapter_write(files->adapter, &shape->spec, &base, &adapter);
    assert_true(adapter.count > 0);
    adapter_merge(&base, &shape->spec, &adapter);
    assert_int_equal(mkdir(files->merged, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", files->merged);
    stored_write(path, &base, "F32");
    (void)snprintf(path, sizeof(path), "%s/golden/tiny/%s/config.json", SHARED_DIR, shape->base);
    (void)snprintf(link, sizeof(link), "%s/config.json", files->merged);
    assert_int_equal(symlink(path, link), 0);
    stored_free(&base);
    stored_free(&adapter);
}

static void remove_files(const struct files *files)
{
    char path[640];
    adapter_remove(files->adapter);
    (void)snprintf(path, sizeof(path), "%s/config.json", files->merged);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", files->merged);
    (void)unlink(path);
    (void)rmdir(files->merged);
    (void)rmdir(files->root);
}

struct rank {
    struct group *group; /* NULL: the only one */
    const char *path, *backend, *adapter;
    uint32_t ranks;
    float *logits; /* [ROWS, VOCAB], of rank 0 */
};

static void *run_rank(void *user)
{
    struct rank *rank = user;
    struct model m;
    uint32_t ids[ROWS], position[ROWS], out_row[ROWS], table[STRIDE];
    const uint32_t row_first[2] = {0, ROWS}, adapters[1] = {2};
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = (i * 37 + 11) % VOCAB;
        position[i] = out_row[i] = i;
    }
    for (uint32_t k = 0; k < STRIDE; k++)
        table[k] = BLOCKS - 1 - 2 * k;
    const struct step step = {.rows = ROWS,
                              .sequences = 1,
                              .ids = ids,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .table_stride = STRIDE,
                              .out_row = out_row,
                              .outputs = ROWS,
                              .adapters = rank->adapter != NULL ? adapters : NULL};
    model_open(&m, rank->path, rank->backend, 1, rank->group, rank->ranks);
    if (rank->adapter != NULL)
        load_adapter(&m, 1, rank->adapter);
    assert_int_equal(decoder_forward(m.decoder, &step, rank->logits), 0);
    model_close(&m);
    return NULL;
}

static void run_ranks(const char *path, const char *backend, const char *adapter, uint32_t ranks,
                      float *logits)
{
    const struct group_limits limits = {
        .ranks = ranks, .step_bytes_max = 4096, .reduce_floats_max = (size_t)ROWS * 128};
    struct rank all[TP_RANKS_MAX];
    pthread_t threads[TP_RANKS_MAX];
    int fd = -1;
    memset(all, 0, sizeof(all));
    if (ranks > 1)
        assert_int_equal(group_create(&limits, &all[0].group, &fd, NULL), 0);
    for (uint32_t i = 0; i < ranks; i++) {
        if (i > 0)
            assert_int_equal(group_attach(all[0].group, i, &all[i].group, NULL), 0);
        all[i] = (struct rank){all[i].group, path, backend, adapter, ranks, i == 0 ? logits : NULL};
    }
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &all[i]), 0);
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = ranks; i-- > 0 && ranks > 1;)
        group_free(all[i].group);
    if (fd >= 0)
        (void)close(fd);
}

/* Largest difference relative to the largest logit of the row. */
static double distance(const float *a, const float *b)
{
    double worst = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        double largest = 0, difference = 0;
        for (uint32_t k = i * VOCAB; k < (i + 1) * VOCAB; k++) {
            largest = fmax(largest, fabs((double)a[k]));
            difference = fmax(difference, fabs((double)a[k] - (double)b[k]));
        }
        worst = fmax(worst, difference / largest);
    }
    return worst;
}

static void compare_shape(const struct shape *shape)
{
    const size_t bytes = (size_t)ROWS * VOCAB * sizeof(float);
    float *merged = mem_zalloc(bytes), *adapted = mem_zalloc(bytes), *base = mem_zalloc(bytes);
    struct files files;
    make_files(shape, &files);
    run_ranks(files.served, "ref", NULL, 1, base);
    run_ranks(files.merged, "ref", NULL, 1, merged);
    double moved = distance(merged, base);
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        run_ranks(files.served, "ref", files.adapter, ranks, adapted);
        double off = distance(merged, adapted);
        print_message("%s ranks=%u: moved %.2g, off %.2g\n", shape->served, ranks, moved, off);
        assert_true(off <= 2e-4);
    }
    run_ranks(files.served, "cpu", files.adapter, 1, adapted);
    double off = distance(merged, adapted);
    print_message("%s cpu: off %.2g\n", shape->served, off);
    assert_true(moved > 0.05); /* else this test says nothing */
    assert_true(off < 0.05 && off < moved / 3);
    remove_files(&files);
    mem_free(merged);
    mem_free(adapted);
    mem_free(base);
}

static void test_logits_with_an_adapter_equal_those_of_merged_weights(void **state)
{
    for (size_t i = 0; i < SHAPES; i++)
        compare_shape(&shapes[i]);
}

/* --- mixed batches ---------------------------------------------------------------------------- */

static const uint32_t prompt_rows[PROMPTS] = {20, 33, 60};
static const uint32_t prompt_adapters[PROMPTS] = {0, 1, 3}; /* the base model, slot 0, slot 2 */

/* Rows [first, first + count) of some prompts in one step. */
static void run_step(struct model *m, float *const logits[PROMPTS], const uint32_t *first,
                     const uint32_t *count)
{
    uint32_t ids[ROWS_MAX], position[ROWS_MAX], out_row[ROWS_MAX], row_first[PROMPTS + 1] = {0};
    uint32_t table[PROMPTS * STRIDE], adapters[PROMPTS], which[PROMPTS], sequences = 0, rows = 0;
    float *out = mem_calloc((size_t)ROWS_MAX * VOCAB, sizeof(*out));
    for (uint32_t p = 0; p < PROMPTS; p++) {
        if (count[p] == 0)
            continue;
        for (uint32_t k = 0; k < STRIDE; k++)
            table[sequences * STRIDE + k] = BLOCKS - 1 - (k * PROMPTS + p);
        for (uint32_t i = first[p]; i < first[p] + count[p]; i++, rows++) {
            ids[rows] = (i * 37 + 11) % VOCAB; /* all prompts alike: only adapters differ */
            position[rows] = i;
            out_row[rows] = rows;
        }
        adapters[sequences] = prompt_adapters[p];
        which[sequences++] = p;
        row_first[sequences] = rows;
    }
    const struct step step = {.rows = rows,
                              .sequences = sequences,
                              .ids = ids,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .table_stride = STRIDE,
                              .out_row = out_row,
                              .outputs = rows,
                              .adapters = adapters};
    assert_int_equal(decoder_forward(m->decoder, &step, out), 0);
    for (uint32_t s = 0; s < sequences; s++)
        memcpy(logits[which[s]] + (size_t)first[which[s]] * VOCAB,
               out + (size_t)row_first[s] * VOCAB, (size_t)count[which[s]] * VOCAB * sizeof(float));
    mem_free(out);
}

/* A prompt whole, only its last row's logits wanted, as a prefill that is sampled: same bits. */
static void check_last_row(struct model *m, uint32_t p, const float *logits)
{
    uint32_t ids[ROWS_MAX], position[ROWS_MAX], table[STRIDE], rows = prompt_rows[p];
    const uint32_t row_first[2] = {0, rows}, out_row[1] = {rows - 1};
    float out[VOCAB];
    for (uint32_t k = 0; k < STRIDE; k++)
        table[k] = k;
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = (i * 37 + 11) % VOCAB;
        position[i] = i;
    }
    const struct step step = {.rows = rows,
                              .sequences = 1,
                              .ids = ids,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .table_stride = STRIDE,
                              .out_row = out_row,
                              .outputs = 1,
                              .adapters = prompt_adapters[p] > 0 ? &prompt_adapters[p] : NULL};
    assert_int_equal(decoder_forward(m->decoder, &step, out), 0);
    assert_memory_equal(out, logits + (size_t)(rows - 1) * VOCAB, sizeof(out));
}

static void run_alone(struct model *m, float *const logits[PROMPTS])
{
    const uint32_t first[PROMPTS] = {0};
    for (uint32_t p = 0; p < PROMPTS; p++) {
        uint32_t count[PROMPTS] = {0};
        count[p] = prompt_rows[p];
        run_step(m, logits, first, count);
    }
}

static void run_batched(struct model *m, float *const logits[PROMPTS])
{
    static const uint32_t pace[PROMPTS] = {1, 9, 31};
    uint32_t done[PROMPTS] = {0}, left = 1;
    while (left > 0) {
        uint32_t count[PROMPTS];
        left = 0;
        for (uint32_t p = 0; p < PROMPTS; p++) {
            count[p] = prompt_rows[p] - done[p];
            count[p] = count[p] > pace[p] ? pace[p] : count[p];
            left += count[p];
        }
        if (left > 0)
            run_step(m, logits, done, count);
        for (uint32_t p = 0; p < PROMPTS; p++)
            done[p] += count[p];
    }
}

static void compare_batch(const struct shape *shape, const char *backend)
{
    struct files files;
    struct model m;
    float *alone[PROMPTS], *batched[PROMPTS];
    struct stored_file base, adapter;
    char second[160], path[640];
    struct adapter_spec other = shape->spec;
    make_files(shape, &files);
    (void)snprintf(second, sizeof(second), "%s/second", files.root);
    (void)snprintf(path, sizeof(path), "%s/golden/tiny/%s/model.safetensors", SHARED_DIR,
                   shape->base);
    stored_read(path, &base);
    other.seed += 100;
    adapter_write(second, &other, &base, &adapter);
    for (uint32_t p = 0; p < PROMPTS; p++) {
        alone[p] = mem_calloc((size_t)prompt_rows[p] * VOCAB, sizeof(float));
        batched[p] = mem_calloc((size_t)prompt_rows[p] * VOCAB, sizeof(float));
    }
    for (unsigned threads = 1; threads <= 2; threads++) {
        model_open(&m, files.served, backend, threads, NULL, 1);
        load_adapter(&m, 0, files.adapter);
        load_adapter(&m, 2, second);
        if (threads == 1)
            run_alone(&m, alone);
        else
            run_batched(&m, batched);
        for (uint32_t p = 0; p < PROMPTS; p++)
            check_last_row(&m, p, alone[p]);
        model_close(&m);
    }
    for (uint32_t p = 0; p < PROMPTS; p++) {
        size_t bytes = (size_t)prompt_rows[p] * VOCAB * sizeof(float);
        if (memcmp(alone[p], batched[p], bytes) != 0)
            fail_msg("%s %s: prompt %u has other bits in a batch", shape->served, backend, p);
        assert_true(memcmp(alone[p], alone[(p + 1) % PROMPTS], 20 * VOCAB * sizeof(float)) != 0);
    }
    for (uint32_t p = 0; p < PROMPTS; p++) {
        mem_free(alone[p]);
        mem_free(batched[p]);
    }
    stored_free(&base);
    stored_free(&adapter);
    adapter_remove(second);
    remove_files(&files);
}

static void
test_rows_of_adapters_and_the_base_in_one_batch_have_the_bits_of_each_alone(void **state)
{
    for (size_t i = 0; i < SHAPES; i++) {
        compare_batch(&shapes[i], "ref");
        compare_batch(&shapes[i], "cpu");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_with_an_adapter_equal_those_of_merged_weights),
        cmocka_unit_test(
            test_rows_of_adapters_and_the_base_in_one_batch_have_the_bits_of_each_alone),
    };
    json_t *golden = golden_read_json(SHARED_DIR "/golden/tiny/llama/golden.json");
    if (golden == NULL) {
        (void)fprintf(stderr, "skipped: %s/golden is not there\n", SHARED_DIR);
        return GOLDEN_SKIPPED;
    }
    json_decref(golden);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
