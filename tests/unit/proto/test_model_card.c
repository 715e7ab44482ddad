/* test_model_card.c - a card survives the wire whole, and no bytes from outside get past the
 * checks. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/mem.h"
#include "proto/model_card.h"
#include "proto/model_card_private.h"

#define HEADER_BYTES 24
#define NUMBERS_BYTES 192

static const char *const words[] = {"a", "b", "", "ab", "<|end|>", "\xc4\xa0"};
#define WORDS 6
static const uint8_t types[WORDS] = {1, 1, 5, 1, 3, 1};
static const uint8_t flags[WORDS] = {0, 0, 0, 0, TOKEN_RSTRIP, 0};
static const float scores[WORDS] = {-1.5f, 0, 1, 2, 3, 1e9f};

static void add_table(struct model_card *card, struct string_table *table, const char *const *texts,
                      size_t count)
{
    struct string_table_builder builder;
    string_table_builder_init(&builder);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(string_table_builder_add(&builder, texts[i], strlen(texts[i])), 0);
    string_table_builder_move(&builder, card, table);
}

static struct model_card *make_card(bool all)
{
    const char *merges[] = {"a b"};
    const char *patterns[] = {"\\p{N}", "\\s+"};
    struct model_card *card = model_card_new();
    card->name = mem_strdup("tiny");
    card->architecture = mem_strdup("llama");
    card->fingerprint = mem_strdup("00112233445566778899aabbccddeeff");
    card->context_tokens = 8192;
    card->vocab_size = 8;
    add_table(card, &card->tokens, words, WORDS);
    model_card_set_types(card, types, all ? flags : NULL, all ? scores : NULL);
    if (!all)
        return card;
    card->pre = mem_strdup("smollm");
    card->tokenizer = TOKENIZER_UNIGRAM;
    add_table(card, &card->merges, merges, 1);
    add_table(card, &card->pretokenizers, patterns, 2);
    card->bos = 4;
    card->eos = 5;
    card->pad = 0;
    card->add_bos = card->remove_extra_whitespaces = card->normalize_nfc = true;
    card->chat_template = mem_strdup("{{ messages }}");
    card->tool_template = mem_strdup("{{ tools }}");
    card->eos_ids[0] = 4;
    card->eos_ids[1] = 5;
    card->eos_count = 2;
    card->temperature = 0.25;
    card->min_p = 0.125;
    card->answer_tokens_max = 300;
    card->top_k = 40;
    return card;
}

static void assert_string(const struct string_table *table, uint32_t i, const char *expected)
{
    size_t bytes = 0;
    const char *text = string_table_get(table, i, &bytes);
    assert_int_equal(bytes, strlen(expected));
    assert_memory_equal(text, expected, bytes);
}

static char *pack(const struct model_card *card, size_t *ret_bytes)
{
    struct errmsg err = {{0}};
    void *data = NULL;
    assert_int_equal(model_card_pack(card, &data, ret_bytes, &err), 0);
    return data;
}

static void test_pack_then_unpack_gives_the_same_card(void **state)
{
    struct model_card *card = make_card(true), *back = NULL;
    struct errmsg err = {{0}};
    size_t bytes = 0;
    (void)state;
    char *data = pack(card, &bytes);
    assert_int_equal(model_card_unpack(data, bytes, &back, &err), 0);
    memset(data, 0xff, bytes); /* the card has a copy of its own */
    mem_free(data);
    assert_string_equal(back->name, "tiny");
    assert_string_equal(back->architecture, "llama");
    assert_string_equal(back->fingerprint, "00112233445566778899aabbccddeeff");
    assert_string_equal(back->pre, "smollm");
    assert_string_equal(back->chat_template, "{{ messages }}");
    assert_int_equal(back->context_tokens, 8192);
    assert_int_equal(back->vocab_size, 8);
    assert_int_equal(back->tokenizer, TOKENIZER_UNIGRAM);
    assert_int_equal(back->tokens.count, WORDS);
    for (uint32_t i = 0; i < WORDS; i++)
        assert_string(&back->tokens, i, words[i]);
    assert_string(&back->merges, 0, "a b");
    assert_int_equal(back->pretokenizers.count, 2);
    assert_string(&back->pretokenizers, 1, "\\s+");
    assert_memory_equal(back->token_types, types, WORDS);
    assert_memory_equal(back->token_flags, flags, WORDS);
    assert_memory_equal(back->scores, scores, sizeof(scores));
    assert_int_equal(back->bos, 4);
    assert_int_equal(back->eos, 5);
    assert_int_equal(back->eot, TOKEN_ID_NONE);
    assert_int_equal(back->pad, 0);
    assert_true(back->add_bos && back->remove_extra_whitespaces && back->normalize_nfc);
    assert_false(back->add_eos || back->add_space_prefix || back->ignore_merges);
    assert_int_equal(back->eos_count, 2);
    assert_int_equal(back->eos_ids[1], 5);
    assert_true(back->temperature == 0.25 && back->min_p == 0.125);
    assert_int_equal(back->answer_tokens_max, 300);
    assert_string_equal(back->tool_template, "{{ tools }}");
    assert_true(isnan(back->top_p) && isnan(back->repetition_penalty));
    assert_int_equal(back->top_k, 40);
    model_card_unref(back);
    model_card_unref(card);
}

