/* test_tokenizer.c - rules that no public vector shows: literal spans, borders, bad bytes, bounds.
 */
#include <cmocka.h>
#include <errno.h>

#include "router/text/tokenizer.h"
#include "tests/unit/router/text/tiny_cards.h"

#define N TOKEN_NORMAL
#define CONTROL TOKEN_CONTROL
#define USER TOKEN_USER_DEFINED

/* Ids from 256 on. "<s>" is a control token, "<tool>" a user-defined one. */
static const struct tiny_token words[] = {
    {"ab", N, 0, 0},
    {"abc", N, 0, 0},
    {"bc", N, 0, 0},
    {"aa", N, 0, 0},
    {"<s>", CONTROL, 0, 0},
    {"<tool>", USER, 0, 0},
    {"<s>x", CONTROL, 0, 0},
    {"\xc4\xa0"
     "a",
     N, 0, 0},
    {"<l>", CONTROL, TOKEN_LSTRIP, 0},
    {"<r>", CONTROL, TOKEN_RSTRIP, 0},
    {"word", USER, TOKEN_SINGLE_WORD, 0},
};
enum { AB = 256, ABC, BC, AA, S, TOOL, SX, SPACE_A, L, R, WORD };
static const char *const merges[] = {"b c", "a b", "ab c", "a a", "\xc4\xa0 a", NULL};

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
    return make(tiny_bpe("gpt-2", words, sizeof(words) / sizeof(words[0]), merges));
}

static void check_options(struct tokenizer *tokenizer, const char *text, size_t bytes,
                          const struct tokenize_options *options, const uint32_t *expected,
                          size_t count)
{
    struct token_ids ids;
    token_ids_init(&ids, 1000);
    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, options, &ids), 0);
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids.ids[i], expected[i]);
    token_ids_done(&ids);
}

/* CHECK(tokenizer, parse_special, "text", ids...) */
#define CHECK(tokenizer, special, text, ...)                                   \
    do {                                                                       \
        const uint32_t ids_[] = {__VA_ARGS__};                                 \
        const struct tokenize_options options_ = {.parse_special = (special)}; \
        check_options((tokenizer), (text), sizeof(text) - 1, &options_, ids_,  \
                      sizeof(ids_) / sizeof(ids_[0]));                         \
    } while (0)

static void test_merges_go_by_rank_then_from_the_left(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, false, "abc", 'a', BC); /* "b c" has rank 0, so "ab" never forms */
    CHECK(tokenizer, false, "ab", AB);
    CHECK(tokenizer, false, "aaa", AA, 'a');
    CHECK(tokenizer, false, "aaaa", AA, AA);
    CHECK(tokenizer, false, "x a", 'x', SPACE_A);
    tokenizer_free(tokenizer);
}

static void test_ignore_merges_takes_a_known_word_whole(void **state)
{
    struct model_card *card = tiny_bpe("gpt-2", words, sizeof(words) / sizeof(words[0]), merges);
    (void)state;
    card->ignore_merges = true;
    struct tokenizer *tokenizer = make(card);
    CHECK(tokenizer, false, "abc", ABC);
    CHECK(tokenizer, false, "abcx", 'a', BC, 'x');
    tokenizer_free(tokenizer);
}

static void test_without_merges_the_ids_are_the_ranks(void **state)
{
    struct tokenizer *tokenizer =
        make(tiny_bpe("gpt-2", words, sizeof(words) / sizeof(words[0]), NO_MERGES));
    (void)state;
    CHECK(tokenizer, false, "abc", ABC);       /* a word that is a token is taken whole */
    CHECK(tokenizer, false, "abcb", ABC, 'b'); /* ab 256, then abc 257 */
    CHECK(tokenizer, false, "xbcx", 'x', BC, 'x');
    tokenizer_free(tokenizer);
}

static void test_control_tokens_need_parse_special(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, true, "a<s>b", 'a', S, 'b');
    CHECK(tokenizer, false, "a<s>b", 'a', '<', 's', '>', 'b');
    CHECK(tokenizer, true, "<tool><s>", TOOL, S);
    CHECK(tokenizer, false, "<tool><s>", TOOL, '<', 's', '>');
    CHECK(tokenizer, true, "<s", '<', 's');
    tokenizer_free(tokenizer);
}

