/* test_card_path.c - which reader a path gets, and what lies beside a tokenizer. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "proto/files/card_path.h"
#include "proto/files/sampling_defaults.h"
#include "proto/files/template_path.h"
#include "tests/unit/proto/files/gguf_writer.h"

static char folder[64];
static struct model_card *card;

static int setup(void **state)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/refrain-card-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "generation_config.json",
                                        "config.json",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "additional_chat_templates/tool_use.jinja",
                                        "model.gguf",
                                        "other.gguf",
                                        "tokenizer.model"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = mem_printf("%s/%s", folder, names[i]);
        (void)unlink(path);
        mem_free(path);
    }
    char *more = mem_printf("%s/additional_chat_templates", folder);
    (void)rmdir(more);
    mem_free(more);
    assert_int_equal(rmdir(folder), 0);
    model_card_unref(card);
    card = NULL;
    return 0;
}

static void write_bytes(const char *name, const void *data, size_t bytes)
{
    char *path = mem_printf("%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    mem_free(path);
}

static void write_file(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

#define TOKENIZER                                                         \
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}," \
    "{\"id\":4,\"content\":\"</s>\",\"special\":true},"                   \
    "{\"id\":5,\"content\":\"<|im_end|>\",\"special\":true}],"            \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["    \
    "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]," \
    "\"special_tokens\":{\"<s>\":{\"ids\":[3]}}},"                        \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}"

static void read_card(const char *path)
{
    struct errmsg err = {""};
    model_card_unref(card);
    card = NULL;
    if (card_from_path(path, "name", &card, &err) < 0)
        fail_msg("%s", err.text);
}

static void refuse(int code, const char *path, const char *sentence)
{
    struct errmsg err = {""};
    struct model_card *none = NULL;
    assert_int_equal(card_from_path(path, "name", &none, &err), code);
    assert_null(none);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void test_a_tokenizer_alone_is_a_card(void **state)
{
    write_file("tokenizer.json", TOKENIZER);
    read_card(folder);
    assert_string_equal(card->name, "name");
    assert_int_equal(strlen(card->fingerprint), 32);
    assert_int_equal(card->vocab_size, 6);
    assert_int_equal(card->context_tokens, INT32_MAX); /* not stated */
    assert_int_equal(card->bos, 3);                    /* the template says so */
    assert_true(card->add_bos && card->lead_count == 0);
    assert_int_equal(card->eos_count, 1); /* known by its text */
    assert_int_equal(card->eos_ids[0], 5);
    assert_true(isnan(card->temperature));
    assert_null(card->chat_template);
}

static void test_what_lies_beside_it_is_read(void **state)
{
    write_file("tokenizer.json", TOKENIZER);
    write_file(
        "tokenizer_config.json",
        "{\"bos_token\":{\"content\":\"<s>\"},\"tokenizer_class\":\"LlamaTokenizerFast\","
        "\"add_bos_token\":false,\"add_eos_token\":true,\"chat_template\":[{\"name\":\"rag\","
        "\"template\":\"no\"},{\"name\":\"default\",\"template\":\"yes\"},"
        "{\"name\":\"tool_use\",\"template\":\"tools\"}],"
        "\"added_tokens_decoder\":{\"6\":{\"content\":\"<new>\",\"special\":true}}}");
    write_file("special_tokens_map.json", "{\"eos_token\":\"</s>\",\"bos_token\":\"</s>\"}");
    write_file("generation_config.json",
               "{\"eos_token_id\":[4,2,99],\"temperature\":0.6,\"top_p\":7,\"top_k\":20}");
    write_file("config.json", "{\"model_type\":\"llama\",\"text_config\":{\"vocab_size\":64,"
                              "\"max_position_embeddings\":4096}}");
    char *path = mem_printf("%s/tokenizer.json", folder);
    read_card(path); /* the file or its directory */
    mem_free(path);
    assert_int_equal(card->tokens.count, 7);
    assert_int_equal(card->bos, 3);
    assert_int_equal(card->eos, 4);
    assert_true(!card->add_bos && card->add_eos && card->lead_count == 0);
    assert_string_equal(card->chat_template, "yes");
    assert_string_equal(card->tool_template, "tools");
    assert_string_equal(card->architecture, "llama");
    assert_int_equal(card->vocab_size, 64);
    assert_int_equal(card->context_tokens, 4096);
    assert_int_equal(card->eos_count, 3);
    assert_int_equal(card->eos_ids[0], 4);
    assert_int_equal(card->eos_ids[1], 2);
    assert_int_equal(card->eos_ids[2], 5);
    assert_true(card->temperature == 0.6 && isnan(card->top_p));
    assert_int_equal(card->top_k, 20);
}