static void test_pack_when_optional_parts_are_absent_keeps_them_absent(void **state)
{
    struct model_card *card = make_card(false), *back = NULL;
    size_t bytes = 0;
    (void)state;
    char *data = pack(card, &bytes);
    assert_int_equal(model_card_unpack(data, bytes, &back, NULL), 0);
    assert_null(back->chat_template);
    assert_null(back->token_flags);
    assert_null(back->scores);
    assert_string_equal(back->pre, "");
    assert_int_equal(back->merges.count, 0);
    assert_int_equal(back->pretokenizers.count, 0);
    assert_int_equal(back->bos, TOKEN_ID_NONE);
    mem_free(data);
    model_card_unref(back);
    model_card_unref(card);
}

static void test_unref_frees_only_with_the_last_reference(void **state)
{
    struct model_card *card = make_card(true);
    (void)state;
    assert_ptr_equal(model_card_ref(card), card);
    assert_int_equal(card->refs, 2);
    model_card_unref(card);
    assert_string_equal(card->name, "tiny");
    model_card_unref(card);
    model_card_unref(NULL);
}

static void assert_refused(struct model_card *card, const char *sentence)
{
    struct errmsg err = {{0}};
    void *data = NULL;
    size_t bytes = 0;
    assert_int_equal(model_card_check(card, &err), -EINVAL);
    assert_non_null(strstr(err.text, sentence));
    assert_int_equal(model_card_pack(card, &data, &bytes, &err), -EINVAL);
    assert_null(data);
    model_card_unref(card);
}

static void test_check_names_what_is_wrong(void **state)
{
    static const float bad_scores[WORDS] = {0, 0, 0, NAN, 0, 0};
    static const uint8_t bad_types[WORDS] = {1, 1, 1, 1, 7, 1};
    struct model_card *card;
    (void)state;
    card = model_card_new();
    assert_refused(card, "no model name");
    card = make_card(true);
    card->name[0] = '\n';
    assert_refused(card, "name is not printable");
    card = make_card(true);
    card->fingerprint[31] = 'G';
    assert_refused(card, "fingerprint");
    card = make_card(true);
    card->bos = WORDS;
    assert_refused(card, "bos id 6, but only 6 tokens");
    card = make_card(true);
    card->eos_ids[1] = TOKEN_ID_NONE;
    assert_refused(card, "end-of-answer id");
    card = make_card(true);
    card->eos_count = MODEL_CARD_EOS_MAX + 1;
    assert_refused(card, "17 end-of-answer ids, at most 16");
    card = make_card(true);
    model_card_set_types(card, types, NULL, bad_scores);
    assert_refused(card, "score of token 3");
    card = make_card(true);
    model_card_set_types(card, bad_types, NULL, NULL);
    assert_refused(card, "token 4 has type 7");
    card = make_card(true);
    card->context_tokens = 0;
    assert_refused(card, "context of 0 tokens");
    card = make_card(true);
    card->tokenizer = TOKENIZER_MODELS;
    assert_refused(card, "unknown tokenizer model 3");
}

/* Set a number in the packed bytes and make the checksum right again. */
static void forge(char *data, size_t bytes, size_t at, uint32_t value)
{
    memcpy(data + at, &value, sizeof(value));
    uint64_t checksum = XXH3_64bits(data + HEADER_BYTES, bytes - HEADER_BYTES);
    memcpy(data + 16, &checksum, sizeof(checksum));
}

static void assert_unpack_refused(const char *data, size_t bytes, const char *sentence)
{
    struct errmsg err = {{0}};
    struct model_card *card = NULL;
    assert_int_equal(model_card_unpack(data, bytes, &card, &err), -EINVAL);
    assert_null(card);
    assert_non_null(strstr(err.text, sentence));
}

