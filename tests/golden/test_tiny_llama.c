/* test_tiny_llama.c - two random models of 90,432 weights against transformers in float32: every
 * backend, whole and split over 2, 3 and 8 ranks, prompts whole and in chunks. */
#include <cmocka.h>

#include "kernels/backend.h"
#include "tests/golden/golden.h"
#include "worker/check.h"

#define PROMPTS 3
#define IDS_MAX 160
#define VOCAB 320

static const char *const folders[] = {"llama-gguf-f32", "llama-gguf-q8_0"};

struct tiny {
    char model[512];
    json_t *golden;
    float *rows; /* logits.f32 */
};

/* Logits of every position of a sequence. */
struct recorded {
    float logits[IDS_MAX][VOCAB];
};

static void load_tiny(const char *folder, struct tiny *tiny)
{
    char path[512];
    size_t bytes = 0;
    (void)snprintf(tiny->model, sizeof(tiny->model), "%s/golden/tiny/%s/model.gguf", SHARED_DIR,
                   folder);
    (void)snprintf(path, sizeof(path), "%s/golden/tiny/%s/golden.json", SHARED_DIR, folder);
    tiny->golden = golden_read_json(path);
    (void)snprintf(path, sizeof(path), "%s/golden/tiny/%s/logits.f32", SHARED_DIR, folder);
    tiny->rows = (float *)(void *)golden_read_file(path, &bytes);
    assert_non_null(tiny->golden);
    assert_non_null(tiny->rows);
    assert_int_equal(bytes, 15 * VOCAB * sizeof(float));
}

static void free_tiny(struct tiny *tiny)
{
    json_decref(tiny->golden);
    mem_free(tiny->rows);
}

static void record(void *user, uint32_t position, const float *logits)
{
    struct recorded *recorded = user;
    memcpy(recorded->logits[position], logits, VOCAB * sizeof(float));
}

