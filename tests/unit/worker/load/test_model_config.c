/* test_model_config.c - numbers of a llama file; what cannot be run is refused by name. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/proto/files/gguf_writer.h"
#include "worker/load/model_config.h"

static struct gguf_writer w;

static int setup(void **state)
{
    writer_init(&w);
    return 0;
}

static int teardown(void **state)
{
    writer_done(&w);
    return 0;
}

static int read_config(struct model_config *config, struct errmsg *err)
{
    struct gguf *gguf = NULL;
    size_t bytes = 0;
    void *data = writer_finish(&w, &bytes);
    int r = gguf_open_memory(data, bytes, &gguf, err);
    assert_int_equal(r, 0);
    struct model_source *source = model_source_of_gguf(gguf);
    r = model_config_read(source, config, err);
    model_source_close(source);
    free(data);
    return r;
}

static void refuse(int code, const char *sentence)
{
    struct model_config config;
    struct errmsg err = {""};
    assert_int_equal(read_config(&config, &err), code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
    writer_done(&w);
    writer_init(&w);
}

static void test_llama_when_complete_gives_its_numbers(void **state)
{
    struct model_config config;
    struct errmsg err = {""};
    write_llama_keys(&w, &llama_small);
    write_llama_tensors(&w, &llama_small);
    if (read_config(&config, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(config.architecture, "llama");
    assert_int_equal(config.layers, 2);
    assert_int_equal(config.hidden, 8);
    assert_int_equal(config.ffn, 12);
    assert_int_equal(config.vocab_size, 10);
    assert_int_equal(config.context_tokens, 64);
    assert_int_equal(config.q_heads, 4);
    assert_int_equal(config.kv_heads, 2);
    assert_int_equal(config.head_dim, 2); /* 8 / 4 */
    assert_int_equal(config.rotary_dims, 2);
    assert_int_equal(config.features, MODEL_PRE_NORM | MODEL_INTERLEAVED);
    assert_true(config.rope.theta == 10000.0f && config.rope.amplitude == 1.0f);
    assert_true(config.rope.divisors[0] == 1.0f);
    assert_true(fabsf(config.attention_scale - 0.70710678f) < 1e-7f);
    assert_int_equal(config.window, 0);
}

static void test_llama_when_tied_scaled_and_windowed_says_so(void **state)
{
    struct model_config config;
    struct llama_sizes sizes = llama_small;
    const float divisors[2] = {1, 8};
    sizes.tied = true;
    sizes.hidden = 16;
    write_llama_keys(&w, &sizes);
    write_f32(&w, "llama.rope.freq_base", 500000.0f);
    write_u32(&w, "llama.attention.sliding_window", 32);
    write_tensor(&w, "rope_freqs.weight", 1, 2, divisors);
    write_llama_tensors(&w, &sizes);
    assert_int_equal(read_config(&config, NULL), 0);
    assert_true(model_has(&config, MODEL_TIED));
    assert_true(config.rope.theta == 500000.0f);
    assert_true(config.rope.divisors[0] == 1.0f && config.rope.divisors[1] == 8.0f);
    assert_int_equal(config.window, 32);
    assert_int_equal(config.layer_kinds[0], LAYER_SLIDING);
    assert_int_equal(config.head_dim, 4);
}

static void test_architecture_when_unknown_is_named_with_what_is_supported(void **state)
{
    write_text(&w, "general.architecture", "mamba");
    refuse(-ENOTSUP, "architecture 'mamba' is not supported; supported: llama");
    write_text(&w, "general.architecture", "nomic-bert");
    refuse(-ENOTSUP, "architecture 'nomic-bert' is an encoder: only decoder-only models can be");
    write_text(&w, "general.architecture", "t5");
    refuse(-ENOTSUP, "architecture 't5' is an encoder");
    write_text(&w, "general.architecture", "gpt5");
    refuse(-ENOTSUP, "architecture 'gpt5' is not supported");
    write_u32(&w, "general.architecture", 3);
    refuse(-EINVAL, "general.architecture");
    write_text(&w, "general.architecture", "a\nb");
    refuse(-EINVAL, "not a name");
}

