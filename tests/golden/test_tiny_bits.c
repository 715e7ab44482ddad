/* test_tiny_bits.c - every tiny model: a row's logits have the same bits alone and in a batch of
 * prompts and continuations (promise 2), and all ranks hold the same bits after every layer. An
 * argument names the family of the cpu backend, which alone is run then. */
#include "tests/golden/tiny_rank.h"

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
                                      "cohere",
                                      "cohere2",
                                      "qwen3-bf16-shards",
                                      "llama-gguf-q8_0/model.gguf"};
#define FOLDERS (sizeof(folders) / sizeof(folders[0]))

static const char *family; /* NULL: the best, and the reference beside it */

static struct model_settings settings_of(char ret_path[512], const char *folder,
                                         const char *backend)
{
    (void)snprintf(ret_path, 512, "%s/%s", golden_tiny_root(folder), folder);
    return (struct model_settings){
        .path = ret_path, .backend = backend, .isa = family, .threads = 1, .ranks = 1};
}

/* --- batches --------------------------------------------------------------------------------- */

/* The golden prompts are of 7, 33 and 130 ids. */
static void load_prompts(struct prompts *prompts)
{
    json_t *golden = golden_read_json(SHARED_DIR "/golden/tiny/llama/golden.json");
    const json_t *list = json_object_get(golden, "prompts");
    memset(prompts, 0, sizeof(*prompts));
    for (uint32_t p = 0; p < PROMPTS; p++) {
        prompts->ids[p] =
            golden_ids(json_object_get(json_array_get(list, p), "ids"), &prompts->count[p]);
        assert_true(prompts->count[p] <= STRIDE * KV_BLOCK_TOKENS);
        prompts->logits[p] = mem_calloc((size_t)prompts->count[p] * VOCAB, sizeof(float));
    }
    json_decref(golden);
}

static void compare_batch(const char *folder, const char *backend, bool own_windows)
{
    struct prompts alone, batched;
    struct model m;
    char path[512];
    struct model_settings settings = settings_of(path, folder, backend);
    load_prompts(&alone);
    load_prompts(&batched);
    assert_int_equal(model_open(&m, &settings), 0);
    run_alone(&m, &alone);
    model_close(&m);
    settings.threads = 2;
    settings.own_windows = own_windows;
    assert_int_equal(model_open(&m, &settings), 0);
    assert_int_equal(m.decoder->window_kv != NULL, own_windows);
    run_batched(&m, &batched);
    model_close(&m);
    compare_prompts(&alone, &batched, folder, backend);
    free_prompts(&alone);
    free_prompts(&batched);
}

static void test_logits_when_batched_have_the_bits_of_the_prompt_alone(void **state)
{
    for (size_t f = 0; f < FOLDERS; f++) {
        if (family == NULL)
            compare_batch(folders[f], "ref", false);
        compare_batch(folders[f], "cpu", false);
    }
}

/* Against masks over whole KV: with blocks of the window alone, written over behind it. */
static void test_logits_when_windows_are_given_back_have_the_same_bits(void **state)
{
    static const char *const sliding[] = {"mistral", "gemma2", "gemma3", "cohere2"};
    for (size_t f = 0; f < 4; f++) {
        if (family == NULL)
            compare_batch(sliding[f], "ref", true);
        compare_batch(sliding[f], "cpu", true);
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

#define ROWS 40u

/* out: x after the last layer, [ROWS, columns]. */
static void *run_rank(void *user)
{
    struct rank *rank = user;
    struct model m;
    struct text_step text;
    text_step_fill(&text, ROWS);
    rank->result = model_open(&m, &rank->settings);
    if (rank->result < 0) {
        group_abort(rank->settings.group, "a rank could not open the model");
        return NULL;
    }
    rank->result = decoder_forward(m.decoder, &text.step, NULL);
    rank->columns = m.config.hidden;
    rank->out = mem_calloc((size_t)ROWS * rank->columns, sizeof(float));
    memcpy(rank->out, m.decoder->x, (size_t)ROWS * rank->columns * sizeof(float));
    model_close(&m);
    return NULL;
}

static void compare_ranks(const char *folder, const char *backend, uint32_t ranks)
{
    struct rank all[TP_RANKS_MAX] = {0};
    char path[512];
    all[0].settings = settings_of(path, folder, backend);
    all[0].settings.ranks = ranks;
    run_ranks(all, ROWS, run_rank);
    for (uint32_t i = 0; i < ranks; i++) {
        assert_int_equal(all[i].result, 0);
        size_t bytes = (size_t)ROWS * all[0].columns * sizeof(float);
        if (memcmp(all[i].out, all[0].out, bytes) != 0)
            fail_msg("%s %s: rank %u of %u has other bits", folder, backend, i, ranks);
    }
    for (uint32_t i = 0; i < ranks; i++)
        mem_free(all[i].out);
}

static void test_ranks_after_all_layers_hold_the_same_bits(void **state)
{
    static const uint32_t ranks[] = {2, 3, 8};
    for (size_t f = 0; f < FOLDERS; f++) {
        for (size_t i = 0; i < 3; i++) {
            if (family == NULL)
                compare_ranks(folders[f], "ref", ranks[i]);
            compare_ranks(folders[f], "cpu", ranks[i]);
        }
    }
}

int main(int argc, char **argv)
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
    family = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
