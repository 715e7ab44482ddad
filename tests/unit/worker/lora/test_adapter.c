/* test_adapter.c - adapters of folders in PEFT's format: what is read, and that what is hostile,
 * strange or not served is a named error. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/json.h"
#include "worker/lora/adapter.h"
#include "worker/lora/adapter_config.h"
#include "worker/lora/lora.h"

#define PRE "base_model.model.model.layers.0."

static const char plain[] =
    "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"q_proj\",\"o_proj\"]}";

/* 2 layers, 4 heads of 2 on 2 KV heads, hidden 6, ffn 10. */
static struct model_config *tiny_model(void)
{
    static struct model_config config;
    memset(&config, 0, sizeof(config));
    config.layers = 2;
    config.hidden = 6;
    config.ffn = 10;
    config.vocab_size = 32;
    config.q_heads = 4;
    config.kv_heads = 2;
    config.head_dim = config.value_dim = 2;
    return &config;
}

static json_t *json_of(const char *text)
{
    json_t *json = NULL;
    struct errmsg err = {""};
    if (json_parse(text, strlen(text), 1 << 20, &json, &err) < 0)
        fail_msg("%s", err.text);
    return json;
}

/* Tensors "NAME ROWS COLUMNS TYPE;..." with value i at place i, or `value` everywhere. */
static uint8_t *make_file(const char *tensors, float value, size_t *ret_bytes)
{
    char header[4096] = "{";
    size_t data = 0, used = 1;
    const char *at = tensors;
    char name[200], type[16];
    unsigned rows, columns;
    int read;
    while (sscanf(at, " %199s %u %u %15[A-Z0-9];%n", name, &rows, &columns, type, &read) == 4) {
        size_t bytes = (size_t)rows * columns * (strcmp(type, "F32") == 0 ? 4 : 2);
        used +=
            (size_t)snprintf(header + used, sizeof(header) - used,
                             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%u,%u],"
                             "\"data_offsets\":[%zu,%zu]}",
                             used > 1 ? "," : "", name, type, rows, columns, data, data + bytes);
        data += bytes;
        at += read;
    }
    header[used++] = '}';
    uint64_t length = used;
    uint8_t *file = calloc(1, 8 + used + data);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, used);
    for (size_t i = 0; i + 4 <= data; i += 4) {
        float v = value == 0 ? (float)(i / 4) : value;
        memcpy(file + 8 + used + i, &v, 4);
    }
    *ret_bytes = 8 + used + data;
    return file;
}

static int open_adapter(const char *config, const char *tensors, float value, uint8_t **ret_memory,
                        struct adapter **ret_adapter, struct errmsg *err)
{
    size_t bytes = 0;
    struct safetensors *file = NULL;
    json_t *json = json_of(config);
    *ret_memory = make_file(tensors, value, &bytes);
    int r = safetensors_open_memory(*ret_memory, bytes, &file, err);
    assert_int_equal(r, 0);
    r = adapter_of(json, file, tiny_model(), ret_adapter, err);
    json_decref(json);
    return r;
}

static void refuse(const char *config, const char *tensors, int code, const char *sentence)
{
    struct adapter *adapter = NULL;
    struct errmsg err = {""};
    uint8_t *memory = NULL;
    int r = open_adapter(config, tensors, 0, &memory, &adapter, &err);
    if (r != code || strstr(err.text, sentence) == NULL)
        fail_msg("%d '%s' is not %d '%s'", r, err.text, code, sentence);
    free(memory);
}

static const char q_pair[] =
    PRE "self_attn.q_proj.lora_A.weight 2 6 F32;" PRE "self_attn.q_proj.lora_B.weight 8 2 F32;";