static void test_longest_added_token_wins(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, true, "<s>x", SX);
    CHECK(tokenizer, true, "<s>y", S, 'y');
    CHECK(tokenizer, true, "<<s>", '<', S);
    tokenizer_free(tokenizer);
}

static void check_literal(struct tokenizer *tokenizer, const char *text, size_t start, size_t end,
                          const uint32_t *expected, size_t count)
{
    const struct text_range literal = {start, end};
    const struct tokenize_options options = {
        .parse_special = true, .literal = &literal, .literal_count = 1};
    check_options(tokenizer, text, strlen(text), &options, expected, count);
}

static void test_control_token_inside_a_literal_span_stays_text(void **state)
{
    struct tokenizer *tokenizer = make_words();
    const uint32_t all_text[] = {'<', 's', '>', S};
    const uint32_t shorter[] = {S, 'x'};
    const uint32_t user_defined[] = {TOOL};
    const uint32_t two[] = {S, '<', 's', '>', S};
    (void)state;
    check_literal(tokenizer, "<s><s>", 0, 3, all_text, 4);
    check_literal(tokenizer, "<s><s>", 2, 3, all_text, 4); /* one byte of it is the user's */
    check_literal(tokenizer, "<s>x", 3, 4, shorter, 2);    /* "<s>x" would reach into the span */
    check_literal(tokenizer, "<tool>", 0, 6, user_defined, 1);
    check_literal(tokenizer, "<s><s><s>", 3, 6, two, 5);
    tokenizer_free(tokenizer);
}

static void test_merging_runs_across_a_literal_border(void **state)
{
    struct tokenizer *tokenizer = make_words();
    const uint32_t merged[] = {AB};
    (void)state;
    check_literal(tokenizer, "ab", 1, 2, merged, 1);
    tokenizer_free(tokenizer);
}

static void test_empty_literal_span_protects_nothing(void **state)
{
    struct tokenizer *tokenizer = make_words();
    const uint32_t one[] = {S};
    (void)state;
    check_literal(tokenizer, "<s>", 1, 1, one, 1);
    tokenizer_free(tokenizer);
}

static void test_bad_bytes_become_the_replacement_character(void **state)
{
    struct tokenizer *tokenizer = make_words();
    const uint32_t moved[] = {0xef, 0xbf, 0xbd, '<', 's', '>', S};
    (void)state;
    CHECK(tokenizer, true,
          "a\xff"
          "b",
          'a', 0xef, 0xbf, 0xbd, 'b');
    CHECK(tokenizer, true, "\xc3", 0xef, 0xbf, 0xbd);
    CHECK(tokenizer, true, "\xe2\x82<s>", 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, S);
    CHECK(tokenizer, true, "\xed\xa0\x80", 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd);
    check_literal(tokenizer, "\xff<s><s>", 1, 4, moved, 7); /* the span moves along */
    check_literal(tokenizer, "\xff<s><s>", 0, 4, moved, 7);
    tokenizer_free(tokenizer);
}

static void test_nul_is_a_byte_like_any_other(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, true, "a\0b", 'a', 0, 'b');
    tokenizer_free(tokenizer);
}

static void test_strip_flags_swallow_white_space(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, true, "b \n<l> b", 'b', L, ' ', 'b');
    CHECK(tokenizer, true, "b <r>\xc2\xa0 b", 'b', ' ', R, 'b');
    CHECK(tokenizer, true, "<r>  <l>", R, L);
    tokenizer_free(tokenizer);
}

static void test_single_word_token_needs_free_sides(void **state)
{
    struct tokenizer *tokenizer = make_words();
    (void)state;
    CHECK(tokenizer, true, "word", WORD);
    CHECK(tokenizer, true, "-word-", '-', WORD, '-');
    CHECK(tokenizer, true, "wordy", 'w', 'o', 'r', 'd', 'y');
    CHECK(tokenizer, true, "\xc3\xa9word", 0xc3, 0xa9, 'w', 'o', 'r', 'd');
    CHECK(tokenizer, true, "word_", 'w', 'o', 'r', 'd', '_');
    tokenizer_free(tokenizer);
}

