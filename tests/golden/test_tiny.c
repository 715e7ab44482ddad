/* test_tiny.c - random models of 18 architectures against transformers (five: numpy) in float32:
 * both spellings of config.json, shards, GGUF; every backend, whole and split over 2, 3 and 8
 * ranks, prompts whole and in chunks. An argument names the family of the cpu backend, which alone
 * is run then. */
#include <cmocka.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "tests/golden/tiny.h"

enum kind { FOLDER = 0, GGUF, GGUF_INT8 };

/* What the cpu backend may differ by: it keeps K and V in bf16, and quantises activations to int8
 * where weights are quantised; with tiles (AMX) it multiplies bf16 by bf16. A logit of a
 * router that moves a little may choose other experts; DeepSeek-V3 chooses groups of them. */
struct shape {
    const char *folder;
    enum kind kind;
    double cpu_logit, split_logit; /* split: of ranks against one, relative */
    unsigned cpu_strays;           /* positions of a prompt that may be further off */
};

static const struct shape shapes[] = {
    {"llama", FOLDER, 0.06, 5e-3, 0},
    {"llama_rope_llama3", FOLDER, 0.06, 5e-3, 0},
    {"llama_tied_9_3", FOLDER, 0.12, 5e-3, 0},
    {"llama_bias", FOLDER, 0.06, 5e-3, 0},
    {"mistral", FOLDER, 0.06, 5e-3, 0},
    {"qwen2", FOLDER, 0.08, 5e-3, 0},
    {"qwen2_yarn", FOLDER, 0.16, 5e-3, 0},
    {"qwen3", FOLDER, 0.08, 5e-3, 0},
    {"gemma2", FOLDER, 0.06, 5e-3, 0},
    {"gemma3", FOLDER, 0.06, 5e-3, 0},
    {"phi3", FOLDER, 0.06, 5e-3, 0},
    {"mixtral", FOLDER, 0.08, 5e-3, 2},
    {"qwen3_moe", FOLDER, 0.08, 5e-3, 0},
    {"olmo2", FOLDER, 0.08, 5e-3, 0},
    {"granite", FOLDER, 0.06, 5e-3, 0},
    {"deepseek_v2", FOLDER, 0.06, 5e-3, 0},
    {"deepseek_v3", FOLDER, 0.5, 0.5, 6},
    {"smollm3", FOLDER, 0.12, 5e-3, 0},
    {"qwen2_moe", FOLDER, 0.12, 5e-3, 4},
    {"phi4_mini", FOLDER, 0.12, 5e-3, 0},
    {"cohere", FOLDER, 0.06, 5e-3, 0},
    {"cohere2", FOLDER, 0.06, 5e-3, 0},
    {"llama-bf16-shards", FOLDER, 0.2, 2e-2, 0},
    {"qwen3-bf16-shards", FOLDER, 0.2, 2e-2, 0},
    {"llama-gguf-f32", GGUF, 0.06, 5e-3, 0},
    {"qwen3-gguf-f32", GGUF, 0.08, 5e-3, 0},
    {"llama-gguf-q8_0", GGUF_INT8, 0.4, 5e-2, 0},
    {"qwen3-gguf-q8_0", GGUF_INT8, 0.4, 5e-2, 0},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const char *family; /* NULL: the best, and the reference beside it */

static void load_shape(const struct shape *shape, struct tiny *tiny)
{
    load_tiny(shape->folder, shape->kind == FOLDER ? "" : "model.gguf", tiny);
}

/* ref is float32 throughout. */
static struct tolerance tolerance_of(const char *backend, const struct shape *shape)
{
    if (strcmp(backend, "ref") == 0)
        return (struct tolerance){2e-4, 5e-4, 0};
    return (struct tolerance){shape->cpu_logit, shape->cpu_logit, shape->cpu_strays};
}

static void compare_backend(const char *backend)
{
    static const uint32_t ranks[] = {1, 2, 3, 8};
    for (size_t f = 0; f < SHAPES; f++) {
        struct tiny tiny;
        load_shape(&shapes[f], &tiny);
        for (size_t i = 0; i < 4; i++) {
            const struct check_settings settings = {.model = tiny.model,
                                                    .backend = backend,
                                                    .isa = family,
                                                    .ranks = ranks[i],
                                                    .chunk = i == 0 ? 0 : 37};
            print_message("%s backend=%s ranks=%u\n", shapes[f].folder, backend, ranks[i]);
            double worst = run_and_compare(&tiny, &settings, tolerance_of(backend, &shapes[f]));
            print_message("  largest logit difference %.2g\n", worst);
        }
        free_tiny(&tiny);
    }
}

static void test_reference_when_whole_or_split_gives_the_golden_logits(void **state)
{
    compare_backend("ref");
}

static void test_cpu_when_whole_or_split_gives_the_golden_logits(void **state)
{
    compare_backend("cpu");
}

/* The folder with config-v5.json as its config.json. */
static void test_config_when_in_the_new_spelling_gives_the_golden_logits(void **state)
{
    size_t tried = 0;
    for (size_t f = 0; f < SHAPES; f++) {
        struct tiny tiny;
        char folder[] = "/tmp/refrain-golden-XXXXXX";
        load_shape(&shapes[f], &tiny);
        char *spelling = mem_printf("%s/config-v5.json", tiny.model);
        char *stored = mem_printf("%s/model.safetensors", tiny.model);
        if (access(spelling, F_OK) == 0) {
            assert_non_null(mkdtemp(folder));
            char *config = mem_printf("%s/config.json", folder);
            char *weights = mem_printf("%s/model.safetensors", folder);
            assert_int_equal(symlink(spelling, config) | symlink(stored, weights), 0);
            const struct check_settings settings = {.model = folder, .backend = "ref"};
            print_message("%s config-v5.json\n", shapes[f].folder);
            (void)run_and_compare(&tiny, &settings, tolerance_of("ref", &shapes[f]));
            assert_int_equal(unlink(config) | unlink(weights) | rmdir(folder), 0);
            mem_free(config);
            mem_free(weights);
            tried++;
        }
        mem_free(spelling);
        mem_free(stored);
        free_tiny(&tiny);
    }
    assert_int_equal(tried, 17);
}

/* Largest difference relative to the largest logit of the row. */
static double relative_distance(const struct recorded *a, const struct recorded *b, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double largest = 1, difference = 0;
        for (uint32_t k = 0; k < VOCAB; k++) {
            largest = fmax(largest, fabs((double)a->logits[i][k]));
            difference = fmax(difference, fabs((double)a->logits[i][k] - (double)b->logits[i][k]));
        }
        worst = fmax(worst, difference / largest);
    }
    return worst;
}

