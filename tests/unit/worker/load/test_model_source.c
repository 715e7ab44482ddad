/* test_model_source.c - files that make one model: parts of a split GGUF, shards of a folder; what
 * config.json says and what is refused by name. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/proto/files/gguf_writer.h"
#include "worker/load/model_config.h"

static char folder[64];

static int setup(void **state)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/refrain-unit-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    char *command = mem_printf("rm -r %s", folder);
    int r = system(command);
    mem_free(command);
    return r;
}

static void put_file(const char *name, const void *data, size_t bytes)
{
    char *path = mem_printf("%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    mem_free(path);
}

static void put_gguf(struct gguf_writer *w, const char *name)
{
    size_t bytes = 0;
    void *data = writer_finish(w, &bytes);
    put_file(name, data, bytes);
    free(data);
    writer_done(w);
}

static int open_source(const char *name, struct model_source **ret_source, struct errmsg *err)
{
    char *path = mem_printf("%s/%s", folder, name);
    int r = model_source_open(path, ret_source, err);
    mem_free(path);
    return r;
}

static void refuse_source(const char *name, int code, const char *sentence)
{
    struct model_source *source = NULL;
    struct errmsg err = {""};
    assert_int_equal(open_source(name, &source, &err), code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

/* --- split GGUF ------------------------------------------------------------------------------ */

static void put_part(uint32_t number, const char *tensor, uint32_t stated)
{
    struct gguf_writer w;
    const float values[4] = {1, 2, 3, 4};
    char name[64];
    writer_init(&w);
    write_u32(&w, "split.count", 2);
    write_u32(&w, "split.no", number);
    write_u32(&w, "split.tensors.count", stated);
    write_tensor(&w, tensor, 2, 2, values);
    (void)snprintf(name, sizeof(name), "m-%05u-of-00002.gguf", number + 1);
    put_gguf(&w, name);
}

static void test_parts_when_complete_are_one_model(void **state)
{
    struct model_source *source = NULL;
    struct model_tensor tensor;
    put_part(0, "a", 2);
    put_part(1, "b", 2);
    assert_int_equal(open_source("m-00001-of-00002.gguf", &source, NULL), 0);
    assert_int_equal(model_source_count(source), 2);
    assert_int_equal(model_source_tensor(source, "b", &tensor, NULL), 0);
    assert_int_equal(tensor.file, 1);
    assert_true(tensor.rows == 2 && tensor.columns == 2 && tensor.planes == 1);
    assert_int_equal(model_source_tensor(source, "c", &tensor, NULL), -ENOENT);
    assert_true(model_source_at(source, 1).name.bytes == 1);
    model_source_close(source);
}

static void test_parts_when_missing_repeated_or_miscounted_are_refused(void **state)
{
    put_part(0, "a", 2);
    refuse_source("m-00001-of-00002.gguf", -ENOENT, "m-00002-of-00002.gguf");
    put_part(1, "a", 2);
    refuse_source("m-00001-of-00002.gguf", -EINVAL, "part 2 repeats a tensor");
    put_part(1, "b", 2);
    refuse_source("m-00002-of-00002.gguf", -EINVAL, "name the first");
    put_part(0, "a", 3);
    refuse_source("m-00001-of-00002.gguf", -EINVAL, "have 2 tensors, 3 are stated");
    char *first = mem_printf("%s/m-00001-of-00002.gguf", folder);
    char *second = mem_printf("%s/m-00002-of-00002.gguf", folder);
    assert_int_equal(rename(first, second), 0); /* in the other's place */
    put_part(0, "a", 2);
    refuse_source("m-00001-of-00002.gguf", -EINVAL, "is not part 2 of the split model");
    mem_free(first);
    mem_free(second);
}

/* --- folder ---------------------------------------------------------------------------------- */

static void put_safetensors(const char *name, const char *tensor)
{
    char *header =
        mem_printf("{\"%s\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", tensor);
    uint64_t length = strlen(header);
    char file[256] = {0};
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    put_file(name, file, 8 + length + 16);
    mem_free(header);
}