static void test_bos_and_eos_come_when_the_card_and_the_caller_want_them(void **state)
{
    struct model_card *card = tiny_bpe("gpt-2", words, sizeof(words) / sizeof(words[0]), merges);
    const struct tokenize_options special = {.add_special = true}, none = {0};
    const uint32_t both[] = {S, 'b', SX}, only_text[] = {'b'}, empty[] = {S, SX};
    (void)state;
    card->bos = S;
    card->eos = SX;
    card->add_bos = card->add_eos = true;
    struct tokenizer *tokenizer = make(card);
    check_options(tokenizer, "b", 1, &special, both, 3);
    check_options(tokenizer, "b", 1, &none, only_text, 1);
    check_options(tokenizer, "", 0, &special, empty, 2);
    tokenizer_free(tokenizer);
}

static void test_too_many_ids_leave_the_list_as_it_was(void **state)
{
    struct tokenizer *tokenizer = make_words();
    struct token_ids ids;
    (void)state;
    token_ids_init(&ids, 4);
    assert_int_equal(token_ids_add(&ids, 7), 0);
    assert_int_equal(tokenizer_encode(tokenizer, "xyzw", 4, NULL, &ids), -E2BIG);
    assert_int_equal(ids.count, 1);
    assert_int_equal(tokenizer_encode(tokenizer, "xyzw", 4, NULL, &ids), -E2BIG); /* cached now */
    assert_int_equal(ids.count, 1);
    assert_int_equal(tokenizer_encode(tokenizer, "xyz", 3, NULL, &ids), 0);
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.ids[0], 7);
    assert_int_equal(token_ids_add(&ids, 8), -E2BIG);
    token_ids_done(&ids);
    tokenizer_free(tokenizer);
}

static void test_byte_without_a_token_is_left_out(void **state)
{
    const struct tiny_token pieces[] = {
        {"a", N, 0, 0}, {"b", N, 0, 0}, {"<unk>", CONTROL, 0, 0}, {"ab", N, 0, 0}};
    struct model_card *card = tiny_pieces(TOKENIZER_BPE, pieces, 4);
    (void)state;
    card->unk = 2;
    struct tokenizer *tokenizer = make(card);
    CHECK(tokenizer, false, "axb", 0, 1); /* not <unk>: it may be the end-of-text token */
    tokenizer_free(tokenizer);
}

static void test_merge_that_makes_a_control_token_is_no_merge(void **state)
{
    const struct tiny_token evil[] = {{"<e>", CONTROL, 0, 0}, {"<e", N, 0, 0}};
    const char *const evil_merges[] = {"< e", "<e >", NULL};
    struct tokenizer *tokenizer = make(tiny_bpe("gpt-2", evil, 2, evil_merges));
    (void)state;
    CHECK(tokenizer, false, "<e>", '<', 'e', '>'); /* "<" and "e" are words of their own */
    tokenizer_free(tokenizer);
    struct model_card *card = tiny_bpe("", evil, 2, evil_merges);
    struct string_table_builder builder;
    string_table_builder_init(&builder);
    assert_int_equal(string_table_builder_add(&builder, "Split [^ ]+", 11), 0);
    string_table_builder_move(&builder, card, &card->pretokenizers);
    tokenizer = make(card);
    CHECK(tokenizer, false, "<e>", 257, '>'); /* one word now, and still not 256 */
    CHECK(tokenizer, true, "<e>", 256);
    tokenizer_free(tokenizer);
}

static void test_card_that_cannot_work_is_refused_with_a_sentence(void **state)
{
    const char *const bad_merges[] = {"a b", "b zz", NULL};
    const char *const no_space[] = {"ab", NULL};
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {{0}};
    const struct tiny_token ab[] = {{"ab", N, 0, 0}};
    (void)state;
    struct model_card *card = tiny_bpe("gpt-5", ab, 1, merges);
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "'gpt-5'"));
    assert_non_null(strstr(err.text, "smollm"));
    assert_non_null(strstr(err.text, "qwen2"));
    model_card_unref(card);
    card = tiny_bpe("gpt-2", ab, 1, bad_merges);
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), -EINVAL);
    assert_non_null(strstr(err.text, "merge 1 "));
    model_card_unref(card);
    card = tiny_bpe("gpt-2", ab, 1, no_space);
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), -EINVAL);
    assert_non_null(strstr(err.text, "merge 0 "));
    model_card_unref(card);
    card = model_card_new();
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), -EINVAL);
    model_card_unref(card);
    assert_null(tokenizer);
}