static struct check *open_model(const struct check_settings *settings)
{
    struct errmsg err = {""};
    struct check *check = NULL;
    if (check_open(settings, &check, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(check_config(check)->vocab_size, VOCAB);
    return check;
}

/* One prompt and its greedy continuation, teacher-forced. */
static void run_prompt(struct check *check, const json_t *prompt, struct recorded *recorded)
{
    struct errmsg err = {""};
    uint32_t count = 0, greedy_count = 0;
    uint32_t *ids = golden_ids(json_object_get(prompt, "ids"), &count);
    uint32_t *greedy = golden_ids(json_object_get(prompt, "greedy"), &greedy_count);
    assert_true(count + greedy_count <= IDS_MAX);
    ids = mem_realloc(ids, (count + greedy_count) * sizeof(*ids));
    memcpy(ids + count, greedy, greedy_count * sizeof(*greedy));
    if (check_sequence(check, ids, count + greedy_count - 1, record, recorded, &err) < 0)
        fail_msg("%s", err.text);
    mem_free(ids);
    mem_free(greedy);
}

struct tolerance {
    double logit, margin;
};

/* Worst difference of the stored rows; argmax, logsumexp and greedy asserted on the way. */
static double compare_prompt(const struct tiny *tiny, const json_t *prompt,
                             const struct recorded *recorded, struct tolerance tolerance)
{
    double worst = 0;
    const json_t *full = json_object_get(prompt, "full_logit_positions");
    size_t first = (size_t)json_integer_value(json_object_get(prompt, "first_row"));
    for (size_t i = 0; i < json_array_size(full); i++) {
        size_t position = (size_t)json_integer_value(json_array_get(full, i));
        for (uint32_t k = 0; k < VOCAB; k++)
            worst = fmax(worst, fabs((double)recorded->logits[position][k] -
                                     (double)tiny->rows[(first + i) * VOCAB + k]));
    }
    if (worst > tolerance.logit)
        print_message("largest logit difference %.3g\n", worst);
    assert_true(worst <= tolerance.logit);
    const json_t *argmax = json_object_get(prompt, "argmax");
    size_t count = json_array_size(argmax);
    for (size_t i = 0; i < count; i++) {
        const float *logits = recorded->logits[i];
        double lse = golden_number(json_object_get(prompt, "logsumexp"), i);
        assert_true(fabs(golden_logsumexp(logits, VOCAB) - lse) <= tolerance.logit);
        if (golden_number(json_object_get(prompt, "margin"), i) >= tolerance.margin)
            assert_int_equal(golden_argmax(logits, VOCAB),
                             json_integer_value(json_array_get(argmax, i)));
    }
    const json_t *greedy = json_object_get(prompt, "greedy");
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        if (golden_number(json_object_get(prompt, "greedy_margin"), i) >= tolerance.margin)
            assert_int_equal(golden_argmax(recorded->logits[count - 1 + i], VOCAB),
                             json_integer_value(json_array_get(greedy, i)));
    }
    return worst;
}

static double run_and_compare(const struct tiny *tiny, const struct check_settings *settings,
                              struct tolerance tolerance)
{
    struct recorded *recorded = mem_alloc(sizeof(*recorded));
    struct check *check = open_model(settings);
    const json_t *prompts = json_object_get(tiny->golden, "prompts");
    double worst = 0;
    assert_int_equal(json_array_size(prompts), PROMPTS);
    for (size_t i = 0; i < PROMPTS; i++) {
        const json_t *prompt = json_array_get(prompts, i);
        run_prompt(check, prompt, recorded);
        worst = fmax(worst, compare_prompt(tiny, prompt, recorded, tolerance));
    }
    check_close(check);
    mem_free(recorded);
    return worst;
}

/* ref is float32 throughout; cpu keeps KV in bf16, and quantises activations to int8 where weights
 * are quantised. */
static struct tolerance tolerance_of(const char *backend, const char *folder)
{
    if (strcmp(backend, "ref") == 0)
        return (struct tolerance){2e-4, 5e-4};
    bool int8 = strcmp(folder, "llama-gguf-q8_0") == 0;
    return int8 ? (struct tolerance){0.4, 0.4} : (struct tolerance){0.06, 0.06};
}

static void compare_backend(const char *backend)
{
    static const uint32_t ranks[] = {1, 2, 3, 8};
    for (size_t f = 0; f < 2; f++) {
        struct tiny tiny;
        load_tiny(folders[f], &tiny);
        for (size_t i = 0; i < 4; i++) {
            const struct check_settings settings = {.model = tiny.model,
                                                    .backend = backend,
                                                    .ranks = ranks[i],
                                                    .chunk = i == 0 ? 0 : 37};
            double worst = run_and_compare(&tiny, &settings, tolerance_of(backend, folders[f]));
            print_message("%s backend=%s ranks=%u largest logit difference %.2g\n", folders[f],
                          backend, ranks[i], worst);
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

static void test_ranks_when_split_agree_with_one_rank(void **state)
{
    static const uint32_t ranks[] = {2, 3, 8};
    static const char *const backends[] = {"ref", "cpu"};
    struct recorded *one = mem_zalloc(sizeof(*one)), *many = mem_zalloc(sizeof(*many));
    struct tiny tiny;
    load_tiny(folders[0], &tiny);
    const json_t *prompt = json_array_get(json_object_get(tiny.golden, "prompts"), 2);
    size_t count = json_array_size(json_object_get(prompt, "ids"));
    for (size_t b = 0; b < 2; b++) {
        struct check_settings settings = {.model = tiny.model, .backend = backends[b]};
        struct check *check = open_model(&settings);
        run_prompt(check, prompt, one);
        check_close(check);
        for (size_t i = 0; i < 3; i++) {
            settings.ranks = ranks[i];
            check = open_model(&settings);
            run_prompt(check, prompt, many);
            check_close(check);
            /* cpu: a sum in another order may round a K or V to its bf16 neighbour */
            double distance = relative_distance(one, many, count);
            print_message("%s ranks=%u against one: %.2g\n", backends[b], ranks[i], distance);
            assert_true(distance <= (b == 0 ? 1e-4 : 5e-3));
        }
    }
    free_tiny(&tiny);
    mem_free(one);
    mem_free(many);
}

/* Promise 2: how a prompt is cut must not change a bit. */
static void test_chunks_when_cut_differently_give_the_same_bits(void **state)
{
    static const uint32_t chunks[] = {1, 7, 16, 48, 100};
    static const char *const backends[] = {"ref", "cpu"};
    struct recorded *whole = mem_zalloc(sizeof(*whole)), *cut = mem_zalloc(sizeof(*cut));
    for (size_t f = 0; f < 4; f++) {
        struct tiny tiny;
        load_tiny(folders[f / 2], &tiny);
        const json_t *prompt = json_array_get(json_object_get(tiny.golden, "prompts"), 2);
        struct check_settings settings = {.model = tiny.model, .backend = backends[f % 2]};
        struct check *check = open_model(&settings);
        run_prompt(check, prompt, whole);
        check_close(check);
        for (size_t i = 0; i < 5; i++) {
            settings.chunk = chunks[i];
            settings.threads = 1 + i % 2;
            check = open_model(&settings);
            run_prompt(check, prompt, cut);
            check_close(check);
            assert_memory_equal(whole, cut, sizeof(*whole));
        }
        free_tiny(&tiny);
    }
    mem_free(whole);
    mem_free(cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_when_whole_or_split_gives_the_golden_logits),
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}
