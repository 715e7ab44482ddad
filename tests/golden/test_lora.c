/* test_lora.c - tiny models with random adapters: logits equal those of the same model with
 * W + factor * B A merged, on one rank and split over 2 and 3; a row in a batch of the base model
 * and two adapters has the bits that it has alone. */
#include "tests/adapter_files.h"
#include "tests/golden/tiny_rank.h"

#define ROWS 48u

static const struct lora_limits limits = {.slots = 3, .rank = 24};

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
    {"cohere2", "cohere2", {12, 8, 16, 0, "F32", all_modules, NULL, NULL, 0}},
    {"deepseek_v2", "deepseek_v2", {11, 8, 8, 0, "F32", "[\"o_proj\"]", NULL, NULL, 0}},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void load_adapter(struct model *m, uint32_t slot, const char *folder)
{
    struct adapter *adapter = NULL;
    struct errmsg err = {""};
    if (adapter_open(folder, &m->config, &adapter, &err) < 0 ||
        lora_fill(m->lora, slot, adapter, &err) < 0)
        fail_msg("%s", err.text);
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
    const char *tiny = golden_tiny_root(shape->base);
    (void)snprintf(files->served, sizeof(files->served), "%s/%s", tiny, shape->served);
    (void)snprintf(path, sizeof(path), "%s/%s/model.safetensors", tiny, shape->base);
    stored_read(path, &base);
    adapter_write(files->adapter, &shape->spec, &base, &adapter);
    assert_true(adapter.count > 0);
    adapter_merge(&base, &shape->spec, &adapter);
    assert_int_equal(mkdir(files->merged, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", files->merged);
    stored_write(path, &base, "F32");
    (void)snprintf(path, sizeof(path), "%s/%s/config.json", tiny, shape->base);
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

/* out: logits, [ROWS, VOCAB]; NULL on all ranks but the first. */
static void *run_rank(void *user)
{
    const struct rank *rank = user;
    struct model m;
    struct text_step text;
    const uint32_t adapters[1] = {2};
    text_step_fill(&text, ROWS);
    text.step.out_row = text.position; /* all rows */
    text.step.outputs = ROWS;
    text.step.adapters = rank->adapter != NULL ? adapters : NULL;
    assert_int_equal(model_open(&m, &rank->settings), 0);
    if (rank->adapter != NULL)
        load_adapter(&m, 1, rank->adapter);
    assert_int_equal(decoder_forward(m.decoder, &text.step, rank->out), 0);
    model_close(&m);
    return NULL;
}

static void run_model(const char *path, const char *backend, const char *adapter, uint32_t ranks,
                      float *logits)
{
    struct rank all[TP_RANKS_MAX] = {{.adapter = adapter, .out = logits}};
    all[0].settings = (struct model_settings){
        .path = path, .backend = backend, .threads = 1, .ranks = ranks, .lora = &limits};
    run_ranks(all, ROWS, run_rank);
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
    run_model(files.served, "ref", NULL, 1, base);
    run_model(files.merged, "ref", NULL, 1, merged);
    double moved = distance(merged, base);
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        run_model(files.served, "ref", files.adapter, ranks, adapted);
        double off = distance(merged, adapted);
        print_message("%s ranks=%u: moved %.2g, off %.2g\n", shape->served, ranks, moved, off);
        assert_true(off <= 2e-4);
    }
    run_model(files.served, "cpu", files.adapter, 1, adapted);
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

/* Of one text, so that only the adapters differ: the base model, slot 0, slot 2. */
static void make_prompts(struct prompts *prompts)
{
    *prompts = (struct prompts){.count = {20, 33, 60}, .adapters = {0, 1, 3}};
    for (uint32_t p = 0; p < PROMPTS; p++) {
        prompts->ids[p] = mem_calloc(prompts->count[p], sizeof(uint32_t));
        prompts->logits[p] = mem_calloc((size_t)prompts->count[p] * VOCAB, sizeof(float));
        for (uint32_t i = 0; i < prompts->count[p]; i++)
            prompts->ids[p][i] = text_id(i);
    }
}

/* A prompt whole, only its last row's logits wanted, as a prefill that is sampled: same bits. */
static void check_last_row(struct model *m, const struct prompts *prompts, uint32_t p)
{
    struct text_step text;
    uint32_t last = prompts->count[p] - 1;
    float out[VOCAB];
    text_step_fill(&text, prompts->count[p]);
    text.step.out_row = &last;
    text.step.outputs = 1;
    text.step.adapters = prompts->adapters[p] > 0 ? &prompts->adapters[p] : NULL;
    assert_int_equal(decoder_forward(m->decoder, &text.step, out), 0);
    assert_memory_equal(out, prompts->logits[p] + (size_t)last * VOCAB, sizeof(out));
}

static void compare_batch(const struct shape *shape, const char *backend)
{
    struct files files;
    struct model m;
    struct prompts alone, batched;
    struct stored_file base, adapter;
    char second[160], path[640];
    struct adapter_spec other = shape->spec;
    make_files(shape, &files);
    (void)snprintf(second, sizeof(second), "%s/second", files.root);
    (void)snprintf(path, sizeof(path), "%s/%s/model.safetensors", golden_tiny_root(shape->base),
                   shape->base);
    stored_read(path, &base);
    other.seed += 100;
    adapter_write(second, &other, &base, &adapter);
    make_prompts(&alone);
    make_prompts(&batched);
    for (unsigned threads = 1; threads <= 2; threads++) {
        const struct model_settings settings = {.path = files.served,
                                                .backend = backend,
                                                .threads = threads,
                                                .ranks = 1,
                                                .lora = &limits};
        assert_int_equal(model_open(&m, &settings), 0);
        load_adapter(&m, 0, files.adapter);
        load_adapter(&m, 2, second);
        if (threads == 1)
            run_alone(&m, &alone);
        else
            run_batched(&m, &batched);
        for (uint32_t p = 0; p < PROMPTS; p++)
            check_last_row(&m, &alone, p);
        model_close(&m);
    }
    compare_prompts(&alone, &batched, shape->served, backend);
    size_t shared = (size_t)alone.count[0] * VOCAB * sizeof(float); /* rows that all have */
    for (uint32_t p = 0; p < PROMPTS; p++)
        assert_true(memcmp(alone.logits[p], alone.logits[(p + 1) % PROMPTS], shared) != 0);
    free_prompts(&alone);
    free_prompts(&batched);
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
