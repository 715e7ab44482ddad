/* test_sentencepiece.c - ModelProto field by field, written by hand; ids against the library itself
 * are in tests/oracle. */
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/files/sentencepiece.h"

static struct buffer file;
static struct model_card *card;

static int setup(void **state)
{
    buffer_init(&file, 4096);
    return 0;
}

static int teardown(void **state)
{
    buffer_done(&file);
    model_card_unref(card);
    card = NULL;
    return 0;
}

static void put_varint(struct buffer *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        buffer_append_char(out, (char)(value | 0x80));
    buffer_append_char(out, (char)value);
}

static void put_number(struct buffer *out, uint32_t field, uint64_t value)
{
    put_varint(out, (uint64_t)field << 3);
    put_varint(out, value);
}

static void put_bytes(struct buffer *out, uint32_t field, const void *data, size_t bytes)
{
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, bytes);
    buffer_append(out, data, bytes);
}

static void put_piece(const char *text, float score, int type)
{
    struct buffer piece;
    buffer_init(&piece, 256);
    put_bytes(&piece, 1, text, strlen(text));
    buffer_append_char(&piece, 2 << 3 | 5);
    buffer_append(&piece, &score, sizeof(score));
    if (type != TOKEN_NORMAL) /* the default is left out, as protobuf does */
        put_number(&piece, 3, (uint64_t)type);
    put_number(&piece, 99, 7); /* a field of the future */
    put_bytes(&file, 1, piece.data, piece.bytes);
    buffer_done(&piece);
}

static void put_pieces(void)
{
    put_piece("<unk>", 0, TOKEN_UNKNOWN);
    put_piece("<s>", 0, TOKEN_CONTROL);
    put_piece("</s>", 0, TOKEN_CONTROL);
    put_piece("<0x0A>", 0, TOKEN_BYTE);
    put_piece("\xe2\x96\x81hi", -1.5f, TOKEN_NORMAL);
    put_piece("\n\n", 0, TOKEN_USER_DEFINED);
}

static void put_trainer(uint64_t model_type, uint64_t bos)
{
    struct buffer spec;
    buffer_init(&spec, 256);
    put_number(&spec, 3, model_type);
    put_number(&spec, 35, 1);
    put_number(&spec, 41, bos);
    put_number(&spec, 43, UINT64_MAX); /* -1 */
    put_bytes(&file, 2, spec.data, spec.bytes);
    buffer_done(&spec);
}

static int read_file(struct errmsg *err)
{
    /* Of its exact size: the sanitizer sees a read past the end. */
    char *copy = malloc(file.bytes);
    memcpy(copy, file.data, file.bytes);
    model_card_unref(card);
    card = model_card_new();
    int r = card_words_from_sentencepiece(copy, file.bytes, card, err);
    free(copy);
    return r;
}

static void refuse(int code, const char *sentence)
{
    struct errmsg err = {""};
    assert_int_equal(read_file(&err), code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
    buffer_clear(&file);
}

static void test_bpe_model_fills_the_card(void **state)
{
    size_t bytes = 0;
    struct buffer normalizer;
    put_pieces();
    put_trainer(2, 1);
    buffer_init(&normalizer, 256);
    put_bytes(&normalizer, 2, "map", 3);
    put_number(&normalizer, 4, 0);
    put_bytes(&file, 3, normalizer.data, normalizer.bytes);
    buffer_done(&normalizer);
    assert_int_equal(read_file(NULL), 0);
    assert_int_equal(card->tokenizer, TOKENIZER_SPM);
    assert_true(card->sentencepiece && card->fuse_unk);
    assert_int_equal(card->tokens.count, 6);
    assert_memory_equal(string_table_get(&card->tokens, 4, &bytes), "\xe2\x96\x81hi", 5);
    assert_true(card->scores[4] == -1.5f);
    assert_int_equal(card->token_types[3], TOKEN_BYTE);
    assert_int_equal(card->token_types[4], TOKEN_NORMAL);
    assert_int_equal(card->token_flags[5], TOKEN_NORMALIZED);
    assert_int_equal(card->unk, 0);
    assert_int_equal(card->bos, 1);
    assert_int_equal(card->eos, 2);
    assert_int_equal(card->pad, TOKEN_ID_NONE);
    assert_true(card->add_bos && card->add_space_prefix);
    assert_false(card->add_eos || card->remove_extra_whitespaces);
    assert_int_equal(card->decode_strip, DECODE_STRIP_SPACE);
    assert_int_equal(card->charsmap_bytes, 3);
}

static void test_unigram_without_a_begin_ends_with_eos(void **state)
{
    put_pieces();
    put_trainer(1, UINT64_MAX);
    assert_int_equal(read_file(NULL), 0);
    assert_int_equal(card->tokenizer, TOKENIZER_UNIGRAM);
    assert_int_equal(card->bos, TOKEN_ID_NONE);
    assert_true(!card->add_bos && card->add_eos);
    assert_true(card->remove_extra_whitespaces); /* what the library assumes */
    assert_int_equal(card->decode_strip, DECODE_STRIP_SPACES);
}

static void test_kinds_and_rules_that_we_lack_are_refused(void **state)
{
    struct buffer spec;
    put_pieces();
    put_trainer(3, 1);
    refuse(-ENOTSUP, "model type 3 (word) is not supported; supported: unigram, bpe");
    put_pieces();
    put_trainer(9, 1);
    refuse(-ENOTSUP, "model type 9 (unknown)");
    put_pieces();
    put_piece("x", 0, TOKEN_UNUSED);
    put_trainer(2, 1);
    refuse(-ENOTSUP, "unused pieces");
    put_pieces();
    buffer_init(&spec, 64);
    put_number(&spec, 24, 1);
    put_bytes(&file, 2, spec.data, spec.bytes);
    buffer_done(&spec);
    refuse(-ENOTSUP, "treat_whitespace_as_suffix");
    put_piece("x", 0, 7);
    refuse(-EINVAL, "piece 0 has type 7, 1 to 6 are known");
    put_number(&file, 1, 5);
    refuse(-EINVAL, "a file without pieces");
}

static void test_file_cut_at_any_byte_is_refused_or_shorter(void **state)
{
    put_pieces();
    put_trainer(2, 1);
    size_t whole = file.bytes;
    for (size_t cut = 1; cut < whole; cut++) {
        struct errmsg err = {""};
        file.bytes = cut;
        int r = read_file(&err);
        assert_true(r == 0 || (r < 0 && err.text[0] != '\0'));
        assert_true(r < 0 || card->tokens.count <= 6);
    }
    file.bytes = whole;
}

static void test_lengths_past_the_end_are_refused(void **state)
{
    put_varint(&file, 1 << 3 | 2);
    put_varint(&file, UINT64_MAX);
    refuse(-EINVAL, "the file is malformed");
    buffer_append(&file, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    refuse(-EINVAL, "the file is malformed");
    put_bytes(&file, 1, "\x0a\x7fx", 3); /* a piece whose text is longer than it */
    refuse(-EINVAL, "a piece is malformed");
    put_varint(&file, 1 << 3 | 3); /* a group: no such thing */
    refuse(-EINVAL, "the file is malformed");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bpe_model_fills_the_card),
        TEST(test_unigram_without_a_begin_ends_with_eos),
        TEST(test_kinds_and_rules_that_we_lack_are_refused),
        TEST(test_file_cut_at_any_byte_is_refused_or_shorter),
        TEST(test_lengths_past_the_end_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