static void test_pattern_that_is_no_regex_is_refused(void **state)
{
    const struct tiny_token ab[] = {{"ab", N, 0, 0}};
    struct model_card *card = tiny_bpe("", ab, 1, NO_MERGES);
    struct tokenizer *tokenizer = NULL;
    struct string_table_builder builder;
    struct errmsg err = {{0}};
    (void)state;
    string_table_builder_init(&builder);
    assert_int_equal(string_table_builder_add(&builder, "Split a(b", 9), 0);
    string_table_builder_move(&builder, card, &card->pretokenizers);
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), -EINVAL);
    assert_non_null(strstr(err.text, "pattern 'a(b'"));
    model_card_unref(card);
}

/* --- SentencePiece --------------------------------------------------------------------------- */

#define LOW "\xe2\x96\x81" /* U+2581 */
static const struct tiny_token pieces[] = {
    {"<unk>", TOKEN_UNKNOWN, 0, 0},
    {"<s>", CONTROL, 0, 0},
    {"<0x0A>", TOKEN_BYTE, 0, 0},
    {LOW, N, 0, -1},
    {"a", N, 0, -2},
    {"b", N, 0, -3},
    {"ab", N, 0, -4},
    {LOW "a", N, 0, -5},
    {"<", N, 0, -6},
    {"s", N, 0, -7},
    {">", N, 0, -8},
    {"<s", N, 0, -9},
    {LOW LOW, N, 0, -10},
    {"aa", N, 0, -4},
    {"<e>", USER, 0, 0},
};

static void test_spm_merges_by_score_and_puts_a_space_first(void **state)
{
    struct model_card *card =
        tiny_pieces(TOKENIZER_SPM, pieces, sizeof(pieces) / sizeof(pieces[0]));
    (void)state;
    card->unk = 0;
    card->add_space_prefix = true;
    struct tokenizer *tokenizer = make(card);
    CHECK(tokenizer, false, "a", 7);
    CHECK(tokenizer, false, "ab", 3, 6); /* "ab" -4 before LOW"a" -5 */
    CHECK(tokenizer, false, " a", 3, 7);
    CHECK(tokenizer, false, "aaa", 3, 13, 4);       /* the left pair of equals */
    CHECK(tokenizer, false, "\n", 3, 2);            /* byte fallback */
    CHECK(tokenizer, false, "xyab", 3, 0, 6);       /* a run of unknowns is one unk */
    CHECK(tokenizer, true, "<s>a", 1, 7);           /* the space also behind a control token */
    CHECK(tokenizer, false, "<s>", 3, 11, 10);      /* "<s" and ">" are text; "<s>" never forms */
    CHECK(tokenizer, false, "<0x0A>", 3, 8, 0, 10); /* nor does the byte token */
    CHECK(tokenizer, false, "<e>b", 14, 3, 5);
    CHECK(tokenizer, false, LOW "a", 3, 7); /* a literal U+2581 is a space */
    CHECK(tokenizer, false, "");
    tokenizer_free(tokenizer);
}

static void test_spm_without_scores_or_merges_is_refused(void **state)
{
    struct model_card *card = tiny_pieces(TOKENIZER_SPM, pieces, 8);
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {{0}};
    (void)state;
    card->scores = NULL;
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), -EINVAL);
    assert_non_null(strstr(err.text, "without scores or merges"));
    model_card_unref(card);
}

static void test_spm_with_merges_goes_by_their_rank(void **state)
{
    struct model_card *card =
        tiny_pieces(TOKENIZER_SPM, pieces, sizeof(pieces) / sizeof(pieces[0]));
    struct string_table_builder builder;
    (void)state;
    string_table_builder_init(&builder);
    assert_int_equal(string_table_builder_add(&builder, LOW " a", 5), 0);
    assert_int_equal(string_table_builder_add(&builder, "a b", 3), 0);
    string_table_builder_move(&builder, card, &card->merges);
    card->add_space_prefix = true;
    struct tokenizer *tokenizer = make(card);
    CHECK(tokenizer, false, "ab", 7, 5);
    CHECK(tokenizer, false, "bab", 3, 5, 6);
    tokenizer_free(tokenizer);
}

