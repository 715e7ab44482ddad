/* test_pretokenize.c - the hand-written scanners against PCRE2 running the pattern they stand for.
 */
#include <cmocka.h>
#include <errno.h>

#include "router/text/pretokenize.h"
#include "tests/unit/router/text/tiny_cards.h"

#define WORDS_MAX 4096

struct words {
    size_t ends[WORDS_MAX];
    size_t count, bytes;
};

static int on_word(void *owner, const char *word, size_t bytes)
{
    struct words *words = owner;
    assert_true(words->count < WORDS_MAX && bytes > 0);
    words->bytes += bytes;
    words->ends[words->count++] = words->bytes;
    return 0;
}

static struct pretokenizer *make(const char *name, struct unicode *unicode)
{
    struct model_card *card = tiny_bpe(name, NULL, 0, NO_MERGES);
    struct pretokenizer *pre = NULL;
    struct pretokenize_traits traits;
    struct errmsg err = {{0}};
    if (pretokenizer_new(card, unicode, &pre, &traits, &err) < 0)
        fail_msg("%s", err.text);
    model_card_unref(card);
    return pre;
}

/* "|" between the words. */
static void check(const char *name, const char *text, const char *expected)
{
    struct unicode unicode;
    struct words words = {.count = 0};
    char joined[1024];
    size_t at = 0;
    unicode_init(&unicode);
    struct pretokenizer *pre = make(name, &unicode);
    assert_int_equal(pretokenizer_split(pre, text, strlen(text), true, on_word, &words), 0);
    for (size_t i = 0, start = 0; i < words.count; start = words.ends[i++]) {
        if (i > 0)
            joined[at++] = '|';
        memcpy(joined + at, text + start, words.ends[i] - start);
        at += words.ends[i] - start;
    }
    joined[at] = '\0';
    assert_string_equal(joined, expected);
    pretokenizer_free(pre);
    unicode_done(&unicode);
}

static void test_words_of_the_common_families(void **state)
{
    const char *text = "I'LL don't  pay 12345 $x!\n\n  (ok)\t";
    (void)state;
    check("gpt-2", text, "I|'|LL| don|'t| | pay| 12345| $|x|!|\n\n | (|ok|)|\t");
    check("smollm", text, "I|'|LL| don|'t| | pay| |1|2|3|4|5| $|x|!|\n\n | (|ok|)|\t");
    check("llama-bpe", text, "I|'LL| don|'t| | pay| |123|45| $|x|!\n\n| | (|ok|)|\t");
    check("qwen2", text, "I|'LL| don|'t| | pay| |1|2|3|4|5| $|x|!\n\n| | (|ok|)|\t");
    check("gpt-4o", text, "I'LL| don't| | pay| |123|45| $|x|!\n\n| | (|ok|)|\t");
    check("tekken", text, "I|'LL| don|'t| | pay| |1|2|3|4|5| $|x|!\n\n| | (|ok|)|\t");
    check("deepseek-v3", text, "I|'LL| don|'t| | pay| |123|45| $|x|!\n\n| | (|ok|)|\t");
}

static void test_camel_case_is_cut_by_o200k_only(void **state)
{
    (void)state;
    check("gpt-4o", "camelCaseHTTPServer", "camel|Case|HTTPServer");
    check("llama-bpe", "camelCaseHTTPServer", "camelCaseHTTPServer");
}

/* Code points that make the patterns branch. */
static const char *const atoms[] = {
    " ",
    " ",
    "\n",
    "\r",
    "\t",
    "'",
    "s",
    "t",
    "re",
    "VE",
    "ll",
    "S",
    "D",
    "m",
    "a",
    "B",
    "/",
    ".",
    ",",
    "!",
    "$",
    "+",
    "_",
    "1",
    "23",
    "\xc2\xbd",
    "\xd9\xa1",
    "\xc3\xa9",
    "\xc3\x89",
    "\xc5\xbf",
    "\xc7\x85" /* Lt */,
    "\xca\xb0" /* Lm */,
    "\xc2\xaa" /* Lo */,
    "\xe4\xb8\xad",
    "\xe3\x81\x8b",
    "\xcc\x81" /* Mn */,
    "\xe0\xa4\xbe" /* Mc */,
    "\xc2\xa0",
    "\xe3\x80\x80",
    "\xe2\x80\xa8",
    "\xc2\x85",
    "\xe1\xa0\x8e" /* U+180E: not white space */,
    "\xe2\x80\x8b",
    "\xe2\x80\x8d",
    "\xf0\x9f\x98\x80",
    "\xef\xbc\x81",
    "\x01",
    "\xf0\x90\x90\x80",
    "\xe2\x85\xa3" /* Nl */,
    "\xe2\x84\xaa" /* Kelvin */,
    "\xee\x80\x80" /* Co */,
    "\xcd\xb8" /* Cn */,
};