static void test_unpack_when_cut_at_any_byte_is_refused(void **state)
{
    struct model_card *card = make_card(true);
    size_t bytes = 0;
    (void)state;
    char *data = pack(card, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        char *part = malloc(cut + 1); /* exact size: the sanitizer sees a read past the end */
        memcpy(part, data, cut);
        assert_unpack_refused(part, cut, "packed model card");
        if (cut >= HEADER_BYTES) { /* the same with a header that agrees with the cut */
            uint32_t said = (uint32_t)cut;
            memcpy(part + 8, &said, sizeof(said));
            forge(part, cut, 12, 0);
            assert_unpack_refused(part, cut, "model card");
        }
        free(part);
    }
    mem_free(data);
    model_card_unref(card);
}

static void test_unpack_when_any_byte_is_flipped_is_refused(void **state)
{
    struct model_card *card = make_card(true);
    size_t bytes = 0;
    (void)state;
    char *data = pack(card, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        data[i] ^= 0x10;
        assert_unpack_refused(data, bytes, "packed model card");
        data[i] ^= 0x10;
    }
    mem_free(data);
    model_card_unref(card);
}

static void test_unpack_when_a_forged_count_is_huge_is_refused(void **state)
{
    struct model_card *card = make_card(false);
    const size_t name_at = HEADER_BYTES;
    /* "tiny", "llama" + 3, 32 hex digits; after the numbers three texts that are absent */
    const size_t numbers_at = name_at + (4 + 4) + (4 + 8) + (4 + 32);
    const size_t patterns_at = numbers_at + NUMBERS_BYTES + 3 * 4;
    const size_t tokens_at = patterns_at + 2 * (8 + 4);
    size_t bytes = 0;
    (void)state;
    char *data = pack(card, &bytes);
    char *copy = malloc(bytes);
    const struct {
        size_t at;
        uint32_t value;
        const char *sentence;
    } forgeries[] = {
        {name_at, 0xfffffffe, "name needs 4294967294 bytes"},
        {name_at + 4, 0x00414141, "name holds a NUL"},
        {tokens_at, UINT32_MAX, "tokens needs 17179869184 bytes"},
        {tokens_at, MODEL_CARD_TOKENS_MAX + 1, "tokens needs"},
        {tokens_at + 4, 12, "tokens end at 13, not at 12"},
        {tokens_at + 8, 1, "do not begin at offset 0"},
        {tokens_at + 12, 0x7fffffff, "offsets of tokens fall at 1"},
        {numbers_at + 8, 9, "unknown tokenizer model"},
        {numbers_at + 12, 512, "unknown bits 0x200"},
    };
    for (size_t i = 0; i < sizeof(forgeries) / sizeof(forgeries[0]); i++) {
        memcpy(copy, data, bytes);
        forge(copy, bytes, forgeries[i].at, forgeries[i].value);
        assert_unpack_refused(copy, bytes, forgeries[i].sentence);
    }
    free(copy);
    mem_free(data);
    model_card_unref(card);
}

static void test_unpack_when_too_big_says_emsgsize(void **state)
{
    struct model_card *card = NULL;
    struct errmsg err = {{0}};
    (void)state;
    assert_int_equal(model_card_unpack("", (size_t)MODEL_CARD_BYTES_MAX + 1, &card, &err),
                     -EMSGSIZE);
    assert_null(card);
}

static void test_unpack_when_the_version_is_newer_names_both(void **state)
{
    struct model_card *card = make_card(true);
    size_t bytes = 0;
    (void)state;
    char *data = pack(card, &bytes);
    forge(data, bytes, 4, MODEL_CARD_VERSION + 1);
    assert_unpack_refused(data, bytes, "version 4, this build speaks 3");
    mem_free(data);
    model_card_unref(card);
}

static void test_builder_when_a_table_outgrows_a_card_says_e2big(void **state)
{
    struct string_table_builder builder;
    (void)state;
    string_table_builder_init(&builder);
    assert_int_equal(string_table_builder_add(&builder, "", 0), 0);
    assert_int_equal(string_table_builder_add(&builder, "", (size_t)MODEL_CARD_BYTES_MAX + 1),
                     -E2BIG);
    assert_int_equal(builder.count, 1);
    string_table_builder_done(&builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack_then_unpack_gives_the_same_card),
        cmocka_unit_test(test_pack_when_optional_parts_are_absent_keeps_them_absent),
        cmocka_unit_test(test_unref_frees_only_with_the_last_reference),
        cmocka_unit_test(test_check_names_what_is_wrong),
        cmocka_unit_test(test_unpack_when_cut_at_any_byte_is_refused),
        cmocka_unit_test(test_unpack_when_any_byte_is_flipped_is_refused),
        cmocka_unit_test(test_unpack_when_a_forged_count_is_huge_is_refused),
        cmocka_unit_test(test_unpack_when_too_big_says_emsgsize),
        cmocka_unit_test(test_unpack_when_the_version_is_newer_names_both),
        cmocka_unit_test(test_builder_when_a_table_outgrows_a_card_says_e2big),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