static void test_unigram_takes_the_most_likely_way(void **state)
{
    const struct tiny_token likely[] = {
        {"<unk>", TOKEN_UNKNOWN, 0, 0},
        {"a", N, 0, -1},
        {"b", N, 0, -1},
        {"c", N, 0, -1.5f},
        {"ab", N, 0, -1.5f},
        {"bc", N, 0, -3},
        {"abc", N, 0, -4},
        {LOW, N, 0, -1},
    };
    struct model_card *card = tiny_pieces(TOKENIZER_UNIGRAM, likely, 8);
    (void)state;
    card->unk = 0;
    card->remove_extra_whitespaces = true;
    struct tokenizer *tokenizer = make(card);
    CHECK(tokenizer, false, "abc", 4, 3); /* -3, the others -3.5, -4, -4 */
    CHECK(tokenizer, false, "a", 1);
    CHECK(tokenizer, false, "axyb", 1, 0, 2);     /* a run of unknowns is one unk */
    CHECK(tokenizer, false, "  a   b ", 1, 7, 2); /* runs of spaces are one, none at the ends */
    tokenizer_free(tokenizer);
}

/* --- looking up ------------------------------------------------------------------------------ */

static void test_token_bytes_and_find(void **state)
{
    struct tokenizer *tokenizer = make_words();
    const char *text = NULL;
    size_t bytes = 0;
    bool control = true;
    (void)state;
    assert_int_equal(tokenizer_token_bytes(tokenizer, SPACE_A, &text, &bytes, &control), 0);
    assert_int_equal(bytes, 2);
    assert_memory_equal(text, " a", 2);
    assert_false(control);
    for (uint32_t id = 0; id < 256; id++) { /* the byte alphabet, every byte */
        assert_int_equal(tokenizer_token_bytes(tokenizer, id, &text, &bytes, &control), 0);
        assert_int_equal(bytes, 1);
        assert_int_equal((unsigned char)text[0], id);
    }
    assert_int_equal(tokenizer_token_bytes(tokenizer, S, &text, &bytes, &control), 0);
    assert_memory_equal(text, "<s>", 3);
    assert_true(control);
    assert_int_equal(tokenizer_token_bytes(tokenizer, WORD + 1, &text, &bytes, &control), -ERANGE);
    assert_int_equal(tokenizer_find(tokenizer, "<tool>"), TOOL);
    assert_int_equal(tokenizer_find(tokenizer, "\xc4\xa0"
                                               "a"),
                     SPACE_A);
    assert_int_equal(tokenizer_find(tokenizer, " a"), TOKEN_ID_NONE);
    tokenizer_free(tokenizer);
}

/* --- composition ----------------------------------------------------------------------------- */

static void test_nfc_is_applied_when_the_card_or_its_pre_tokenizer_says_so(void **state)
{
    struct tokenizer *tokenizer = make(tiny_bpe("qwen2", NULL, 0, NO_MERGES));
    (void)state;
    CHECK(tokenizer, false, "e\xcc\x81", 0xc3, 0xa9);
    CHECK(tokenizer, false, "\xe2\x84\xab", 0xc3, 0x85);                   /* Angstrom sign */
    CHECK(tokenizer, false, "\xe1\x84\x80\xe1\x85\xa1", 0xea, 0xb0, 0x80); /* Hangul */
    /* marks in the wrong order: below (220) before above (230), then composed with a */
    CHECK(tokenizer, false, "a\xcc\x81\xcc\xa3", 0xe1, 0xba, 0xa1, 0xcc, 0x81);
    CHECK(tokenizer, false, "\xe0\xa5\x98", 0xe0, 0xa4, 0x95, 0xe0, 0xa4, 0xbc); /* excluded */
    tokenizer_free(tokenizer);
    tokenizer = make(tiny_bpe("gpt-2", NULL, 0, NO_MERGES));
    CHECK(tokenizer, false, "e\xcc\x81", 'e', 0xcc, 0x81);
    tokenizer_free(tokenizer);
}

/* --- work ------------------------------------------------------------------------------------ */

/* The model's own steps are counted, not time: twice the text may take little more than twice the
 * steps. A megabyte each is in bench_tokenizer.c. */
#define MANY_BYTES (1u << 16)
#define STEPS_PER_BYTE_MAX 64