static uint32_t next_random(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static size_t random_text(uint32_t *seed, char *text)
{
    size_t bytes = 0, parts = 1 + (next_random(seed) >> 27);
    for (size_t i = 0; i < parts; i++) {
        const char *atom = atoms[(next_random(seed) >> 8) % (sizeof(atoms) / sizeof(atoms[0]))];
        memcpy(text + bytes, atom, strlen(atom));
        bytes += strlen(atom);
    }
    return bytes;
}

static void compare(const char *name, size_t rounds)
{
    struct unicode unicode;
    uint32_t seed = 1;
    char text[256];
    unicode_init(&unicode);
    struct pretokenizer *scan = make(name, &unicode), *regex = make(name, &unicode);
    pretokenizer_use_regex_only(regex);
    for (size_t round = 0; round < rounds; round++) {
        struct words a = {.count = 0}, b = {.count = 0};
        size_t bytes = random_text(&seed, text);
        assert_int_equal(pretokenizer_split(scan, text, bytes, true, on_word, &a), 0);
        assert_int_equal(pretokenizer_split(regex, text, bytes, true, on_word, &b), 0);
        if (a.count != b.count || memcmp(a.ends, b.ends, a.count * sizeof(a.ends[0])) != 0) {
            printf("%s differs on:", name);
            for (size_t i = 0; i < bytes; i++)
                printf(" %02x", (unsigned char)text[i]);
            printf("\n");
            fail();
        }
        assert_int_equal(a.bytes, bytes); /* the words joined are the text */
    }
    pretokenizer_free(scan);
    pretokenizer_free(regex);
    unicode_done(&unicode);
}

static void test_scanners_cut_like_their_patterns(void **state)
{
    const char *const names[] = {"gpt-2",       "smollm", "llama-bpe", "qwen2",
                                 "qwen35",      "gpt-4o", "tekken",    "deepseek-llm",
                                 "deepseek-v3", "falcon", "viking",    "deepseek-coder"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        compare(names[i], 20000);
}

static void test_every_known_name_compiles_and_loses_nothing(void **state)
{
    static const char *const names[] = {"default",     "phi-2",
                                        "mpt",         "olmo",
                                        "jais",        "starcoder",
                                        "refact",      "command-r",
                                        "codeshell",   "exaone",
                                        "minerva-7b",  "llama3",
                                        "llama-v3",    "falcon3",
                                        "pixtral",     "dbrx",
                                        "smaug-bpe",   "glm4",
                                        "chatglm-bpe", "phi-4",
                                        "cl100k",      "deepseek-r1-qwen",
                                        "stablelm2",   "o200k",
                                        "llama4",      "hunyuan-dense",
                                        "bloom",       "poro-chat",
                                        "gpt3-finnish"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        compare(names[i], 500);
}

static void test_explicit_patterns_win_over_the_name(void **state)
{
    struct model_card *card = tiny_bpe("qwen2", NULL, 0, NO_MERGES);
    struct string_table_builder builder;
    struct unicode unicode;
    struct pretokenizer *pre = NULL;
    struct pretokenize_traits traits = {.normalize_nfc = true};
    struct words words = {.count = 0};
    (void)state;
    unicode_init(&unicode);
    string_table_builder_init(&builder);
    assert_int_equal(string_table_builder_add(&builder, "Split b+", 8), 0);
    string_table_builder_move(&builder, card, &card->pretokenizers);
    assert_int_equal(pretokenizer_new(card, &unicode, &pre, &traits, NULL), 0);
    assert_false(traits.normalize_nfc); /* that is the card's word then */
    assert_int_equal(pretokenizer_split(pre, "a 1bbc", 6, true, on_word, &words), 0);
    assert_int_equal(words.count, 3);
    assert_int_equal(words.ends[0], 3);
    assert_int_equal(words.ends[1], 5);
    pretokenizer_free(pre);
    unicode_done(&unicode);
    model_card_unref(card);
}

static int stop_at_second(void *owner, const char *word, size_t bytes)
{
    return ++*(int *)owner == 2 ? -E2BIG : 0;
}

static void test_split_ends_when_the_callback_says_so(void **state)
{
    const char *const names[] = {"gpt-2", "falcon", "deepseek-llm"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct unicode unicode;
        int calls = 0;
        unicode_init(&unicode);
        struct pretokenizer *pre = make(names[i], &unicode);
        assert_int_equal(pretokenizer_split(pre, "a b\nc. d", 8, true, stop_at_second, &calls),
                         -E2BIG);
        assert_int_equal(calls, 2);
        pretokenizer_free(pre);
        unicode_done(&unicode);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_the_common_families),
        cmocka_unit_test(test_camel_case_is_cut_by_o200k_only),
        cmocka_unit_test(test_scanners_cut_like_their_patterns),
        cmocka_unit_test(test_every_known_name_compiles_and_loses_nothing),
        cmocka_unit_test(test_explicit_patterns_win_over_the_name),
        cmocka_unit_test(test_split_ends_when_the_callback_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
