/* test_detokenize.c - pieces are whole UTF-8, no byte is lost, and ids give their text back. */
#include <cmocka.h>
#include <errno.h>

#include "router/text/detokenize.h"
#include "router/text/unicode.h"
#include "tests/unit/router/text/tiny_cards.h"

#define BAD "\xef\xbf\xbd"

static const struct tiny_token words[] = {
    {"<s>", TOKEN_CONTROL, 0, 0},
    {"<tool>", TOKEN_USER_DEFINED, 0, 0},
    {"\xc4\xa0hi", TOKEN_NORMAL, 0, 0},
};
enum { CONTROL = 256, TOOL, HI };

static struct tokenizer *make(struct model_card *card)
{
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {{0}};
    if (tokenizer_new(card, &tokenizer, &err) < 0)
        fail_msg("%s", err.text);
    model_card_unref(card);
    return tokenizer;
}

static struct tokenizer *make_words(void)
{
    return make(tiny_bpe("gpt-2", words, 3, NO_MERGES));
}

/* Push each id on its own: every piece must be valid UTF-8; joined they are `expected`. */
static void check(struct tokenizer *tokenizer, bool keep_special, const uint32_t *ids, size_t count,
                  const char *expected)
{
    struct detokenizer detokenizer;
    struct buffer all;
    buffer_init(&all, 1000);
    detokenizer_init(&detokenizer, tokenizer, keep_special, false);
    for (size_t i = 0; i <= count; i++) {
        size_t before = all.bytes;
        if (i < count)
            assert_int_equal(detokenizer_push(&detokenizer, ids[i], &all), 0);
        else
            detokenizer_finish(&detokenizer, &all);
        assert_int_equal(utf8_valid_bytes(all.data + before, all.bytes - before),
                         all.bytes - before);
    }
    assert_string_equal(all.data, expected);
    buffer_done(&all);
}

#define CHECK(tokenizer, keep, expected, ...)                                         \
    do {                                                                              \
        const uint32_t ids_[] = {__VA_ARGS__};                                        \
        check((tokenizer), (keep), ids_, sizeof(ids_) / sizeof(ids_[0]), (expected)); \
    } while (0)

static void test_character_in_several_tokens_comes_out_once_whole(void **state)
{
    struct tokenizer *tokenizer = make_words();
    struct detokenizer detokenizer;
    struct buffer out;
    (void)state;
    CHECK(tokenizer, false, "a\xf0\x9f\x98\x80z", 'a', 0xf0, 0x9f, 0x98, 0x80, 'z');
    buffer_init(&out, 100);
    detokenizer_init(&detokenizer, tokenizer, false, false);
    assert_int_equal(detokenizer_push(&detokenizer, 0xe4, &out), 0);
    assert_int_equal(detokenizer_push(&detokenizer, 0xb8, &out), 0);
    assert_int_equal(out.bytes, 0);
    assert_int_equal(detokenizer.held_bytes, 2);
    assert_int_equal(detokenizer_push(&detokenizer, 0xad, &out), 0);
    assert_string_equal(out.data, "\xe4\xb8\xad");
    buffer_done(&out);
    tokenizer_free(tokenizer);
}

static void test_what_is_no_character_becomes_replacement_characters(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, false, BAD, 0xff);
    CHECK(tokenizer, false, BAD "a", 0xe4, 0xb8, 'a');                /* one beginning, one sign */
    CHECK(tokenizer, false, BAD "\xc3\xa9", 0xc3, 0xc3, 0xa9);        /* begins again */
    CHECK(tokenizer, false, BAD BAD BAD, 0xed, 0xa0, 0x80);           /* a surrogate */
    CHECK(tokenizer, false, BAD BAD BAD BAD, 0xf5, 0x80, 0x80, 0x80); /* past U+10FFFF */
    CHECK(tokenizer, false, BAD BAD, 0xc0, 0x80);                     /* overlong */
    CHECK(tokenizer, false, BAD, 0xf0, 0x9f, 0x98);                   /* cut off by the end */
    CHECK(tokenizer, false, BAD " hi", 0xe4, HI);
    tokenizer_free(tokenizer);
}

static void test_model_may_write_the_replacement_character_itself(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, false, BAD, 0xef, 0xbf, 0xbd);
    tokenizer_free(tokenizer);
}

static void test_control_tokens_are_written_only_when_asked_for(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, false, "a<tool>b", 'a', CONTROL, TOOL, 'b');
    CHECK(tokenizer, true, "a<s><tool>b", 'a', CONTROL, TOOL, 'b');
    CHECK(tokenizer, false, "\xc3\xa9", 0xc3, CONTROL, 0xa9); /* skipped as if not there */
    CHECK(tokenizer, true, BAD "<s>" BAD, 0xc3, CONTROL, 0xa9);
    tokenizer_free(tokenizer);
}