static void test_config_when_a_kind_is_not_served_names_it(void **state)
{
    static const struct {
        const char *key, *sentence;
        int code;
    } cases[] = {
        {"\"use_dora\":true", "DoRA", -ENOTSUP},
        {"\"bias\":\"all\"", "bias is \"all\"", -ENOTSUP},
        {"\"modules_to_save\":[\"lm_head\"]", "modules_to_save", -ENOTSUP},
        {"\"fan_in_fan_out\":true", "fan_in_fan_out", -ENOTSUP},
        {"\"lora_bias\":true", "lora_bias", -ENOTSUP},
        {"\"layer_replication\":[[0,2]]", "layer_replication", -ENOTSUP},
        {"\"trainable_token_indices\":[1]", "trainable_token_indices", -ENOTSUP},
        {"\"target_parameters\":[\"x\"]", "target_parameters", -ENOTSUP},
        {"\"init_lora_weights\":\"pissa_niter_4\"", "init_lora_weights", -ENOTSUP},
        {"\"peft_type\":\"IA3\"", "peft_type is IA3", -ENOTSUP},
        {"\"r\":0", "r is missing, or not more than 0", -EINVAL},
        {"\"r\":513", "at most 512", -EINVAL},
        {"\"r\":2.5", "no whole number", -EINVAL},
        {"\"r\":\"8\"", "no whole number", -EINVAL},
        {"\"lora_alpha\":-1", "lora_alpha", -EINVAL},
        {"\"lora_alpha\":null", "lora_alpha", -EINVAL},
        {"\"target_modules\":[]", "target_modules", -EINVAL},
        {"\"target_modules\":[7]", "entry 0 is no text", -EINVAL},
        {"\"target_modules\":\"(((\"", "target_modules: a pattern cannot be read", -EINVAL},
        {"\"rank_pattern\":{\"[\":4}", "rank_pattern: a pattern cannot be read", -EINVAL},
        {"\"rank_pattern\":{\"q_proj\":0}", "rank_pattern", -EINVAL},
        {"\"rank_pattern\":[]", "rank_pattern is no object", -EINVAL},
        {"\"alpha_pattern\":{\"\":1}", "alpha_pattern", -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char config[512]; /* the last of equal keys counts */
        (void)snprintf(config, sizeof(config), "%.*s,%s}", (int)sizeof(plain) - 2, plain,
                       cases[i].key);
        refuse(config, q_pair, cases[i].code, cases[i].sentence);
    }
    refuse("{\"r\":2}", q_pair, -EINVAL, "peft_type is missing");
    refuse("[]", q_pair, -EINVAL, "no JSON object");
}

static void test_tensors_when_they_do_not_fit_are_named(void **state)
{
    static const struct {
        const char *tensors, *sentence;
        int code;
    } cases[] = {
        {"", "no tensors", -EINVAL},
        {PRE "self_attn.q_proj.lora_A.weight 2 6 F32;", "no partner", -EINVAL},
        {PRE "self_attn.q_proj.lora_A.weight 2 7 F32;", "is 2 x 7 instead of 2 x 6", -EINVAL},
        {PRE "self_attn.q_proj.lora_B.weight 4 2 F32;", "is 4 x 2 instead of 8 x 2", -EINVAL},
        {PRE "self_attn.q_proj.lora_A.weight 3 6 F32;", "is 3 x 6 instead of 2 x 6", -EINVAL},
        {PRE "self_attn.q_proj.lora_A.weight 2 6 I16;", "is of type I16", -ENOTSUP},
        {PRE "self_attn.k_proj.lora_A.weight 2 6 F32;", "target_modules does not name", -EINVAL},
        {PRE "self_attn.qkv_proj.lora_A.weight 2 6 F32;", "no self_attn.qkv_proj", -EINVAL},
        {PRE "self_attn.q_proj.weight 2 6 F32;", "is not lora_A.weight", -EINVAL},
        {PRE "self_attn.q_proj.lora_magnitude_vector 1 8 F32;", "is DoRA", -ENOTSUP},
        {PRE "mlp.experts.3.up_proj.lora_A.weight 2 6 F32;", "experts: not served", -ENOTSUP},
        {"base_model.model.lm_head.lora_A.weight 2 6 F32;", "output head: not served", -ENOTSUP},
        {"base_model.model.model.embed_tokens.lora_embedding_A 2 6 F32;", "embeddings", -ENOTSUP},
        {"base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight 2 6 F32;",
         "is of layer 2; the model has 2", -EINVAL},
        {"base_model.model.model.layers.00.self_attn.q_proj.lora_A.weight 2 6 F32;",
         "is not lora_A.weight", -EINVAL},
        {"base_model.model.model.layers.99999999999.self_attn.q_proj.lora_A.weight 2 6 F32;",
         "is not lora_A.weight", -EINVAL},
        {"model.layers.0.self_attn.q_proj.lora_A.weight 2 6 F32;", "is not lora_A.weight", -EINVAL},
        {".lora_A.weight 2 6 F32;", "is not lora_A.weight", -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuse(plain, cases[i].tensors, cases[i].code, cases[i].sentence);
}

/* An expression from a file that never comes to an end. */
static void test_pattern_when_it_explodes_does_not_match(void **state)
{
    char config[256];
    (void)snprintf(config, sizeof(config),
                   "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":\"%s\"}",
                   "((.*)*)*x");
    refuse(config, q_pair, -EINVAL, "target_modules does not name");
}

static struct adapter_config *config_of(const char *text)
{
    struct adapter_config *config = NULL;
    struct errmsg err = {""};
    json_t *json = json_of(text);
    if (adapter_config_read(json, &config, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(json);
    return config;
}

static void test_targets_when_spelt_in_each_way_match_as_peft_does(void **state)
{
    static const char q[] = "model.layers.0.self_attn.q_proj";
    struct adapter_config *list = config_of(plain);
    assert_true(adapter_config_targets(list, q));
    assert_true(adapter_config_targets(list, "q_proj"));
    assert_false(adapter_config_targets(list, "model.layers.0.self_attn.xq_proj"));
    assert_false(adapter_config_targets(list, "model.layers.0.self_attn.k_proj"));
    adapter_config_free(list);
    struct adapter_config *dotted =
        config_of("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,"
                  "\"target_modules\":[\"layers.0.self_attn.q_proj\"]}");
    assert_true(adapter_config_targets(dotted, q));
    assert_false(adapter_config_targets(dotted, "model.layers.1.self_attn.q_proj"));
    assert_false(adapter_config_targets(dotted, "model.layersX0.self_attn.q_proj"));
    adapter_config_free(dotted);
    struct adapter_config *regex = config_of("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,"
                                             "\"target_modules\":\".*[.]0[.].*_proj\"}");
    assert_true(adapter_config_targets(regex, q));
    assert_false(adapter_config_targets(regex, "model.layers.1.self_attn.q_proj"));
    assert_false(adapter_config_targets(regex, "model.layers.0.self_attn.q_proj_x"));
    adapter_config_free(regex);
    struct adapter_config *all = config_of("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,"
                                           "\"target_modules\":\"all-linear\"}");
    assert_true(adapter_config_targets(all, q));
    adapter_config_free(all);
}

static void test_factor_and_rank_when_patterns_match_are_the_modules_own(void **state)
{
    static const char v[] = "model.layers.1.self_attn.v_proj";
    struct adapter_config *c =
        config_of("{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":16,\"target_modules\":[\"x\"],"
                  "\"rank_pattern\":{\"layers.1.*v_proj\":8,\"v_proj\":2},"
                  "\"alpha_pattern\":{\"v_proj\":1}}");
    assert_int_equal(adapter_config_rank(c, v), 8);
    assert_int_equal(adapter_config_rank(c, "model.layers.0.self_attn.v_proj"), 2);
    assert_int_equal(adapter_config_rank(c, "model.layers.1.self_attn.q_proj"), 4);
    assert_true(adapter_config_factor(c, v) == 0.125f);
    assert_true(adapter_config_factor(c, "model.layers.1.self_attn.q_proj") == 4);
    adapter_config_free(c);
    c = config_of("{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":16,\"use_rslora\":true,"
                  "\"target_modules\":[\"x\"]}");
    assert_true(adapter_config_factor(c, v) == 8);
    adapter_config_free(c);
}

static void test_name_when_odd_is_not_good(void **state)
{
    char name[ADAPTER_NAME_MAX + 2];
    memset(name, 'a', sizeof(name));
    name[ADAPTER_NAME_MAX + 1] = '\0';
    assert_false(adapter_name_is_good(name));
    name[ADAPTER_NAME_MAX] = '\0';
    assert_true(adapter_name_is_good(name));
    assert_true(adapter_name_is_good("org/sql-lora_v1.2:3@x"));
    assert_false(adapter_name_is_good(""));
    assert_false(adapter_name_is_good("a b"));
    assert_false(adapter_name_is_good("a\"b"));
    assert_false(adapter_name_is_good("\xc3\xa4"));
}

static void test_folder_when_it_is_not_there_is_named(void **state)
{
    struct adapter *adapter = NULL;
    struct errmsg err = {""};
    assert_int_equal(adapter_open("/nonexistent/adapter", tiny_model(), &adapter, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/adapter/adapter_config.json"));
}

/* --- slots ----------------------------------------------------------------------------------- */

static void test_digest_when_a_value_or_factor_differs_differs(void **state)
{
    struct adapter *a[3];
    uint8_t *memory[3];
    struct errmsg err;
    const char *doubled = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8,"
                          "\"target_modules\":[\"q_proj\"]}";
    assert_int_equal(open_adapter(plain, q_pair, 0, &memory[0], &a[0], &err), 0);
    assert_int_equal(open_adapter(plain, q_pair, 2, &memory[1], &a[1], &err), 0);
    assert_int_equal(open_adapter(doubled, q_pair, 0, &memory[2], &a[2], &err), 0);
    assert_int_equal(strlen(a[0]->digest), 32);
    assert_string_not_equal(a[0]->digest, a[1]->digest);
    assert_string_not_equal(a[0]->digest, a[2]->digest);
    for (int i = 0; i < 3; i++) {
        adapter_close(a[i]);
        free(memory[i]);
    }
}

/* Values 0.. of a, then of b: rank 0 of 2 has query heads 0 and 1, so the first 4 outputs. */
static void test_slot_when_filled_has_the_slices_of_its_rank(void **state)
{
    const struct model_config *config = tiny_model();
    const struct lora_limits limits = {2, 3};
    struct lora_term terms[LORA_TERMS_MAX];
    struct adapter *adapter = NULL;
    struct lora *lora = NULL;
    struct shard shard;
    struct errmsg err = {""};
    uint8_t *memory = NULL;
    assert_int_equal(shard_compute(config, 1, 2, &shard, &err), 0);
    assert_int_equal(open_adapter(plain, q_pair, 0, &memory, &adapter, &err), 0);
    assert_int_equal(lora_new(config, &shard, &limits, NULL, &lora, &err), 0);
    assert_int_equal(lora_terms(lora, 1, 0, LORA_QKV, terms), 0);
    assert_int_equal(lora_fill(lora, 1, adapter, &err), 0);
    assert_int_equal(lora_terms(lora, 1, 0, LORA_QKV, terms), 1);
    assert_int_equal(lora_terms(lora, 0, 0, LORA_QKV, terms + 1), 0);
    assert_int_equal(lora_terms(lora, 1, 1, LORA_QKV, terms + 1), 0);
    assert_int_equal(lora_terms(lora, 1, 0, LORA_OUTPUT, terms + 1), 0);
    assert_int_equal(terms[0].rank, 2);
    assert_int_equal(terms[0].first, 0);
    assert_int_equal(terms[0].columns, 4);
    for (uint32_t k = 0; k < 6; k++) {
        assert_true(terms[0].a[k * 16] == k && terms[0].a[k * 16 + 1] == 6 + k);
        assert_true(terms[0].a[k * 16 + 2] == 0);
    }
    /* b's values begin with 12; rows 4 to 7 are this rank's; the factor is 4 / 2 */
    for (uint32_t n = 0; n < 4; n++)
        assert_true(terms[0].b[n] == 2 * (12 + 8 + 2 * n) &&
                    terms[0].b[16 + n] == 2 * (13 + 8 + 2 * n));
    assert_true(terms[0].b[4] == 0);
    adapter_close(adapter);
    lora_free(lora);
    free(memory);
}

static void test_slot_when_an_adapter_cannot_be_in_it_is_empty(void **state)
{
    const struct model_config *config = tiny_model();
    struct lora_limits limits = {1, 1};
    struct lora_term terms[LORA_TERMS_MAX];
    struct adapter *adapter = NULL;
    struct lora *lora = NULL;
    struct shard shard;
    struct errmsg err = {""};
    uint8_t *memory = NULL;
    assert_int_equal(shard_compute(config, 0, 1, &shard, &err), 0);
    assert_int_equal(open_adapter(plain, q_pair, INFINITY, &memory, &adapter, &err), 0);
    assert_int_equal(lora_new(config, &shard, &limits, NULL, &lora, &err), 0);
    assert_int_equal(lora_fill(lora, 0, adapter, &err), -EINVAL);
    assert_non_null(strstr(err.text, "rank is 2; --max-lora-rank is 1"));
    lora_free(lora);
    limits.rank = 2;
    assert_int_equal(lora_new(config, &shard, &limits, NULL, &lora, &err), 0);
    assert_int_equal(lora_fill(lora, 0, adapter, &err), -EINVAL);
    assert_non_null(strstr(err.text, "q_proj.lora_A.weight' holds a value that is not finite"));
    assert_int_equal(lora_terms(lora, 0, 0, LORA_QKV, terms), 0);
    lora_free(lora);
    adapter_close(adapter);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_when_a_kind_is_not_served_names_it),
        cmocka_unit_test(test_tensors_when_they_do_not_fit_are_named),
        cmocka_unit_test(test_pattern_when_it_explodes_does_not_match),
        cmocka_unit_test(test_targets_when_spelt_in_each_way_match_as_peft_does),
        cmocka_unit_test(test_factor_and_rank_when_patterns_match_are_the_modules_own),
        cmocka_unit_test(test_name_when_odd_is_not_good),
        cmocka_unit_test(test_folder_when_it_is_not_there_is_named),
        cmocka_unit_test(test_digest_when_a_value_or_factor_differs_differs),
        cmocka_unit_test(test_slot_when_filled_has_the_slices_of_its_rank),
        cmocka_unit_test(test_slot_when_an_adapter_cannot_be_in_it_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
