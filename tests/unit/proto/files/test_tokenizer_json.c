/* test_tokenizer_json.c - vocabularies, added tokens, steps and ends of a tokenizer.json, and what
 * is refused in which words. Ids against the library itself: tests/oracle. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/files/tokenizer_json.h"

#define LOW "\xe2\x96\x81"

static struct model_card *card;

static int teardown(void **state)
{
    model_card_unref(card);
    card = NULL;
    return 0;
}

static int read_text(const char *text, struct errmsg *err)
{
    model_card_unref(card);
    card = model_card_new();
    return card_words_from_tokenizer_json(text, strlen(text), NULL, 0, card, err);
}

static void take(const char *text)
{
    struct errmsg err = {""};
    if (read_text(text, &err) < 0)
        fail_msg("%s", err.text);
}

static void refuse(int code, const char *sentence, const char *text)
{
    struct errmsg err = {""};
    assert_int_equal(read_text(text, &err), code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void assert_text(const struct string_table *table, uint32_t i, const char *text)
{
    size_t bytes = 0;
    assert_true(i < table->count);
    const char *found = string_table_get(table, i, &bytes);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(found, text, bytes);
}

/* A SentencePiece-type BPE of a, b and what `more` says before "model". */
#define BPE(more)                                                                           \
    "{" more "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":" \
    "[\"a b\"]}}"

static void test_merges_are_read_in_both_spellings(void **state)
{
    take("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3},"
         "\"merges\":[\"a b\",[\"ab\",\"a\"]]}}");
    assert_int_equal(card->tokenizer, TOKENIZER_SPM);
    assert_int_equal(card->tokens.count, 4);
    assert_text(&card->tokens, 3, "aba");
    assert_int_equal(card->merges.count, 2);
    assert_text(&card->merges, 0, "a b");
    assert_text(&card->merges, 1, "ab a");
    assert_false(card->fuse_unk || card->ignore_merges);
    assert_int_equal(card->unk, TOKEN_ID_NONE);
    refuse(-EINVAL, "merge 0 is not two tokens",
           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}");
    refuse(-EINVAL, "merge 0 is not two tokens",
           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}");
    refuse(-ENOTSUP, "plain space",
           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a \",\"b\"]]}}");
}

static void test_added_tokens_have_their_flags_and_ids(void **state)
{
    take(BPE("\"added_tokens\":["
             "{\"id\":5,\"content\":\"<s>\",\"special\":true,\"rstrip\":true,\"normalized\":false},"
             "{\"id\":9,\"content\":\"ab\",\"special\":false,\"single_word\":true},"
             "{\"id\":6,\"content\":\"<t>\",\"special\":false,\"lstrip\":true,\"normalized\":true}"
             "],"));
    assert_int_equal(card->tokens.count, 7);
    assert_int_equal(card->token_types[5], TOKEN_CONTROL);
    assert_int_equal(card->token_flags[5], TOKEN_RSTRIP | TOKEN_NO_PIECE);
    assert_int_equal(card->token_types[2], TOKEN_USER_DEFINED); /* its place in the vocabulary */
    assert_int_equal(card->token_flags[2], TOKEN_SINGLE_WORD | TOKEN_NORMALIZED);
    assert_int_equal(card->token_flags[6], TOKEN_LSTRIP | TOKEN_NORMALIZED | TOKEN_NO_PIECE);
    assert_int_equal(card->token_types[3], TOKEN_UNUSED); /* ids that nobody has */
    assert_text(&card->tokens, 4, "");
    refuse(-EINVAL, "both have id 1",
           BPE("\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"special\":true}],"));
    refuse(-EINVAL, "token id -1", BPE("\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}],"));
    refuse(-EINVAL, "token id 1048576",
           BPE("\"added_tokens\":[{\"id\":1048576,\"content\":\"x\"}],"));
    refuse(-EINVAL, "no id or no content", BPE("\"added_tokens\":[{\"id\":7}],"));
}

static void test_more_added_tokens_fill_only_what_is_free(void **state)
{
    const struct added_token more[] = {
        {.id = 0, .text = "<taken>", .bytes = 7, .type = TOKEN_CONTROL},
        {.id = 7, .text = "ab", .bytes = 2, .type = TOKEN_CONTROL},
        {.id = 4, .text = "<new>", .bytes = 5, .type = TOKEN_CONTROL},
    };
    card = model_card_new();
    assert_int_equal(card_words_from_tokenizer_json(BPE(""), strlen(BPE("")), more, 3, card, NULL),
                     0);
    assert_int_equal(card->tokens.count, 5);
    assert_text(&card->tokens, 0, "a");
    assert_int_equal(card->token_types[2], TOKEN_NORMAL);
    assert_text(&card->tokens, 4, "<new>");
}

static void test_normalizers_become_steps(void **state)
{
    size_t bytes = 0;
    take(BPE("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
             "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},"
             "{\"type\":\"Prepend\",\"prepend\":\"" LOW "\"},"
             "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},"
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" LOW "\"}]},"
             "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
             "\"behavior\":\"MergedWithPrevious\",\"invert\":false},"));
    assert_int_equal(card->normalizers.count, 5);
    assert_text(&card->normalizers, 0, "NFKC");
    assert_text(&card->normalizers, 1, "StripRight");
    assert_text(&card->normalizers, 2, "Prepend " LOW);
    assert_memory_equal(string_table_get(&card->normalizers, 3, &bytes), "ReplaceRegex  {2,}\0 ",
                        20);
    assert_int_equal(bytes, 20);
    assert_int_equal(card->pretokenizers.count, 0); /* no plain space is left to split at */
    refuse(-ENOTSUP, "normalizer 'Nmt' is not supported; supported: NFC NFD NFKC NFKD Lowercase",
           BPE("\"normalizer\":{\"type\":\"Nmt\"},"));
    refuse(-EINVAL, "precompiled_charsmap is not base64",
           BPE("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"},"));
}

#define BYTES(pre)                                                                       \
    "{\"pre_tokenizer\":" pre ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1," \
    "\"ab\":2},\"merges\":[\"a b\"]}}"

static void test_pretokenizers_become_steps(void **state)
{
    take(BYTES("{\"type\":\"Sequence\",\"pretokenizers\":["
               "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x+\"},\"behavior\":\"Removed\","
               "\"invert\":true},"
               "{\"type\":\"Split\",\"pattern\":{\"String\":\"a.b\"},\"behavior\":\"Isolated\"},"
               "{\"type\":\"Digits\",\"individual_digits\":true},"
               "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"},"
               "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false},"
               "{\"type\":\"Digits\"}]}"));
    assert_int_equal(card->tokenizer, TOKENIZER_BPE);
    assert_text(&card->pretokenizers, 0, "Keep x+");
    assert_text(&card->pretokenizers, 1, "Split a\\.b");
    assert_text(&card->pretokenizers, 2, "Split \\p{N}");
    assert_text(&card->pretokenizers, 3, "Contiguous [\\p{P}$+<=>^`|~]");
    assert_text(&card->pretokenizers, 4, "PrefixSpace");
    assert_text(&card->pretokenizers, 5, "Bytes"); /* what comes behind ByteLevel sees bytes */
    assert_text(&card->pretokenizers, 6, "Split \\p{N}+");
    assert_int_equal(card->pretokenizers.count, 7);
    take(BYTES("{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"));
    assert_text(&card->pretokenizers, 0, "Whole"); /* none would mean: those of the name */
    take(BYTES("{\"type\":\"Metaspace\",\"replacement\":\"" LOW
               "\",\"prepend_scheme\":\"first\",\"split\":false}"));
    assert_int_equal(card->tokenizer, TOKENIZER_SPM);
    assert_text(&card->pretokenizers, 0, "Metaspace First");
    take(BYTES("{\"type\":\"Metaspace\",\"replacement\":\"" LOW "\",\"add_prefix_space\":true}"));
    assert_text(&card->pretokenizers, 0, "Metaspace Always Split");
    refuse(-ENOTSUP,
           "pre_tokenizer 'BertPreTokenizer' is not supported; supported: ByteLevel Split",
           BYTES("{\"type\":\"BertPreTokenizer\"}"));
    refuse(-ENOTSUP, "behavior 'MergedWithNext', inverted",
           BYTES("{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
                 "\"MergedWithNext\",\"invert\":true}"));
    refuse(-EINVAL, "a pattern is not a text or Regex",
           BYTES("{\"type\":\"Split\",\"behavior\":\"Isolated\"}"));
}

static void test_unigram_has_scores_as_the_library_reads_them(void **state)
{
    take("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-0.5],"
         "[\"b\",-10.046723040118064],[\"a\",-2]]}}");
    assert_int_equal(card->tokenizer, TOKENIZER_UNIGRAM);
    assert_true(card->double_sums && card->fuse_unk);
    assert_int_equal(card->unk, 0);
    assert_true(card->scores[1] == -0.5f);
    assert_non_null(card->wide_scores);
    /* 10046723040118064 is not a double: the library rounds it before it divides. */
    assert_true(card->wide_scores[2] == -(10046723040118064.0 / 1e15));
    assert_int_equal(card->token_flags[1], TOKEN_NO_PIECE); /* a text twice: the last one is it */
    assert_int_equal(card->token_flags[3], 0);
    take("{\"model\":{\"vocab\":[[\"a\",-0.5]]}}"); /* no type: a list of pieces */
    assert_int_equal(card->tokenizer, TOKENIZER_UNIGRAM);
    assert_null(card->wide_scores);
    refuse(-EINVAL, "model.unk_id is not one of 1 pieces",
           "{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}");
    refuse(-EINVAL, "piece 1 is not a text and a score",
           "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"b\"]]}}");
}

static void test_ends_are_lead_and_tail_ids_and_a_strip(void **state)
{
    take(BPE("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
             "{\"SpecialToken\":{\"id\":\"B\",\"type_id\":0}},"
             "{\"SpecialToken\":{\"id\":\"A\",\"type_id\":0}},"
             "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
             "{\"SpecialToken\":{\"id\":\"A\",\"type_id\":0}}],"
             "\"special_tokens\":{\"A\":{\"id\":\"A\",\"ids\":[0]},\"B\":{\"id\":\"B\",\"ids\":[1]}"
             "}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
             "\"pattern\":{\"String\":\"" LOW "\"},\"content\":\" \"},{\"type\":\"Fuse\"},"
             "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"));
    assert_int_equal(card->lead_count, 2);
    assert_int_equal(card->lead_ids[0], 1);
    assert_int_equal(card->lead_ids[1], 0);
    assert_int_equal(card->tail_count, 1);
    assert_int_equal(card->decode_strip, DECODE_STRIP_SPACE);
    take(BPE("\"decoder\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"never\"},"));
    assert_int_equal(card->decode_strip, DECODE_STRIP_NONE);
    refuse(-ENOTSUP, "decoder 'CTC' is not supported", BPE("\"decoder\":{\"type\":\"CTC\"},"));
    refuse(-EINVAL, "names id 3 of 3 tokens",
           BPE("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"x\",3],\"cls\":[\"y\",0]"
               "},"));
    refuse(-EINVAL, "a template without text",
           BPE("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]},"));
}

static void test_byte_fallback_marks_its_tokens(void **state)
{
#define FALLBACK(decoder)                                                                     \
    "{\"decoder\":" decoder ",\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{" \
    "\"a\":0,\"b\":1,\"ab\":2,\"<0x0A>\":3},\"merges\":[\"a b\"]}}"
    take(FALLBACK("{\"type\":\"ByteFallback\"}"));
    assert_int_equal(card->token_types[3], TOKEN_BYTE);
    refuse(-ENOTSUP, "byte_fallback without decoder ByteFallback", FALLBACK("null"));
}

static void test_what_would_change_ids_is_refused(void **state)
{
    refuse(-EINVAL, "no object 'model'", "{}");
    refuse(-EINVAL, "JSON:", "{\"model\":");
    refuse(-ENOTSUP, "model 'WordPiece' is not supported; supported: BPE, Unigram",
           "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}");
    refuse(-ENOTSUP, "BPE with end_of_word_suffix",
           "{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},"
           "\"merges\":[]}}");
    refuse(-ENOTSUP, "BPE without merges",
           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    refuse(-ENOTSUP, "piece 1 holds a plain space",
           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\" b\":1,\"ab\":2,\"b\":3},"
           "\"merges\":[\"a b\"]}}");
    refuse(-ENOTSUP, "U+0000",
           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\\u0000\":0},\"merges\":[]}}");
    /* A user's byte must not become the special unk. */
    refuse(-ENOTSUP, "byte 0x00 has no token and would become unk_token '<u>'",
           "{\"added_tokens\":[{\"id\":3,\"content\":\"<u>\",\"special\":true}],"
           "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"unk_token\":"
           "\"<u>\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<u>\":3},\"merges\":[\"a b\"]}}");
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_merges_are_read_in_both_spellings),
        TEST(test_added_tokens_have_their_flags_and_ids),
        TEST(test_more_added_tokens_fill_only_what_is_free),
        TEST(test_normalizers_become_steps),
        TEST(test_pretokenizers_become_steps),
        TEST(test_unigram_has_scores_as_the_library_reads_them),
        TEST(test_ends_are_lead_and_tail_ids_and_a_strip),
        TEST(test_byte_fallback_marks_its_tokens),
        TEST(test_what_would_change_ids_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