static void test_unknown_id_is_refused_and_changes_nothing(void **state)
{
    struct tokenizer *tokenizer = make_words();
    struct detokenizer detokenizer;
    struct buffer out;
    (void)state;
    buffer_init(&out, 100);
    detokenizer_init(&detokenizer, tokenizer, false, false);
    assert_int_equal(detokenizer_push(&detokenizer, 0xc3, &out), 0);
    assert_int_equal(detokenizer_push(&detokenizer, HI + 1, &out), -ERANGE);
    assert_int_equal(detokenizer_push(&detokenizer, UINT32_MAX, &out), -ERANGE);
    assert_int_equal(out.bytes, 0);
    assert_int_equal(detokenizer_push(&detokenizer, 0xa9, &out), 0);
    assert_string_equal(out.data, "\xc3\xa9");
    buffer_done(&out);
    tokenizer_free(tokenizer);
}

static void test_first_space_of_sentencepiece_is_dropped_once(void **state)
{
    static const struct tiny_token pieces[] = {{"<s>", TOKEN_CONTROL, 0, 0},
                                               {"\xe2\x96\x81hi", TOKEN_NORMAL, 0, -1},
                                               {"<0xC3>", TOKEN_BYTE, 0, 0},
                                               {"<0xA9>", TOKEN_BYTE, 0, 0},
                                               {"\xe2\x96\x81", TOKEN_NORMAL, 0, -2}};
    const uint32_t ids[] = {0, 1, 2, 3, 1};
    struct model_card *card = tiny_pieces(TOKENIZER_SPM, pieces, 5);
    struct detokenizer detokenizer;
    struct buffer out;
    (void)state;
    card->decode_strip = DECODE_STRIP_SPACE;
    struct tokenizer *tokenizer = make(card);
    buffer_init(&out, 100);
    detokenizer_init(&detokenizer, tokenizer, false, true);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(detokenizer_push(&detokenizer, ids[i], &out), 0);
    assert_string_equal(out.data, "hi\xc3\xa9 hi");
    buffer_clear(&out);
    detokenizer_init(&detokenizer, tokenizer, false, true);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(detokenizer_push(&detokenizer, 4, &out), 0);
    assert_string_equal(out.data, " ");
    buffer_done(&out);
    tokenizer_free(tokenizer);
}

/* Every id of a vocabulary: its own text through encode gives that text back, and so do all ids in
 * a row, one at a time. */
static void round_trip(struct model_card *card)
{
    struct tokenizer *tokenizer = make(card);
    struct buffer all, back;
    struct token_ids ids;
    struct detokenizer detokenizer;
    buffer_init(&all, 64u << 20);
    buffer_init(&back, 64u << 20);
    detokenizer_init(&detokenizer, tokenizer, true, false);
    token_ids_init(&ids, 16u << 20);
    for (uint32_t id = 0; id < tokenizer_card(tokenizer)->tokens.count; id++) {
        size_t before = all.bytes;
        assert_int_equal(detokenizer_push(&detokenizer, id, &all), 0);
        assert_int_equal(utf8_valid_bytes(all.data + before, all.bytes - before),
                         all.bytes - before);
    }
    detokenizer_finish(&detokenizer, &all);
    assert_int_equal(tokenizer_encode(tokenizer, all.data, all.bytes, NULL, &ids), 0);
    detokenizer_init(&detokenizer, tokenizer, true, false);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(detokenizer_push(&detokenizer, ids.ids[i], &back), 0);
    detokenizer_finish(&detokenizer, &back);
    assert_int_equal(back.bytes, all.bytes);
    assert_memory_equal(back.data, all.data, all.bytes);
    token_ids_done(&ids);
    buffer_done(&all);
    buffer_done(&back);
    tokenizer_free(tokenizer);
}

static void test_every_id_of_real_vocabularies_round_trips(void **state)
{
    static const char *const names[] = {"gpt-2", "deepseek-llm", "phi-3"};
    struct model_card *cards[4] = {NULL};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char path[1024];
        (void)snprintf(path, sizeof(path), CASES_DIR "ggml-vocab-%s.gguf.gz", names[i]);
        cards[i] = card_from_gguf(path);
    }
    cards[3] = card_from_qwen2();
    for (size_t i = 0; i < 4; i++) {
        if (cards[i] == NULL)
            skip();
    }
    cards[2]->add_space_prefix = false; /* would put one behind each added token as well */
    cards[3]->pre[0] = '\0';            /* without NFC, which changes text by design */
    for (size_t i = 0; i < 4; i++)
        round_trip(cards[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_character_in_several_tokens_comes_out_once_whole),
        cmocka_unit_test(test_what_is_no_character_becomes_replacement_characters),
        cmocka_unit_test(test_model_may_write_the_replacement_character_itself),
        cmocka_unit_test(test_control_tokens_are_written_only_when_asked_for),
        cmocka_unit_test(test_unknown_id_is_refused_and_changes_nothing),
        cmocka_unit_test(test_first_space_of_sentencepiece_is_dropped_once),
        cmocka_unit_test(test_every_id_of_real_vocabularies_round_trips),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    return r == 0 && access(CASES_DIR "qwen2.tokens.txt.gz", R_OK) != 0 ? 77 : r;
}
