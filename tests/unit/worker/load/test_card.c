/* test_card.c - a model's words from its file: tokens, switches, ends of an answer, fingerprint. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/unit/proto/files/gguf_writer.h"
#include "worker/load/card.h"

static const char *const words[10] = {"<s>",        "<|im_end|>", "a",           "b", "ab",
                                      "<|eot_id|>", "c",          "<|im_end|>x", "d", "e"};
static const int32_t types[10] = {3, 4, 1, 1, 0, 3, 1, 3, 6, 1};
static const char *const merges[] = {"a b"};

static struct gguf_writer w;

static int setup(void **state)
{
    writer_init(&w);
    write_llama_keys(&w, &llama_small);
    write_llama_tensors(&w, &llama_small);
    return 0;
}

static int teardown(void **state)
{
    writer_done(&w);
    return 0;
}

static void write_bpe(const char *pre)
{
    write_text(&w, "tokenizer.ggml.model", "gpt2");
    write_text(&w, "tokenizer.ggml.pre", pre);
    write_texts(&w, "tokenizer.ggml.tokens", words, 10);
    write_array(&w, "tokenizer.ggml.token_type", 5, 10, types, sizeof(types));
    write_texts(&w, "tokenizer.ggml.merges", merges, 1);
    write_u32(&w, "tokenizer.ggml.bos_token_id", 0);
    write_u32(&w, "tokenizer.ggml.eos_token_id", 9);
}

static int read_card(struct model_card **ret_card, struct errmsg *err)
{
    struct gguf *gguf = NULL;
    struct model_config config;
    size_t bytes = 0;
    void *data = writer_finish(&w, &bytes);
    assert_int_equal(gguf_open_memory(data, bytes, &gguf, err), 0);
    struct model_source *source = model_source_of_gguf(gguf);
    assert_int_equal(model_config_read(source, &config, err), 0);
    int r = card_from_source(source, &config, "tiny", NULL, ret_card, err);
    model_source_close(source);
    free(data); /* the card must not point into the file */
    return r;
}

static struct model_card *card_of(void)
{
    struct errmsg err = {""};
    struct model_card *card = NULL;
    if (read_card(&card, &err) < 0)
        fail_msg("%s", err.text);
    return card;
}