static void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

static void test_shards_when_indexed_are_one_model(void **state)
{
    struct model_source *source = NULL;
    struct model_tensor tensor;
    put_text("config.json", "{}");
    put_safetensors("one", "a");
    put_safetensors("two", "b");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}");
    assert_int_equal(open_source("", &source, NULL), 0);
    assert_int_equal(model_source_tensor(source, "b", &tensor, NULL), 0);
    assert_int_equal(tensor.bytes, 16);
    model_source_close(source);
}

static void test_shards_when_the_index_lies_are_refused(void **state)
{
    refuse_source("", -ENOENT, "config.json");
    put_text("config.json", "{}");
    refuse_source("", -ENOENT, "neither model.safetensors nor");
    put_safetensors("one", "a");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"b\":\"one\"}}");
    refuse_source("", -EINVAL, "tensor 'b' is not in 'one'");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../one\"}}");
    refuse_source("", -EINVAL, "no plain file name");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":7}}");
    refuse_source("", -EINVAL, "no plain file name");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"gone\"}}");
    refuse_source("", -ENOENT, "gone");
    put_text("model.safetensors.index.json", "[]");
    refuse_source("", -EINVAL, "is not an object");
}

/* Opened as a file is, a pipe that nobody writes to would never answer. */
static void test_files_when_they_are_pipes_are_refused_at_once(void **state)
{
    char *path = mem_printf("%s/%s", folder, "pipe"), *config = mem_printf("%s/pipes", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse_source("pipe", -EINVAL, "not a regular file");
    put_text("config.json", "{}");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"pipe\"}}");
    refuse_source("", -EINVAL, "not a regular file");
    assert_int_equal(mkdir(config, 0700), 0);
    mem_free(path);
    path = mem_printf("%s/config.json", config);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse_source("pipes", -EISDIR, "is not a file");
    mem_free(path);
    mem_free(config);
}

/* --- config.json ----------------------------------------------------------------------------- */

static struct errmsg refusal_of(const char *config, int code)
{
    struct model_source *source = NULL;
    struct model_config unused;
    struct errmsg err = {""};
    put_text("config.json", config);
    put_safetensors("model.safetensors", "model.embed_tokens.weight");
    assert_int_equal(open_source("", &source, &err), 0);
    assert_int_equal(model_config_read(source, &unused, &err), code);
    model_source_close(source);
    return err;
}