static void test_a_template_file_wins_over_the_config(void **state)
{
    struct template_file template;
    write_file("tokenizer.json", TOKENIZER);
    write_file("tokenizer_config.json",
               "{\"chat_template\":\"old\",\"bos_token\":\"<s>\",\"eos_token\":null}");
    write_file("chat_template.json", "{\"chat_template\":\"json\"}");
    read_card(folder);
    assert_string_equal(card->chat_template, "json");
    write_file("chat_template.jinja", "{{ bos_token }}");
    read_card(folder);
    assert_string_equal(card->chat_template, "{{ bos_token }}");
    assert_int_equal(template_from_path(folder, &template, NULL), 0);
    assert_string_equal(template.source, "{{ bos_token }}");
    assert_string_equal(template.bos_token, "<s>");
    assert_null(template.eos_token);
    template_file_done(&template);
    char *path = mem_printf("%s/tokenizer_config.json", folder);
    assert_int_equal(template_from_path(path, &template, NULL), 0);
    assert_string_equal(template.source, "old");
    template_file_done(&template);
    mem_free(path);
}

static void test_a_template_of_tools_stands_beside_the_other(void **state)
{
    char *more = mem_printf("%s/additional_chat_templates", folder);
    write_file("tokenizer.json", TOKENIZER);
    write_file("tokenizer_config.json", "{\"chat_template\":[{\"name\":\"default\",\"template\":"
                                        "\"old\"},{\"name\":\"tool_use\",\"template\":\"old\"}]}");
    write_file("chat_template.jinja", "new");
    read_card(folder);
    assert_string_equal(card->chat_template, "new");
    assert_null(card->tool_template); /* the config's list does not count any more */
    assert_int_equal(mkdir(more, 0700), 0);
    write_file("additional_chat_templates/tool_use.jinja", "new tools");
    read_card(folder);
    assert_string_equal(card->chat_template, "new");
    assert_string_equal(card->tool_template, "new tools");
    mem_free(more);
}

/* --- defaults of sampling -------------------------------------------------------------------- */

static void apply(const char *source, const char *overrides)
{
    const struct sampling_rule rule = {source, overrides};
    struct errmsg err = {""};
    if (sampling_rule_apply(&rule, card, &err) < 0)
        fail_msg("%s", err.text);
}

