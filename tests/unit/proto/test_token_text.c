/* Stored forms of tokens, worked out by hand. */
#include <string.h>

#include <cmocka.h>

#include "proto/token_text.h"

static void check(enum tokenizer_model model, enum token_type type, const char *stored,
                  const char *wanted, size_t wanted_bytes)
{
    char bytes[32];
    size_t count = token_text_decode(model, type, stored, strlen(stored), bytes);
    assert_int_equal(count, wanted_bytes);
    assert_memory_equal(bytes, wanted, wanted_bytes);
}

static void test_byte_alphabet_is_undone(void **state)
{
    (void)state;
    check(TOKENIZER_BPE, TOKEN_NORMAL, "\xc4\xa0the", " the", 4); /* U+0120 */
    check(TOKENIZER_BPE, TOKEN_NORMAL, "\xc4\x8a", "\n", 1);      /* U+010A */
    check(TOKENIZER_BPE, TOKEN_NORMAL, "\xc4\x80", "\0", 1);      /* U+0100 */
    check(TOKENIZER_BPE, TOKEN_NORMAL, "\xc3\xa9", "\xe9", 1);    /* stands for itself */
    check(TOKENIZER_BPE, TOKEN_NORMAL, "\xc5\x83", "\xad", 1);    /* U+0143, the last one */
}

static void test_text_outside_the_alphabet_is_taken_as_it_stands(void **state)
{
    (void)state;
    check(TOKENIZER_BPE, TOKEN_NORMAL, "a b", "a b", 3); /* a space is never stored so */
    check(TOKENIZER_BPE, TOKEN_NORMAL, "\xe2\x96\x81", "\xe2\x96\x81", 3);
    check(TOKENIZER_BPE, TOKEN_CONTROL, "<|im_end|>", "<|im_end|>", 10);
    check(TOKENIZER_BPE, TOKEN_USER_DEFINED, "\xc4\xa0x", "\xc4\xa0x", 3);
}

static void test_pieces_have_spaces_and_byte_tokens(void **state)
{
    (void)state;
    check(TOKENIZER_SPM, TOKEN_NORMAL, "\xe2\x96\x81the\xe2\x96\x81", " the ", 5);
    check(TOKENIZER_SPM, TOKEN_BYTE, "<0xE2>", "\xe2", 1);
    check(TOKENIZER_SPM, TOKEN_NORMAL, "<0xE2>", "<0xE2>", 6);
    check(TOKENIZER_SPM, TOKEN_BYTE, "<0xG2>", "<0xG2>", 6); /* no hex digits */
    check(TOKENIZER_UNIGRAM, TOKEN_USER_DEFINED, "\xe2\x96\x81x", " x", 2);
}

static void test_alphabet_goes_both_ways(void **state)
{
    (void)state;
    for (unsigned b = 0; b < 256; b++) {
        uint32_t cp = token_text_alphabet((unsigned char)b);
        char stored[2] = {(char)cp, '\0'};
        unsigned char back = 0;
        size_t count = 1;
        if (cp >= 0x80) {
            stored[0] = (char)(0xc0 | cp >> 6);
            stored[1] = (char)(0x80 | (cp & 0x3f));
            count = 2;
        }
        assert_true(token_text_is_byte(stored, count, &back));
        assert_int_equal(back, b);
    }
    unsigned char none = 7;
    assert_false(token_text_is_byte("ab", 2, &none));
    assert_false(token_text_is_byte("", 0, &none));
    assert_false(token_text_is_byte(" ", 1, &none));
    assert_int_equal(none, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_alphabet_is_undone),
        cmocka_unit_test(test_text_outside_the_alphabet_is_taken_as_it_stands),
        cmocka_unit_test(test_pieces_have_spaces_and_byte_tokens),
        cmocka_unit_test(test_alphabet_goes_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