static void refuse(int code, const char *sentence)
{
    struct errmsg err = {""};
    struct model_card *card = NULL;
    assert_int_equal(read_card(&card, &err), code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
    teardown(NULL);
    setup(NULL);
}

static void test_bpe_when_complete_fills_the_card(void **state)
{
    size_t bytes = 0;
    write_bpe("smollm");
    write_text(&w, "tokenizer.chat_template", "{{ messages }}");
    write_f32(&w, "general.sampling.temp", 0.25f);
    struct model_card *card = card_of();
    assert_string_equal(card->name, "tiny");
    assert_string_equal(card->architecture, "llama");
    assert_int_equal(card->context_tokens, 64);
    assert_int_equal(card->vocab_size, 10);
    assert_int_equal(card->tokenizer, TOKENIZER_BPE);
    assert_string_equal(card->pre, "smollm");
    assert_int_equal(card->tokens.count, 10);
    assert_memory_equal(string_table_get(&card->tokens, 4, &bytes), "ab", 2);
    assert_int_equal(bytes, 2);
    assert_int_equal(card->merges.count, 1);
    assert_memory_equal(string_table_get(&card->merges, 0, &bytes), "a b", 3);
    assert_int_equal(card->token_types[0], TOKEN_CONTROL);
    assert_int_equal(card->token_types[4], TOKEN_NORMAL); /* 0 in the file: not stated */
    assert_null(card->scores);
    assert_int_equal(card->bos, 0);
    assert_int_equal(card->eos, 9);
    assert_int_equal(card->unk, TOKEN_ID_NONE);
    assert_false(card->add_bos || card->add_space_prefix || card->ignore_merges);
    assert_string_equal(card->chat_template, "{{ messages }}");
    assert_int_equal(strlen(card->fingerprint), 32);
    assert_true(card->temperature == 0.25 && isnan(card->top_p));
    model_card_unref(card);
}

static void test_ends_when_control_tokens_are_known_come_after_the_stated_one(void **state)
{
    write_bpe("smollm");
    struct model_card *card = card_of();
    assert_int_equal(card->eos_count, 3);
    assert_int_equal(card->eos_ids[0], 9); /* stated */
    assert_int_equal(card->eos_ids[1], 1); /* <|im_end|>, user-defined */
    assert_int_equal(card->eos_ids[2], 5); /* <|eot_id|> */
    model_card_unref(card);
}

static void test_switches_when_the_pre_tokenizer_implies_them_are_set(void **state)
{
    write_bpe("llama-bpe");
    struct model_card *card = card_of();
    assert_true(card->add_bos && card->ignore_merges);
    model_card_unref(card);
    teardown(NULL);
    setup(NULL);
    write_bpe("qwen2");
    write_bool(&w, "tokenizer.ggml.add_bos_token", true); /* the key wins */
    card = card_of();
    assert_true(card->add_bos && card->normalize_nfc);
    model_card_unref(card);
}

static void test_sentencepiece_when_read_has_scores_and_a_space_prefix(void **state)
{
    const float scores[10] = {0, -1, -2};
    write_text(&w, "tokenizer.ggml.model", "llama");
    write_texts(&w, "tokenizer.ggml.tokens", words, 10);
    write_array(&w, "tokenizer.ggml.scores", 6, 10, scores, sizeof(scores));
    struct model_card *card = card_of();
    assert_int_equal(card->tokenizer, TOKENIZER_SPM);
    assert_true(card->scores[2] == -2.0f);
    assert_true(card->add_bos && card->add_space_prefix);
    assert_int_equal(card->token_types[0], TOKEN_NORMAL); /* no types in the file */
    model_card_unref(card);
}

static void test_tokenizers_when_incomplete_are_refused(void **state)
{
    const float scores[9] = {0};
    const int32_t bad_types[10] = {7};
    refuse(-EINVAL, "the file has no tokenizer");
    write_text(&w, "tokenizer.ggml.model", "rwkv");
    refuse(-ENOTSUP, "supported: gpt2, llama, t5");
    write_text(&w, "tokenizer.ggml.model", "gpt2");
    refuse(-EINVAL, "key 'tokenizer.ggml.tokens'");
    write_text(&w, "tokenizer.ggml.model", "gpt2");
    write_texts(&w, "tokenizer.ggml.tokens", words, 10);
    refuse(-EINVAL, "key 'tokenizer.ggml.merges'");
    write_text(&w, "tokenizer.ggml.model", "llama");
    write_texts(&w, "tokenizer.ggml.tokens", words, 10);
    refuse(-EINVAL, "key 'tokenizer.ggml.scores' is missing");
    write_text(&w, "tokenizer.ggml.model", "llama");
    write_texts(&w, "tokenizer.ggml.tokens", words, 10);
    write_array(&w, "tokenizer.ggml.scores", 6, 9, scores, sizeof(scores));
    refuse(-EINVAL, "key 'tokenizer.ggml.scores' is not 10 numbers");
    write_text(&w, "tokenizer.ggml.model", "gpt2");
    write_texts(&w, "tokenizer.ggml.tokens", words, 10);
    write_texts(&w, "tokenizer.ggml.merges", merges, 1);
    write_array(&w, "tokenizer.ggml.token_type", 5, 10, bad_types, sizeof(bad_types));
    refuse(-EINVAL, "token 0 has type 7");
    write_bpe("smollm");
    write_u32(&w, "tokenizer.ggml.unknown_token_id", 10);
    refuse(-EINVAL, "key 'tokenizer.ggml.unknown_token_id' is not one of 10 tokens");
    write_bpe("smollm");
    write_key(&w, "tokenizer.chat_template", 8, "\3\0\0\0\0\0\0\0a\0b", 11);
    refuse(-EINVAL, "tokenizer.chat_template");
}

static void test_fingerprint_when_one_weight_word_or_template_differs_differs(void **state)
{
    write_bpe("smollm");
    struct model_card *base = card_of(), *again = card_of();
    assert_string_equal(base->fingerprint, again->fingerprint);
    model_card_unref(again);
    w.data.data[4] ^= 1; /* one bit of the embedding */
    again = card_of();
    assert_string_not_equal(base->fingerprint, again->fingerprint);
    model_card_unref(again);
    w.data.data[4] ^= 1;
    write_text(&w, "tokenizer.chat_template", "x");
    again = card_of();
    assert_string_not_equal(base->fingerprint, again->fingerprint);
    model_card_unref(again);
    model_card_unref(base);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bpe_when_complete_fills_the_card),
        TEST(test_ends_when_control_tokens_are_known_come_after_the_stated_one),
        TEST(test_switches_when_the_pre_tokenizer_implies_them_are_set),
        TEST(test_sentencepiece_when_read_has_scores_and_a_space_prefix),
        TEST(test_tokenizers_when_incomplete_are_refused),
        TEST(test_fingerprint_when_one_weight_word_or_template_differs_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