static void refuse_config(const char *config, int code, const char *sentence)
{
    struct errmsg err = refusal_of(config, code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

#define LLAMA "\"architectures\":[\"LlamaForCausalLM\"],"
#define NO_EPSILON                                                             \
    LLAMA "\"hidden_size\":2,\"intermediate_size\":2,\"num_hidden_layers\":1," \
          "\"num_attention_heads\":1,\"max_position_embeddings\":8,"
#define SIZES NO_EPSILON "\"rms_norm_eps\":1e-5"

#define EPSILON(value) "{" NO_EPSILON "\"rms_norm_eps\":" value "}"

static void test_config_when_it_cannot_be_run_names_the_key(void **state)
{
    refuse_config("{}", -EINVAL, "'architectures' names nothing");
    refuse_config(
        "{\"architectures\":[\"MambaForCausalLM\"]}", -ENOTSUP,
        "architecture 'MambaForCausalLM' is not supported; supported (...ForCausalLM): Llama, ");
    refuse_config("{\"architectures\":[\"T5ForConditionalGeneration\"]}", -ENOTSUP,
                  "architecture 'T5ForConditionalGeneration' is an encoder");
    refuse_config("{" LLAMA "\"num_hidden_layers\":0}", -EINVAL,
                  "key 'num_hidden_layers' is 0, 1 to 512 are possible");
    refuse_config("{" LLAMA "\"num_hidden_layers\":1.5}", -EINVAL, "is not one integer");
    refuse_config("{" LLAMA "\"num_hidden_layers\":\"2\"}", -EINVAL, "is not one integer");
    refuse_config("{" LLAMA "\"num_hidden_layers\":2}", -EINVAL, "key 'hidden_size' is missing");
    refuse_config("{" LLAMA "\"num_hidden_layers\":1e300}", -EINVAL, "is 1e+300, 1 to 512");
    refuse_config("{" LLAMA "\"num_hidden_layers\":1,\"hidden_size\":-4}", -EINVAL,
                  "key 'hidden_size' is -4, 1 to 131072 are possible");
    refuse_config("{" SIZES ",\"num_key_value_heads\":4294967296}", -EINVAL,
                  "key 'num_key_value_heads' is 4.2949673e+09, 1 to 1024");
    refuse_config("{" SIZES ",\"head_dim\":513}", -EINVAL, "key 'head_dim' is 513, 2 to 512");
    refuse_config("{" SIZES ",\"rope_theta\":0}", -EINVAL, "key 'rope_theta' is 0, 1 to");
    refuse_config(EPSILON("0"), -EINVAL, "key 'rms_norm_eps' is 0, 1e-30 to 0.1 are possible");
    refuse_config(EPSILON("1e-60"), -EINVAL, "key 'rms_norm_eps' is 1e-60, 1e-30 to 0.1");
    refuse_config(EPSILON("-1e-5"), -EINVAL, "key 'rms_norm_eps' is -1e-05, 1e-30 to 0.1");
    refuse_config(EPSILON("5"), -EINVAL, "key 'rms_norm_eps' is 5, 1e-30 to 0.1");
    refuse_config(EPSILON("\"1e-5\""), -EINVAL, "key 'rms_norm_eps' is not one number");
    refuse_config("{" SIZES ",\"vocab_size\":3}", -EINVAL,
                  "'vocab_size' is 3, the embedding has 2");
    refuse_config("{" SIZES ",\"rope_scaling\":{\"type\":\"dynamic\"}}", -ENOTSUP,
                  "scaling 'dynamic' of positions is not supported");
    refuse_config("{" SIZES ",\"rope_scaling\":{\"type\":5}}", -EINVAL, "is no text");
    refuse_config("{" SIZES ",\"rope_scaling\":[2]}", -EINVAL, "'rope_scaling' is not an object");
    refuse_config("{" SIZES ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,"
                  "\"attention_factor\":1000}}",
                  -EINVAL, "impossible numbers");
    refuse_config("{" SIZES ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2}}", -EINVAL,
                  "without the original context");
    refuse_config("{" SIZES ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":null}}", -EINVAL,
                  "scaling 'yarn' of positions without key 'factor'");
    refuse_config("{" SIZES ",\"rope_scaling\":{\"type\":\"linear\"}}", -EINVAL,
                  "scaling 'linear' of positions without key 'factor'");
    refuse_config("{" SIZES ",\"hidden_act\":\"relu\"}", -ENOTSUP, "activation 'relu'");
    refuse_config("{" SIZES ",\"attention_bias\":true}", -EINVAL, "biases that no tensor holds");
    refuse_config("{" SIZES ",\"layer_types\":[\"linear_attention\"]}", -ENOTSUP, "layer 0");
    refuse_config("{" SIZES ",\"layer_types\":\"sliding_attention\"}", -EINVAL,
                  "key 'layer_types' is not a list");
    refuse_config("{" SIZES ",\"layer_types\":[]}", -EINVAL, "does not list 1 layers");
    refuse_config("{" SIZES ",\"quantization_config\":{\"bits\":4}}", -ENOTSUP,
                  "'quantization_config'");
    refuse_config("{" SIZES ",\"num_local_experts\":2,\"num_experts_per_tok\":3}", -EINVAL,
                  "3 of 2 experts");
}

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/* Callers put a path before it. */
static void test_class_when_its_name_is_long_leaves_room_for_a_path(void **state)
{
    struct errmsg err = refusal_of("{\"architectures\":[\"Bert" LETTERS LETTERS "\"]}", -ENOTSUP);
    assert_non_null(strstr(err.text, "'Bert" LETTERS "ABCDEFGH' is an encoder: ")); /* 64 of it */
    assert_true(strlen(err.text) + 64 < ERRMSG_MAX);
}

