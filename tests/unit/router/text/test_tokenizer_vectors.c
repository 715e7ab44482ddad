/* test_tokenizer_vectors.c - ids that other people's tokenizers gave, all of them, exactly.
 *
 * A file that is absent counts as skipped and is said so aloud; when none is there, exit 77. */
#include <cmocka.h>

#include "router/text/detokenize.h"
#include "router/text/tokenizer.h"
#include "tests/unit/router/text/cards.h"

#define IDS_MAX 1000000

struct tally {
    size_t right, cases;
};

static int skipped; /* tests without their file: the program then says so to ctest */

static void skip_aloud(void)
{
    skipped++;
    skip();
}

static struct tokenizer *make_tokenizer(struct model_card *card)
{
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {{0}};
    if (tokenizer_new(card, &tokenizer, &err) < 0)
        fail_msg("%s", err.text);
    model_card_unref(card);
    return tokenizer;
}

static void print_ids(const char *what, const struct token_ids *ids)
{
    printf("  %s:", what);
    for (size_t i = 0; i < ids->count; i++)
        printf(" %u", ids->ids[i]);
    printf("\n");
}

/* Encode as `options` say and compare; then decode, which must give the text again. */
static bool check_case(struct tokenizer *tokenizer, const json_t *text, const json_t *expected,
                       const struct tokenize_options *options)
{
    const char *bytes = json_string_value(text);
    size_t count = json_string_length(text);
    struct token_ids ids, want;
    struct buffer back;
    struct detokenizer detokenizer;
    bool spm = tokenizer_card(tokenizer)->tokenizer == TOKENIZER_SPM;
    token_ids_init(&ids, IDS_MAX);
    token_ids_init(&want, IDS_MAX);
    buffer_init(&back, 16u << 20);
    assert_int_equal(tokenizer_encode(tokenizer, bytes, count, options, &ids), 0);
    for (size_t i = 0; i < json_array_size(expected); i++)
        assert_int_equal(
            token_ids_add(&want, (uint32_t)json_integer_value(json_array_get(expected, i))), 0);
    bool right = ids.count == want.count &&
                 memcmp(ids.ids == NULL ? "" : (void *)ids.ids,
                        want.ids == NULL ? "" : (void *)want.ids, ids.count * 4) == 0;
    if (!right) {
        printf("  wrong: '%s'\n", bytes);
        print_ids("got", &ids);
        print_ids("want", &want);
    }
    detokenizer_init(&detokenizer, tokenizer, true, spm);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(detokenizer_push(&detokenizer, ids.ids[i], &back), 0);
    detokenizer_finish(&detokenizer, &back);
    assert_int_equal(back.bytes, count);
    assert_memory_equal(back.data, bytes, count);
    token_ids_done(&ids);
    token_ids_done(&want);
    buffer_done(&back);
    return right;
}

/* One vocabulary of ggml-vectors.json. */
static void check_ggml(const char *name, struct model_card *card)
{
    const struct tokenize_options options = {0};
    json_t *root = read_json(CASES_DIR "ggml-vectors.json");
    struct tally tally = {0};
    if (card == NULL || root == NULL)
        skip_aloud();
    struct tokenizer *tokenizer = make_tokenizer(card);
    const json_t *inputs = json_object_get(root, "inputs");
    const json_t *expected = json_object_get(json_object_get(root, "expected"), name);
    for (size_t i = 0; i < json_array_size(inputs); i++, tally.cases++)
        tally.right +=
            check_case(tokenizer, json_array_get(inputs, i), json_array_get(expected, i), &options);
    printf("ggml-vectors.json %s: %zu of %zu\n", name, tally.right, tally.cases);
    assert_int_equal(tally.cases, 46);
    assert_int_equal(tally.right, tally.cases);
    tokenizer_free(tokenizer);
    json_decref(root);
}

static void test_ggml_vectors_gpt2(void **state)
{
    (void)state;
    check_ggml("gpt-2", card_from_gguf(CASES_DIR "ggml-vocab-gpt-2.gguf.gz"));
}

static void test_ggml_vectors_starcoder(void **state)
{
    (void)state;
    check_ggml("starcoder", card_from_gguf(CASES_DIR "ggml-vocab-starcoder.gguf.gz"));
}

static void test_ggml_vectors_deepseek_llm(void **state)
{
    (void)state;
    check_ggml("deepseek-llm", card_from_gguf(CASES_DIR "ggml-vocab-deepseek-llm.gguf.gz"));
}

static void test_ggml_vectors_phi3(void **state)
{
    (void)state;
    check_ggml("phi-3", card_from_gguf(CASES_DIR "ggml-vocab-phi-3.gguf.gz"));
}

static void test_ggml_vectors_qwen2(void **state)
{
    (void)state;
    check_ggml("qwen2", card_from_qwen2());
}

