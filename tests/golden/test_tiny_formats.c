/* test_tiny_formats.c - the tiny models in other files: each family as a GGUF, whole and split, and
 * weights as 8-bit floats with scales. The GGUFs hold the same numbers, so the golden logits hold.
 */
#include <cmocka.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/golden/tiny.h"
#include "tests/golden/tiny_gguf.h"
#include "worker/load/fp8.h"

static char folder[] = "/tmp/refrain-formats-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static void clean(void)
{
    char *command = mem_printf("rm -rf %s/*", folder);
    assert_int_equal(system(command), 0);
    mem_free(command);
}

static int teardown(void **state)
{
    (void)state;
    clean();
    return rmdir(folder);
}

/* --- GGUF ------------------------------------------------------------------------------------ */

static const struct conversion conversions[] = {
    {.folder = "llama", .arch = "llama", .permuted = true},
    {.folder = "llama", .arch = "llama", .permuted = true, .split = 3},
    {.folder = "llama_rope_llama3", .arch = "llama", .permuted = true},
    {.folder = "llama_tied_9_3", .arch = "llama", .permuted = true},
    {.folder = "llama_bias", .arch = "llama", .permuted = true},
    {.folder = "mistral", .arch = "llama", .permuted = true},
    {.folder = "mixtral", .arch = "llama", .permuted = true},
    {.folder = "qwen2", .arch = "qwen2"},
    {.folder = "qwen2_yarn", .arch = "qwen2"},
    {.folder = "qwen3", .arch = "qwen3"},
    {.folder = "qwen3_moe", .arch = "qwen3moe"},
    {.folder = "gemma2", .arch = "gemma2", .norm_plus_1 = true, .post_norms = true},
    {.folder = "gemma3", .arch = "gemma3", .norm_plus_1 = true, .post_norms = true},
    {.folder = "phi3", .arch = "phi3"},
    {.folder = "olmo2", .arch = "olmo2", .post_norms = true},
    {.folder = "granite", .arch = "granite", .permuted = true},
    {.folder = "smollm3", .arch = "smollm3", .permuted = true},
    {.folder = "cohere", .arch = "command-r"},
    {.folder = "cohere2", .arch = "cohere2"},
    {.folder = "deepseek_v2", .arch = "deepseek2"},
    {.folder = "deepseek_v2", .arch = "deepseek2", .split_kv_b = true},
    {.folder = "deepseek_v3", .arch = "deepseek2"},
    {.folder = "deepseek_v3", .arch = "deepseek2", .split_kv_b = true},
};

static void test_every_family_as_a_gguf_gives_the_golden_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(conversions) / sizeof(conversions[0]); i++) {
        const struct conversion *what = &conversions[i];
        static const uint32_t ranks[] = {1, 3};
        struct tiny tiny;
        load_tiny(what->folder, "", &tiny);
        convert(what, folder);
        char *path = gguf_path(what, folder, 0);
        for (size_t r = 0; r < 2; r++) {
            const struct check_settings settings = {
                .model = path, .backend = "ref", .ranks = ranks[r], .chunk = 37};
            print_message("%s as %s%s%s, %u ranks\n", what->folder, what->arch,
                          what->split > 1 ? ", split" : "", what->split_kv_b ? ", k_b and v_b" : "",
                          ranks[r]);
            (void)run_and_compare(&tiny, &settings, (struct tolerance){2e-4, 5e-4, 0});
        }
        mem_free(path);
        free_tiny(&tiny);
        clean();
    }
}

/* --- 8-bit floats ---------------------------------------------------------------------------- */

enum scales { PER_MATRIX = 0, PER_ROW, PER_BLOCK };

struct fp8_case {
    const char *folder;
    enum scales scales;
    const char *suffix; /* of the scales' names */
    const char *config; /* quantization_config */
};