static void test_numbers_when_missing_or_impossible_are_refused_by_key(void **state)
{
    struct llama_sizes sizes = llama_small;
    write_text(&w, "general.architecture", "llama");
    refuse(-EINVAL, "key 'llama.block_count' is missing");
    sizes.layers = 0;
    write_llama_keys(&w, &sizes);
    refuse(-EINVAL, "key 'llama.block_count' is 0, 1 to 512");
    static const char *const required[] = {"llama.block_count", "llama.embedding_length",
                                           "llama.feed_forward_length", "llama.context_length"};
    write_text(&w, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        write_u32(&w, required[i], 8);
    refuse(-EINVAL, "epsilon (attention.layer_norm_rms_epsilon) is missing");
    const float epsilons[] = {0, -1, NAN, 5, INFINITY};
    const char *const sentences[] = {"is 0, 1e-30 to 0.1 are possible", "is -1",
                                     "is not one number", "is 5, ", "is inf, "};
    for (size_t i = 0; i < sizeof(epsilons) / sizeof(epsilons[0]); i++) {
        write_text(&w, "general.architecture", "llama");
        for (size_t k = 0; k < sizeof(required) / sizeof(required[0]); k++)
            write_u32(&w, required[k], 8);
        write_f32(&w, "llama.attention.layer_norm_rms_epsilon", epsilons[i]);
        char sentence[96];
        (void)snprintf(sentence, sizeof(sentence),
                       "key 'llama.attention.layer_norm_rms_epsilon' %s", sentences[i]);
        refuse(-EINVAL, sentence);
    }
    sizes = llama_small;
    sizes.kv_heads = 3;
    write_llama_keys(&w, &sizes);
    refuse(-EINVAL, "4 query heads do not share 3 KV heads");
    sizes = llama_small;
    sizes.q_heads = 8;
    write_llama_keys(&w, &sizes);
    refuse(-EINVAL, "heads of 1 values");
    write_llama_keys(&w, &llama_small);
    write_u32(&w, "llama.attention.key_length", 4);
    write_u32(&w, "llama.attention.value_length", 2);
    refuse(-ENOTSUP, "keys of 4 and values of 2");
    write_llama_keys(&w, &llama_small);
    refuse(-EINVAL, "tensor 'token_embd.weight' is missing");
    write_llama_keys(&w, &llama_small);
    write_f32(&w, "llama.rope.freq_base", NAN);
    write_llama_tensors(&w, &llama_small);
    refuse(-EINVAL, "key 'llama.rope.freq_base'");
    write_llama_keys(&w, &llama_small);
    write_u32(&w, "llama.vocab_size", 11);
    write_llama_tensors(&w, &llama_small);
    refuse(-EINVAL, "key 'vocab_size' is 11, the embedding has 10");
    write_llama_keys(&w, &llama_small);
    write_u32(&w, "llama.rope.dimension_count", 4);
    write_llama_tensors(&w, &llama_small);
    refuse(-EINVAL, "key 'llama.rope.dimension_count' is 4");
}

static void test_features_when_not_run_are_refused_by_name(void **state)
{
    const float bias[8] = {0};
    write_llama_keys(&w, &llama_small);
    write_f32(&w, "llama.attention.clamp_kqv", 8);
    write_llama_tensors(&w, &llama_small);
    refuse(-ENOTSUP, "key 'llama.attention.clamp_kqv'");
    write_llama_keys(&w, &llama_small);
    write_text(&w, "llama.rope.scaling.type", "dynamic");
    write_llama_tensors(&w, &llama_small);
    refuse(-ENOTSUP, "scaling 'dynamic' of positions is not supported");
    write_llama_keys(&w, &llama_small);
    write_tensor(&w, "blk.0.attn_q_norm.weight", 1, 8, bias);
    write_llama_tensors(&w, &llama_small);
    refuse(-ENOTSUP, "tensor 'blk.0.attn_q_norm.weight' has no place in a llama model");
    write_llama_keys(&w, &llama_small);
    write_tensor(&w, "blk.2.attn_norm.weight", 1, 8, bias); /* there are layers 0 and 1 */
    write_llama_tensors(&w, &llama_small);
    refuse(-ENOTSUP, "tensor 'blk.2.attn_norm.weight'");
}

static void test_sliding_layers_when_listed_are_as_many_as_layers(void **state)
{
    const uint8_t slides[] = {1, 0, 1};
    struct model_config config;
    for (uint64_t count = 2; count <= 3; count++) {
        write_llama_keys(&w, &llama_small);
        write_u32(&w, "llama.attention.sliding_window", 4);
        write_array(&w, "llama.attention.sliding_window_pattern", 7, count, slides, count);
        write_llama_tensors(&w, &llama_small);
        if (count == 3) {
            refuse(-EINVAL, "'llama.attention.sliding_window_pattern' does not list 2 layers");
            continue;
        }
        assert_int_equal(read_config(&config, NULL), 0);
        assert_int_equal(config.layer_kinds[0], LAYER_SLIDING);
        assert_int_equal(config.layer_kinds[1], 0);
        teardown(NULL);
        setup(NULL);
    }
    write_llama_keys(&w, &llama_small);
    write_u32(&w, "llama.attention.sliding_window_pattern", 6); /* all layers of a llama slide */
    write_llama_tensors(&w, &llama_small);
    refuse(-ENOTSUP, "key 'llama.attention.sliding_window_pattern': this feature");
}

static void test_features_when_neutral_are_accepted(void **state)
{
    struct model_config config;
    write_llama_keys(&w, &llama_small);
    write_u32(&w, "llama.expert_count", 0);
    write_f32(&w, "llama.logit_scale", 1.0f);
    write_text(&w, "llama.rope.scaling.type", "none");
    write_llama_tensors(&w, &llama_small);
    assert_int_equal(read_config(&config, NULL), 0);
}

static void test_rope_divisors_when_of_another_size_or_zero_are_refused(void **state)
{
    const float values[3] = {1, 1, 1}, zero[1] = {0};
    write_llama_keys(&w, &llama_small);
    write_tensor(&w, "rope_freqs.weight", 1, 3, values);
    write_llama_tensors(&w, &llama_small);
    refuse(-EINVAL, "tensor 'rope_freqs.weight' is not 1 values");
    write_llama_keys(&w, &llama_small);
    write_tensor(&w, "rope_freqs.weight", 1, 1, zero);
    write_llama_tensors(&w, &llama_small);
    refuse(-EINVAL, "value 0 is out of range");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_llama_when_complete_gives_its_numbers),
        TEST(test_llama_when_tied_scaled_and_windowed_says_so),
        TEST(test_architecture_when_unknown_is_named_with_what_is_supported),
        TEST(test_numbers_when_missing_or_impossible_are_refused_by_key),
        TEST(test_features_when_not_run_are_refused_by_name),
        TEST(test_sliding_layers_when_listed_are_as_many_as_layers),
        TEST(test_features_when_neutral_are_accepted),
        TEST(test_rope_divisors_when_of_another_size_or_zero_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