/* One encoding of tiktoken.vectors.json; the two cases with a note want special tokens parsed. */
static void check_tiktoken(const char *encoding, struct model_card *card, size_t cases)
{
    json_t *root = read_json(CASES_DIR "tiktoken.vectors.json");
    struct tally tally = {0};
    size_t i = 0;
    json_t *one = NULL;
    if (card == NULL || root == NULL)
        skip_aloud();
    struct tokenizer *tokenizer = make_tokenizer(card);
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        const struct tokenize_options options = {.parse_special =
                                                     json_object_get(one, "note") != NULL};
        if (strcmp(json_string_value(json_object_get(one, "encoding")), encoding) != 0)
            continue;
        tally.right += check_case(tokenizer, json_object_get(one, "text"),
                                  json_object_get(one, "ids"), &options);
        tally.cases++;
    }
    printf("tiktoken.vectors.json %s: %zu of %zu\n", encoding, tally.right, tally.cases);
    assert_int_equal(tally.cases, cases);
    assert_int_equal(tally.right, tally.cases);
    tokenizer_free(tokenizer);
    json_decref(root);
}

static void test_tiktoken_vectors_r50k(void **state)
{
    (void)state;
    check_tiktoken("r50k_base", card_from_gguf(CASES_DIR "ggml-vocab-gpt-2.gguf.gz"), 84);
}

static void test_tiktoken_vectors_o200k(void **state)
{
    (void)state;
    check_tiktoken("o200k_base", card_from_tiktoken(CASES_DIR "o200k_base.tiktoken.gz", "o200k"),
                   57);
}

static void test_tiny_tokenizer_json(void **state)
{
    const struct tokenize_options options = {.parse_special = true};
    const char *folder = SHARED_DIR "/golden/tiny/tokenizer/";
    char path[1024];
    struct tally tally = {0};
    size_t i = 0;
    json_t *one = NULL;
    (void)state;
    (void)snprintf(path, sizeof(path), "%scases.json", folder);
    json_t *cases = read_json(path);
    (void)snprintf(path, sizeof(path), "%stokenizer.json", folder);
    struct model_card *card = card_from_tokenizer_json(path);
    if (card == NULL || cases == NULL)
        skip_aloud();
    struct tokenizer *tokenizer = make_tokenizer(card);
    json_array_foreach(cases, i, one)
    {
        tally.right += check_case(tokenizer, json_object_get(one, "text"),
                                  json_object_get(one, "ids"), &options);
        tally.cases++;
    }
    printf("tiny/tokenizer/cases.json: %zu of %zu\n", tally.right, tally.cases);
    assert_int_equal(tally.cases, 6);
    assert_int_equal(tally.right, tally.cases);
    tokenizer_free(tokenizer);
    json_decref(cases);
}

static void test_smollm2_golden_prompts(void **state)
{
    const struct tokenize_options options = {.parse_special = true};
    json_t *root = read_json(SHARED_DIR "/golden/smollm2-135m-q4_1.json");
    struct model_card *card = card_from_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf"));
    struct tally tally = {0};
    size_t i = 0;
    json_t *one = NULL;
    (void)state;
    if (root == NULL || card == NULL)
        skip_aloud();
    struct tokenizer *tokenizer = make_tokenizer(card);
    json_array_foreach(json_object_get(root, "prompts"), i, one)
    {
        tally.right += check_case(tokenizer, json_object_get(one, "text"),
                                  json_object_get(one, "ids"), &options);
        tally.cases++;
    }
    const json_t *text = json_object_get(root, "text");
    tally.right += check_case(tokenizer, json_object_get(text, "text"),
                              json_object_get(text, "ids"), &options);
    tally.cases++;
    printf("smollm2-135m-q4_1.json: %zu of %zu\n", tally.right, tally.cases);
    assert_int_equal(tally.cases, 17);
    assert_int_equal(tally.right, tally.cases);
    tokenizer_free(tokenizer);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ggml_vectors_gpt2),
        cmocka_unit_test(test_ggml_vectors_starcoder),
        cmocka_unit_test(test_ggml_vectors_deepseek_llm),
        cmocka_unit_test(test_ggml_vectors_phi3),
        cmocka_unit_test(test_ggml_vectors_qwen2),
        cmocka_unit_test(test_tiktoken_vectors_r50k),
        cmocka_unit_test(test_tiktoken_vectors_o200k),
        cmocka_unit_test(test_tiny_tokenizer_json),
        cmocka_unit_test(test_smollm2_golden_prompts),
    };
    if (access(CASES_DIR, R_OK) != 0) {
        printf("skipped: %s is absent\n", CASES_DIR);
        return 77;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    if (r == 0 && skipped > 0)
        printf("skipped: %d of %zu tests have no file\n", skipped,
               sizeof(tests) / sizeof(tests[0]));
    return r == 0 && skipped > 0 ? 77 : r;
}