static void compare_ranks(const struct shape *shape, const char *backend, double tolerance)
{
    static const uint32_t ranks[] = {2, 3, 8};
    struct recorded *one = mem_zalloc(sizeof(*one)), *many = mem_zalloc(sizeof(*many));
    struct tiny tiny;
    load_shape(shape, &tiny);
    const json_t *prompt = json_array_get(json_object_get(tiny.golden, "prompts"), 2);
    size_t count = json_array_size(json_object_get(prompt, "ids"));
    struct check_settings settings = {.model = tiny.model, .backend = backend, .isa = family};
    struct check *check = open_model(&settings);
    run_prompt(check, prompt, one);
    check_close(check);
    for (size_t i = 0; i < 3; i++) {
        settings.ranks = ranks[i];
        check = open_model(&settings);
        run_prompt(check, prompt, many);
        check_close(check);
        double distance = relative_distance(one, many, count);
        print_message("%s %s ranks=%u against one: %.2g\n", shape->folder, backend, ranks[i],
                      distance);
        assert_true(distance <= tolerance);
    }
    free_tiny(&tiny);
    mem_free(one);
    mem_free(many);
}

static void test_ranks_when_split_agree_with_one_rank(void **state)
{
    for (size_t f = 0; f < SHAPES; f++) {
        if (family == NULL)
            compare_ranks(&shapes[f], "ref", 1e-4);
        /* a sum in another order may round a K or V to its bf16 neighbour */
        compare_ranks(&shapes[f], "cpu", shapes[f].split_logit);
    }
}

/* Promise 2: how a prompt is cut must not change a bit. */
static void compare_chunks(const struct shape *shape, const char *backend)
{
    static const uint32_t chunks[] = {1, 7, 16, 48, 100};
    struct recorded *whole = mem_zalloc(sizeof(*whole)), *cut = mem_zalloc(sizeof(*cut));
    struct tiny tiny;
    load_shape(shape, &tiny);
    const json_t *prompt = json_array_get(json_object_get(tiny.golden, "prompts"), 2);
    struct check_settings settings = {.model = tiny.model, .backend = backend, .isa = family};
    struct check *check = open_model(&settings);
    run_prompt(check, prompt, whole);
    check_close(check);
    for (size_t i = 0; i < 5; i++) {
        settings.chunk = chunks[i];
        settings.threads = 1 + i % 2;
        check = open_model(&settings);
        run_prompt(check, prompt, cut);
        check_close(check);
        if (memcmp(whole, cut, sizeof(*whole)) != 0)
            fail_msg("%s %s: chunks of %u give other bits", shape->folder, backend, chunks[i]);
    }
    free_tiny(&tiny);
    mem_free(whole);
    mem_free(cut);
}

static void test_chunks_when_cut_differently_give_the_same_bits(void **state)
{
    for (size_t f = 0; f < SHAPES; f++) {
        if (family == NULL)
            compare_chunks(&shapes[f], "ref");
        compare_chunks(&shapes[f], "cpu");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_when_whole_or_split_gives_the_golden_logits),
        cmocka_unit_test(test_cpu_when_whole_or_split_gives_the_golden_logits),
        cmocka_unit_test(test_config_when_in_the_new_spelling_gives_the_golden_logits),
        cmocka_unit_test(test_ranks_when_split_agree_with_one_rank),
        cmocka_unit_test(test_chunks_when_cut_differently_give_the_same_bits),
    };
    const struct CMUnitTest family_tests[] = {
        cmocka_unit_test(test_cpu_when_whole_or_split_gives_the_golden_logits),
        cmocka_unit_test(test_ranks_when_split_agree_with_one_rank),
        cmocka_unit_test(test_chunks_when_cut_differently_give_the_same_bits),
    };
    struct tiny tiny = {.golden =
                            golden_read_json(SHARED_DIR "/golden/tiny/llama-gguf-f32/golden.json")};
    if (tiny.golden == NULL) {
        (void)fprintf(stderr, "skipped: %s/golden is not there\n", SHARED_DIR);
        return GOLDEN_SKIPPED;
    }
    json_decref(tiny.golden);
    if (argc < 2)
        return cmocka_run_group_tests(tests, NULL, NULL);
    family = argv[1];
    return cmocka_run_group_tests(family_tests, NULL, NULL);
}
