/* tiny.h - a tiny model of shared/golden/tiny or, where that has none, of make_tiny.py, run and
 * compared with its golden logits. */
#ifndef REFRAIN_TESTS_GOLDEN_TINY_H
#define REFRAIN_TESTS_GOLDEN_TINY_H

#include <cmocka.h>

#include "tests/golden/golden.h"
#include "worker/check.h"

#define PROMPTS 3
#define IDS_MAX 160
#define VOCAB 320

struct tiny {
    char model[512];
    json_t *golden;
    float *rows; /* logits.f32 */
};

/* Logits of every position of a sequence. */
struct recorded {
    float logits[IDS_MAX][VOCAB];
};

/* `file` in the folder is the model; "": the folder itself. */
static void load_tiny(const char *folder, const char *file, struct tiny *tiny)
{
    char path[512];
    size_t bytes = 0;
    const char *root = golden_tiny_root(folder);
    (void)snprintf(tiny->model, sizeof(tiny->model), "%s/%s%s%s", root, folder,
                   file[0] != '\0' ? "/" : "", file);
    (void)snprintf(path, sizeof(path), "%s/%s/golden.json", root, folder);
    tiny->golden = golden_read_json(path);
    (void)snprintf(path, sizeof(path), "%s/%s/logits.f32", root, folder);
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
    unsigned strays;
};

/* Is the distribution of a position as golden.json has it? */
static bool is_near(const float *logits, const json_t *prompt, size_t i, struct tolerance tolerance)
{
    double lse = golden_number(json_object_get(prompt, "logsumexp"), i);
    json_int_t argmax = json_integer_value(json_array_get(json_object_get(prompt, "argmax"), i));
    if (fabs(golden_logsumexp(logits, VOCAB) - lse) > tolerance.logit)
        return false;
    return golden_number(json_object_get(prompt, "margin"), i) < tolerance.margin ||
           golden_argmax(logits, VOCAB) == argmax;
}

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
    size_t count = json_array_size(json_object_get(prompt, "argmax"));
    unsigned strays = 0;
    for (size_t i = 0; i < count; i++)
        strays += is_near(recorded->logits[i], prompt, i, tolerance) ? 0 : 1;
    const json_t *greedy = json_object_get(prompt, "greedy");
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        bool clear = golden_number(json_object_get(prompt, "greedy_margin"), i) >= tolerance.margin;
        strays += clear && golden_argmax(recorded->logits[count - 1 + i], VOCAB) !=
                               json_integer_value(json_array_get(greedy, i));
    }
    if (strays > 0)
        print_message("  %u of %zu positions stray\n", strays, count);
    assert_true(strays <= tolerance.strays);
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

#endif