static void refuse_rule(int code, const char *source, const char *overrides, const char *sentence)
{
    const struct sampling_rule rule = {source, overrides};
    struct errmsg err = {""};
    assert_int_equal(sampling_rule_apply(&rule, card, &err), code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void test_a_rule_says_whose_defaults_count(void **state)
{
    write_file("tokenizer.json", TOKENIZER);
    write_file("generation_config.json",
               "{\"temperature\":0.6,\"top_p\":0.9,\"min_p\":0.05,\"top_k\":20,"
               "\"repetition_penalty\":1.1,\"max_new_tokens\":100}");
    read_card(folder);
    apply("auto", NULL);
    assert_true(card->temperature == 0.6 && card->top_p == 0.9 && card->min_p == 0.05);
    assert_true(card->top_k == 20 && card->repetition_penalty == 1.1);
    assert_int_equal(card->answer_tokens_max, 100);
    apply(NULL, "{\"temperature\": 0, \"top_k\": null, \"max_new_tokens\": 7}");
    assert_true(card->temperature == 0 && card->top_p == 0.9);
    assert_int_equal(card->top_k, 0);
    assert_int_equal(card->answer_tokens_max, 7);
    apply("vllm", "{\"top_p\": 0.5}");
    assert_true(isnan(card->temperature) && card->top_p == 0.5 && isnan(card->min_p));
    assert_true(isnan(card->repetition_penalty) && card->answer_tokens_max == 0);
}

static void test_a_rule_may_name_a_folder(void **state)
{
    char other[] = "/tmp/refrain-defaults-XXXXXX";
    write_file("tokenizer.json", TOKENIZER);
    write_file("generation_config.json", "{\"temperature\":0.6,\"top_k\":20}");
    read_card(folder);
    assert_non_null(mkdtemp(other));
    char *path = mem_printf("%s/generation_config.json", other);
    refuse_rule(-ENOENT, other, NULL, path);
    assert_true(card->temperature == 0.6); /* as it was */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    (void)fputs("{\"top_p\": 0.8, \"eos_token_id\": [0, 1]}", file);
    assert_int_equal(fclose(file), 0);
    apply(other, NULL);
    assert_true(isnan(card->temperature) && card->top_p == 0.8 && card->top_k == 0);
    assert_int_equal(card->eos_count, 3); /* <|im_end|> and those */
    assert_int_equal(unlink(path) | rmdir(other), 0);
    mem_free(path);
}

static void test_overrides_that_are_wrong_are_refused_by_name(void **state)
{
    write_file("tokenizer.json", TOKENIZER);
    read_card(folder);
    refuse_rule(-EINVAL, NULL, "{", "--override-generation-config: JSON");
    refuse_rule(-EINVAL, NULL, "[1]", "is not a JSON object");
    refuse_rule(-EINVAL, NULL, "{\"temprature\": 1}",
                "'temprature' is unknown; known: temperature");
    refuse_rule(-EINVAL, NULL, "{\"top_p\": 0}", "'top_p' is no number above 0 and at most 1");
    refuse_rule(-EINVAL, NULL, "{\"top_k\": 1.5}", "'top_k' is no integer from 0");
    refuse_rule(-EINVAL, NULL, "{\"min_p\": \"x\"}", "'min_p' is no number");
}

static void test_a_gguf_is_read_by_its_first_bytes(void **state)
{
    static const char *const words[] = {"<s>", "a", "b", "ab"};
    static const int32_t types[] = {3, 1, 1, 1};
    static const char *const merges[] = {"a b"};
    struct gguf_writer w;
    size_t bytes = 0;
    writer_init(&w);
    write_text(&w, "general.architecture", "llama");
    write_u32(&w, "llama.context_length", 77);
    write_text(&w, "tokenizer.ggml.model", "gpt2");
    write_text(&w, "tokenizer.ggml.pre", "qwen2");
    write_texts(&w, "tokenizer.ggml.tokens", words, 4);
    write_array(&w, "tokenizer.ggml.token_type", 5, 4, types, sizeof(types));
    write_texts(&w, "tokenizer.ggml.merges", merges, 1);
    write_text(&w, "tokenizer.chat_template", "tpl");
    write_text(&w, "tokenizer.chat_template.tool_use", "tools");
    void *data = writer_finish(&w, &bytes);
    write_bytes("model.gguf", data, bytes);
    read_card(folder); /* the only one there */
    assert_string_equal(card->pre, "qwen2");
    assert_string_equal(card->architecture, "llama");
    assert_int_equal(card->context_tokens, 77);
    assert_int_equal(card->vocab_size, 4);
    assert_string_equal(card->chat_template, "tpl");
    assert_string_equal(card->tool_template, "tools");
    write_bytes("other.gguf", data, bytes);
    refuse(-EINVAL, folder, "has 2 GGUF files");
    write_file("tokenizer.json", TOKENIZER); /* comes first */
    read_card(folder);
    assert_string_equal(card->pre, "");
    free(data);
    writer_done(&w);
}

static void test_paths_without_a_tokenizer_are_refused(void **state)
{
    refuse(-ENOENT, "/nowhere/at/all", "/nowhere/at/all");
    refuse(-ENOENT, folder, "has no tokenizer; supported: a GGUF, tokenizer.json");
    write_file("tokenizer.json", "{  }");
    refuse(-EINVAL, folder, "tokenizer.json: no object 'model'");
    write_file("tokenizer.json", TOKENIZER);
    write_file("tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}");
    refuse(-EINVAL, folder, "added_tokens_decoder 'x'");
    write_file("tokenizer_config.json", "{");
    refuse(-EINVAL, folder, "tokenizer_config.json: JSON:");
    write_file("tokenizer.model", "ab");
    char *path = mem_printf("%s/tokenizer.model", folder);
    write_file("tokenizer_config.json", "{}");
    refuse(-EINVAL, path, "has 2 bytes");
    write_file("tokenizer.model", "\n\n\n\n\n\n");
    refuse(-EINVAL, path, "not a SentencePiece model");
    mem_free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_tokenizer_alone_is_a_card),
        TEST(test_what_lies_beside_it_is_read),
        TEST(test_a_template_file_wins_over_the_config),
        TEST(test_a_template_of_tools_stands_beside_the_other),
        TEST(test_a_rule_says_whose_defaults_count),
        TEST(test_a_rule_may_name_a_folder),
        TEST(test_overrides_that_are_wrong_are_refused_by_name),
        TEST(test_a_gguf_is_read_by_its_first_bytes),
        TEST(test_paths_without_a_tokenizer_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