static const struct fp8_case fp8_cases[] = {
    {"llama", PER_MATRIX, "_scale",
     "{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}"},
    {"qwen3", PER_ROW, "_scale",
     "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"group_0\": {\"weights\": "
     "{\"type\": \"float\", \"num_bits\": 8, \"strategy\": \"channel\"}}}}"},
    {"phi3", PER_ROW, "_scale", "{\"quant_method\": \"fbgemm_fp8\"}"},
    {"deepseek_v3", PER_BLOCK, "_scale_inv",
     "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"weight_block_size\": [32, 20]}"},
};

/* A safetensors file being written. */
struct st_writer {
    struct buffer data;
    json_t *header;
};

static void st_add(struct st_writer *w, const char *name, const char *dtype, json_t *shape,
                   const void *data, size_t bytes)
{
    json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype, "shape", shape, "data_offsets",
                              (json_int_t)w->data.bytes, (json_int_t)(w->data.bytes + bytes));
    buffer_append(&w->data, data, bytes);
    assert_int_equal(json_object_set_new(w->header, name, entry), 0);
}

static void st_write(struct st_writer *w, const char *path)
{
    char *text = json_dumps(w->header, JSON_COMPACT);
    uint64_t bytes = strlen(text);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&bytes, sizeof(bytes), 1, file), 1);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fwrite(w->data.data, 1, w->data.bytes, file), w->data.bytes);
    assert_int_equal(fclose(file), 0);
    free(text);
    json_decref(w->header);
    buffer_done(&w->data);
}

/* The nearest code, by looking at all of them. */
static uint8_t to_e4m3(float value)
{
    uint8_t best = 0;
    for (unsigned code = 0; code < 256; code++) {
        float distance = fabsf(fp8_e4m3_to_f32((uint8_t)code) - value);
        if (distance < fabsf(fp8_e4m3_to_f32(best) - value))
            best = (uint8_t)code;
    }
    return best;
}

static float largest(const float *values, uint64_t columns, uint64_t rows, uint64_t stride)
{
    float most = 1e-6f;
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t k = 0; k < columns; k++)
            most = fmaxf(most, fabsf(values[i * stride + k]));
    }
    return most;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

/* A matrix into `quantised` with its scales, and what it then means into `plain`. */
static void add_fp8(const struct fp8_case *test, const struct model_tensor *tensor,
                    const char *name, float *values, struct st_writer *quantised,
                    struct st_writer *plain)
{
    uint64_t rows = tensor->rows, columns = tensor->columns;
    uint64_t high = test->scales == PER_MATRIX ? rows : test->scales == PER_ROW ? 1 : 32;
    uint64_t wide = test->scales == PER_BLOCK ? 20 : columns;
    uint64_t down = (rows + high - 1) / high, across = (columns + wide - 1) / wide;
    uint8_t *codes = mem_calloc(rows * columns, 1);
    float *scales = mem_calloc(down * across, sizeof(*scales));
    char *scale_name = mem_printf("%s%s", name, test->suffix);
    for (uint64_t b = 0; b < down * across; b++) {
        uint64_t row = b / across * high, column = b % across * wide;
        uint64_t n = at_most(high, rows - row), m = at_most(wide, columns - column);
        scales[b] = largest(values + row * columns + column, m, n, columns) / 448;
        for (uint64_t i = 0; i < n * m; i++) {
            uint64_t at = (row + i / m) * columns + column + i % m;
            codes[at] = to_e4m3(values[at] / scales[b]);
            values[at] = bf16_to_f32(f32_to_bf16(fp8_e4m3_to_f32(codes[at]) * scales[b]));
        }
    }
    json_t *shape = json_pack("[I,I]", (json_int_t)rows, (json_int_t)columns);
    st_add(quantised, name, "F8_E4M3", json_incref(shape), codes, rows * columns);
    st_add(quantised, scale_name, "F32",
           test->scales == PER_MATRIX ? json_array()
                                      : json_pack("[I,I]", (json_int_t)down, (json_int_t)across),
           scales, down * across * sizeof(*scales));
    st_add(plain, name, "F32", shape, values, rows * columns * sizeof(*values));
    mem_free(codes);
    mem_free(scales);
    mem_free(scale_name);
}