static uint64_t count_work(struct tokenizer *tokenizer, const char *unit, size_t many)
{
    size_t unit_bytes = strlen(unit), bytes = many / unit_bytes * unit_bytes;
    char *text = mem_alloc(bytes);
    struct token_ids ids;
    for (size_t i = 0; i < bytes; i++)
        text[i] = unit[i % unit_bytes];
    token_ids_init(&ids, bytes * 3);
    uint64_t before = tokenizer_work(tokenizer);
    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, NULL, &ids), 0);
    assert_true(ids.count > 0);
    token_ids_done(&ids);
    mem_free(text);
    return tokenizer_work(tokenizer) - before;
}

static void check_linear(struct tokenizer *tokenizer, const char *unit)
{
    uint64_t once = count_work(tokenizer, unit, MANY_BYTES);
    uint64_t twice = count_work(tokenizer, unit, 2 * MANY_BYTES);
    assert_true(twice <= 2 * (uint64_t)MANY_BYTES * STEPS_PER_BYTE_MAX);
    assert_true((double)twice <= 2.3 * (double)once + 1000);
}

static const char *const units[] = {
    "a",   " ", "\n",           " \n", "\xf0\x9f\x98\x80", "\xcc\x81\xcc\xa3", "aA", "9", "'",
    "\t ", "<", "\xe4\xb8\xad", "\xff"};

static void test_much_of_one_thing_takes_linear_work(void **state)
{
    const char *const pres[] = {"gpt-2", "qwen2", "gpt-4o", "deepseek-llm", "deepseek-v3"};
    (void)state;
    for (size_t p = 0; p < sizeof(pres) / sizeof(pres[0]); p++) {
        struct tokenizer *tokenizer =
            make(tiny_bpe(pres[p], words, sizeof(words) / sizeof(words[0]), merges));
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++)
            check_linear(tokenizer, units[u]);
        tokenizer_free(tokenizer);
    }
}

static void test_much_of_one_thing_in_pieces_takes_linear_work(void **state)
{
    const enum tokenizer_model models[] = {TOKENIZER_SPM, TOKENIZER_UNIGRAM};
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        struct model_card *card =
            tiny_pieces(models[m], pieces, sizeof(pieces) / sizeof(pieces[0]));
        card->unk = 0;
        struct tokenizer *tokenizer = make(card);
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++)
            check_linear(tokenizer, units[u]);
        tokenizer_free(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(test_ignore_merges_takes_a_known_word_whole),
        cmocka_unit_test(test_without_merges_the_ids_are_the_ranks),
        cmocka_unit_test(test_control_tokens_need_parse_special),
        cmocka_unit_test(test_longest_added_token_wins),
        cmocka_unit_test(test_control_token_inside_a_literal_span_stays_text),
        cmocka_unit_test(test_merging_runs_across_a_literal_border),
        cmocka_unit_test(test_empty_literal_span_protects_nothing),
        cmocka_unit_test(test_bad_bytes_become_the_replacement_character),
        cmocka_unit_test(test_nul_is_a_byte_like_any_other),
        cmocka_unit_test(test_strip_flags_swallow_white_space),
        cmocka_unit_test(test_single_word_token_needs_free_sides),
        cmocka_unit_test(test_bos_and_eos_come_when_the_card_and_the_caller_want_them),
        cmocka_unit_test(test_too_many_ids_leave_the_list_as_it_was),
        cmocka_unit_test(test_byte_without_a_token_is_left_out),
        cmocka_unit_test(test_merge_that_makes_a_control_token_is_no_merge),
        cmocka_unit_test(test_card_that_cannot_work_is_refused_with_a_sentence),
        cmocka_unit_test(test_pattern_that_is_no_regex_is_refused),
        cmocka_unit_test(test_spm_merges_by_score_and_puts_a_space_first),
        cmocka_unit_test(test_spm_without_scores_or_merges_is_refused),
        cmocka_unit_test(test_spm_with_merges_goes_by_their_rank),
        cmocka_unit_test(test_unigram_takes_the_most_likely_way),
        cmocka_unit_test(test_token_bytes_and_find),
        cmocka_unit_test(test_nfc_is_applied_when_the_card_or_its_pre_tokenizer_says_so),
        cmocka_unit_test(test_much_of_one_thing_takes_linear_work),
        cmocka_unit_test(test_much_of_one_thing_in_pieces_takes_linear_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