static struct model_config config_of(const char *config)
{
    struct model_source *source = NULL;
    struct model_config c;
    struct errmsg err = {""};
    put_text("config.json", config);
    put_safetensors("model.safetensors", "model.embed_tokens.weight");
    assert_int_equal(open_source("", &source, &err), 0);
    if (model_config_read(source, &c, &err) < 0)
        fail_msg("%s", err.text);
    model_source_close(source);
    return c;
}

static void test_epsilon_when_models_have_it_is_taken(void **state)
{
    assert_true(config_of(EPSILON("1e-5")).norm_eps == 1e-5f);
    assert_true(config_of(EPSILON("1e-06")).norm_eps == 1e-6f);
    assert_true(config_of(EPSILON("1e-12")).norm_eps == 1e-12f);
}

/* longrope and partial rotation, which no golden model has: heads of 8, of which 4 turn. */
static void test_rope_when_long_and_partial_has_two_sets_of_divisors(void **state)
{
    struct model_config c = config_of(
        "{\"architectures\":[\"Phi3ForCausalLM\"],\"hidden_size\":2,\"intermediate_size\":2,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":1,\"head_dim\":8,\"rms_norm_eps\":1e-5,"
        "\"max_position_embeddings\":4096,\"original_max_position_embeddings\":64,"
        "\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"type\":\"longrope\","
        "\"short_factor\":[1,1.5],\"long_factor\":[2,40]}}");
    assert_int_equal(c.rotary_dims, 4);
    assert_int_equal(c.rope.long_after, 64);
    assert_true(c.rope.divisors[1] == 1.5f && c.rope.long_divisors[1] == 40.0f);
    /* sqrt(1 + ln(4096 / 64) / ln(64)) = sqrt(2) */
    assert_true(fabsf(c.rope.amplitude - 1.41421356f) < 1e-6f);
}

/* Without a factor yarn's is the ratio of the two contexts. */
static void test_rope_when_yarn_has_no_factor_takes_the_ratio_of_contexts(void **state)
{
#define YARN(rest)                                                                 \
    "{" LLAMA "\"hidden_size\":2,\"intermediate_size\":2,\"num_hidden_layers\":1," \
    "\"num_attention_heads\":1,\"head_dim\":64,\"max_position_embeddings\":4096,"  \
    "\"rms_norm_eps\":1e-5,\"rope_scaling\":{\"rope_type\":\"yarn\"," rest         \
    "\"original_max_position_embeddings\":1024}}"
    struct model_config stated = config_of(YARN("\"factor\":4,")), derived = config_of(YARN(""));
    assert_memory_equal(&stated.rope, &derived.rope, sizeof(stated.rope));
    /* 0.1 ln(4) + 1; the slowest pair turns 4 times slower */
    assert_true(fabsf(derived.rope.amplitude - 1.13862944f) < 1e-6f);
    assert_true(derived.rope.divisors[0] == 1 && derived.rope.divisors[31] == 4);
}

/* SmolLM3: every fourth layer does not rotate, whether listed or not. */
static void test_layers_when_some_do_not_rotate_are_marked(void **state)
{
#define SMOL(rest)                                                                           \
    "{\"architectures\":[\"SmolLM3ForCausalLM\"],\"hidden_size\":2,\"intermediate_size\":2," \
    "\"num_hidden_layers\":5,\"num_attention_heads\":1,\"max_position_embeddings\":8,"       \
    "\"rms_norm_eps\":1e-5" rest "}"
    struct model_config c = config_of(SMOL(""));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(c.layer_kinds[i], i == 3 ? LAYER_NO_ROPE : 0);
    c = config_of(SMOL(",\"no_rope_layer_interval\":2"));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(c.layer_kinds[i], i % 2 == 1 ? LAYER_NO_ROPE : 0);
    c = config_of(SMOL(",\"no_rope_layers\":[0,1,1,1,0]"));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(c.layer_kinds[i], i == 0 || i == 4 ? LAYER_NO_ROPE : 0);
}