static void write_config(const json_t *config, const char *to, json_t *quantisation)
{
    json_t *copy = json_deep_copy(config);
    char *path = mem_printf("%s/config.json", to);
    if (quantisation != NULL)
        assert_int_equal(json_object_set_new(copy, "quantization_config", quantisation), 0);
    assert_int_equal(json_dump_file(copy, path, 0), 0);
    json_decref(copy);
    mem_free(path);
}

/* Two folders: `quantised` in fp8, `plain` with the same numbers in F32. */
static void write_folders(const struct fp8_case *test, const char *quantised, const char *plain)
{
    struct errmsg err = {""};
    struct model_source *source = NULL;
    struct st_writer w[2];
    char *from = mem_printf("%s/golden/tiny/%s", SHARED_DIR, test->folder);
    if (model_source_open(from, &source, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        buffer_init(&w[i].data, 64u << 20);
        w[i].header = json_object();
    }
    for (size_t i = 0; i < model_source_count(source); i++) {
        struct gguf_string text = model_source_at(source, i).name;
        char *name = mem_strndup(text.text, text.bytes);
        struct model_tensor tensor;
        assert_int_equal(model_source_tensor(source, name, &tensor, &err), 0);
        float *values = mem_calloc(tensor.rows * tensor.columns, sizeof(*values));
        dtype_to_f32(tensor.dtype, tensor.data, values, tensor.rows * tensor.columns);
        if (strstr(name, "_proj.weight") != NULL || strstr(name, "proj_with_mqa") != NULL) {
            add_fp8(test, &tensor, name, values, &w[0], &w[1]);
        } else {
            for (int f = 0; f < 2; f++)
                st_add(&w[f], name, "F32",
                       tensor.rows == 1 ? json_pack("[I]", (json_int_t)tensor.columns)
                                        : json_pack("[I,I]", (json_int_t)tensor.rows,
                                                    (json_int_t)tensor.columns),
                       values, tensor.bytes);
        }
        mem_free(values);
        mem_free(name);
    }
    for (int f = 0; f < 2; f++) {
        char *path = mem_printf("%s/model.safetensors", f == 0 ? quantised : plain);
        st_write(&w[f], path);
        mem_free(path);
    }
    write_config(model_source_config(source), quantised, json_loads(test->config, 0, NULL));
    write_config(model_source_config(source), plain, NULL);
    model_source_close(source);
    mem_free(from);
}

static void run_folder(const char *model, uint32_t ranks, const json_t *prompt,
                       struct recorded *recorded)
{
    const struct check_settings settings = {.model = model, .backend = "ref", .ranks = ranks};
    struct check *check = open_model(&settings);
    run_prompt(check, prompt, recorded);
    check_close(check);
}

static void test_8_bit_floats_are_their_codes_times_their_scales(void **state)
{
    static const uint32_t ranks[] = {1, 3};
    struct recorded *a = mem_zalloc(sizeof(*a)), *b = mem_zalloc(sizeof(*b));
    char *quantised = mem_printf("%s/fp8", folder), *plain = mem_printf("%s/plain", folder);
    (void)state;
    for (size_t i = 0; i < sizeof(fp8_cases) / sizeof(fp8_cases[0]); i++) {
        struct tiny tiny;
        assert_int_equal(mkdir(quantised, 0700) | mkdir(plain, 0700), 0);
        write_folders(&fp8_cases[i], quantised, plain);
        load_tiny(fp8_cases[i].folder, "", &tiny);
        const json_t *prompt = json_array_get(json_object_get(tiny.golden, "prompts"), 1);
        for (size_t r = 0; r < 2; r++) {
            print_message("%s, %u ranks\n", fp8_cases[i].folder, ranks[r]);
            run_folder(quantised, ranks[r], prompt, a);
            run_folder(plain, ranks[r], prompt, b);
            assert_memory_equal(a, b, sizeof(*a));
        }
        free_tiny(&tiny);
        clean();
    }
    mem_free(quantised);
    mem_free(plain);
    mem_free(a);
    mem_free(b);
}

/* --- the text part of a model that sees images ------------------------------------------------ */

/* Gemma 3 as its bigger sizes come: a config within the config, which is silent where the class has
 * a default, names with a prefix, a part for images. */
static void write_nested(const char *to, const char *prefix)
{
    static const char *const defaults[] = {"rms_norm_eps", "rope_theta", "rope_local_base_freq",
                                           "tie_word_embeddings", "architectures"};
    const float pixel[2] = {0, 0};
    struct errmsg err = {""};
    struct model_source *source = NULL;
    struct st_writer w = {.header = json_object()};
    buffer_init(&w.data, 64u << 20);
    if (model_source_open(SHARED_DIR "/golden/tiny/gemma3", &source, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < model_source_count(source); i++) {
        const struct model_entry entry = model_source_at(source, i);
        assert_int_equal(strncmp(entry.name.text, "model.", 6), 0); /* the head is tied */
        char *name = mem_printf("%s%.*s", prefix, (int)entry.name.bytes - 6, entry.name.text + 6);
        json_t *shape = entry.dims[1] == 1 ? json_pack("[I]", (json_int_t)entry.dims[0])
                                           : json_pack("[I,I]", (json_int_t)entry.dims[0],
                                                       (json_int_t)entry.dims[1]);
        st_add(&w, name, "F32", shape, entry.data, entry.bytes);
        mem_free(name);
    }
    st_add(&w, "vision_tower.embedding.weight", "F32", json_pack("[i]", 2), pixel, sizeof(pixel));
    char *path = mem_printf("%s/model.safetensors", to);
    st_write(&w, path);
    mem_free(path);
    json_t *text = json_deep_copy(model_source_config(source));
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        assert_int_equal(json_object_del(text, defaults[i]), 0);
    json_t *config = json_pack("{s:[s], s:o}", "architectures", "Gemma3ForConditionalGeneration",
                               "text_config", text);
    write_config(config, to, NULL);
    json_decref(config);
    model_source_close(source);
}

static void test_the_text_part_of_a_model_that_sees_images_gives_the_golden_logits(void **state)
{
    static const char *const spellings[] = {"language_model.model.", "model.language_model."};
    struct tiny tiny;
    (void)state;
    load_tiny("gemma3", "", &tiny);
    for (size_t i = 0; i < 2; i++) {
        const struct check_settings settings = {.model = folder, .backend = "ref"};
        write_nested(folder, spellings[i]);
        (void)run_and_compare(&tiny, &settings, (struct tolerance){2e-4, 5e-4, 0});
        clean();
    }
    free_tiny(&tiny);
}

/* --- refused --------------------------------------------------------------------------------- */

static void test_a_head_that_the_config_has_and_the_weights_lack_is_missed(void **state)
{
    const struct check_settings settings = {.model = folder, .backend = "ref"};
    json_t *config = golden_read_json(SHARED_DIR "/golden/tiny/gemma3/config.json");
    char *path = mem_printf("%s/model.safetensors", folder);
    struct check *check = NULL;
    struct errmsg err = {""};
    (void)state;
    assert_int_equal(symlink(SHARED_DIR "/golden/tiny/gemma3/model.safetensors", path), 0);
    assert_int_equal(json_object_set_new(config, "tie_word_embeddings", json_false()), 0);
    write_config(config, folder, NULL);
    assert_int_equal(check_open(&settings, &check, &err), -EINVAL);
    assert_non_null(strstr(err.text, "there is no lm_head"));
    clean();
    mem_free(path);
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_as_a_gguf_gives_the_golden_logits),
        cmocka_unit_test(test_8_bit_floats_are_their_codes_times_their_scales),
        cmocka_unit_test(test_the_text_part_of_a_model_that_sees_images_gives_the_golden_logits),
        cmocka_unit_test(test_a_head_that_the_config_has_and_the_weights_lack_is_missed),
    };
    json_t *there = golden_read_json(SHARED_DIR "/golden/tiny/llama/golden.json");
    if (there == NULL) {
        (void)fprintf(stderr, "skipped: %s/golden is not there\n", SHARED_DIR);
        return GOLDEN_SKIPPED;
    }
    json_decref(there);
    return cmocka_run_group_tests(tests, setup, teardown);
}