#define COHERE(class, rest)                                                                   \
    "{\"architectures\":[\"" class "\"],\"hidden_size\":2,\"intermediate_size\":2,"           \
                                   "\"num_hidden_layers\":5,\"num_attention_heads\":1,\"max_" \
                                   "position_embeddings\":8,"                                 \
                                   "\"layer_norm_eps\":1e-5" rest "}"

/* Cohere2: three of four slide, and those alone rotate. */
static void test_layers_when_only_sliding_ones_rotate_are_marked(void **state)
{
    struct model_config c = config_of(COHERE("Cohere2ForCausalLM", ",\"sliding_window\":4"));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(c.layer_kinds[i], i == 3 ? LAYER_NO_ROPE : LAYER_SLIDING);
    c = config_of(
        COHERE("Cohere2ForCausalLM", ",\"sliding_window\":4,\"sliding_window_pattern\":2"));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(c.layer_kinds[i], i % 2 == 1 ? LAYER_NO_ROPE : LAYER_SLIDING);
    refuse_config(COHERE("Cohere2ForCausalLM", ",\"sliding_window\":null"), -EINVAL,
                  "without sliding_window: no layer would rotate");
    c = config_of(COHERE("CohereForCausalLM", ""));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(c.layer_kinds[i], 0);
}

static void test_cohere_when_read_has_its_own_norms_scale_and_context(void **state)
{
    struct model_config c = config_of(COHERE("CohereForCausalLM", ""));
    assert_true(c.logit_scale == 0.0625f && c.context_tokens == 8);
    assert_int_equal(c.features, MODEL_TIED | MODEL_PRE_NORM | MODEL_LAYER_NORM | MODEL_PARALLEL |
                                     MODEL_INTERLEAVED);
    c = config_of(COHERE("CohereForCausalLM", ",\"logit_scale\":0.8333,\"use_qk_norm\":true,"
                                              "\"model_max_length\":131072"));
    assert_true(c.logit_scale == 0.8333f && c.context_tokens == 131072);
    assert_true(model_has(&c, MODEL_QK_NORM_OWN));
    refuse_config(COHERE("CohereForCausalLM", ",\"logit_scale\":0"), -EINVAL,
                  "key 'logit_scale' is 0");
    refuse_config(COHERE("CohereForCausalLM", ",\"layer_norm_eps\":0"), -EINVAL,
                  "key 'layer_norm_eps' is 0");
    refuse_config("{\"architectures\":[\"CohereForCausalLM\"],\"num_hidden_layers\":1,"
                  "\"hidden_size\":2,\"intermediate_size\":2,\"max_position_embeddings\":8,"
                  "\"rms_norm_eps\":1e-5}",
                  -EINVAL, "(layer_norm_eps) is missing");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_parts_when_complete_are_one_model),
        TEST(test_parts_when_missing_repeated_or_miscounted_are_refused),
        TEST(test_shards_when_indexed_are_one_model),
        TEST(test_shards_when_the_index_lies_are_refused),
        TEST(test_files_when_they_are_pipes_are_refused_at_once),
        TEST(test_config_when_it_cannot_be_run_names_the_key),
        TEST(test_class_when_its_name_is_long_leaves_room_for_a_path),
        TEST(test_epsilon_when_models_have_it_is_taken),
        TEST(test_rope_when_long_and_partial_has_two_sets_of_divisors),
        TEST(test_rope_when_yarn_has_no_factor_takes_the_ratio_of_contexts),
        TEST(test_layers_when_some_do_not_rotate_are_marked),
        TEST(test_layers_when_only_sliding_ones_rotate_are_marked),
        TEST(test_cohere_when_read_has_its_own_norms_scale_and_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
