/* fuzz_tokenizer.c - any bytes, through byte-level BPE, SentencePiece BPE and unigram over small
 * vocabularies with every kind of token.
 *
 * First byte: which tokenizer, parse_special; next two: a literal span. Then the text. It must
 * hold: the ids, detokenized, are the text with each bad byte as U+FFFD (SPM: after one dummy
 * space); no control token comes from inside the span, none at all without parse_special; a second
 * encoding, now with a full word cache, gives the same ids, and so does the text cache. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "router/text/detokenize.h"
#include "router/text/text_cache.h"
#include "router/text/unicode.h"

#ifndef SHARED_DIR
#define SHARED_DIR "../shared"
#endif
#include "tests/unit/router/text/tiny_cards.h"

#define KINDS 6
#define IDS_MAX (1u << 22)

static const struct tiny_token words[] = {
    {"<s>", TOKEN_CONTROL, 0, 0},      {"<s>>", TOKEN_CONTROL, 0, 0},
    {"<t>", TOKEN_USER_DEFINED, 0, 0}, {"ab", TOKEN_NORMAL, 0, -1},
    {"aba", TOKEN_NORMAL, 0, -1},      {"aa", TOKEN_NORMAL, 0, -2},
    {"aaaa", TOKEN_NORMAL, 0, -0.5f},  {"bb", TOKEN_NORMAL, 0, -3},
    {"<s", TOKEN_NORMAL, 0, -1},       {"<e>", TOKEN_CONTROL, 0, 0},
};
static const char *const merges[] = {"a b", "a a", "aa aa", "b b", "ab a", "< s", NULL};

static struct model_card *pieces_card(enum tokenizer_model model)
{
    struct tiny_token all[256 + sizeof(words) / sizeof(words[0]) + 96];
    static char texts[256 + 96][8];
    size_t count = 0;
    for (unsigned b = 0; b < 256; b++) {
        (void)snprintf(texts[b], sizeof(texts[b]), "<0x%02X>", b);
        all[count++] = (struct tiny_token){texts[b], TOKEN_BYTE, 0, 0};
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        all[count++] = words[i];
    for (unsigned c = 0x20; c < 0x7f; c++) {
        (void)snprintf(texts[256 + c - 0x20], 8, "%s", c == ' ' ? "\xe2\x96\x81" : "");
        if (c != ' ')
            texts[256 + c - 0x20][0] = (char)c;
        all[count++] = (struct tiny_token){texts[256 + c - 0x20], TOKEN_NORMAL, 0, -10};
    }
    return tiny_pieces(model, all, count);
}

static struct tokenizer *make(unsigned kind)
{
    static const char *const pres[] = {"gpt-2", "llama-bpe", "gpt-4o", "deepseek-v3"};
    struct tokenizer *tokenizer = NULL;
    struct errmsg err;
    struct model_card *card =
        kind < 4 ? tiny_bpe(pres[kind], words, sizeof(words) / sizeof(words[0]), merges)
                 : pieces_card(kind == 4 ? TOKENIZER_SPM : TOKENIZER_UNIGRAM);
    card->add_space_prefix = kind == 4;
    int r = tokenizer_new(card, &tokenizer, &err);
    ASSERT(r == 0);
    model_card_unref(card);
    return tokenizer;
}

/* The text with bad bytes replaced, and for SentencePiece U+2581 as a space. */
static void clean(const char *text, size_t bytes, bool spaces, struct buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t length = utf8_sequence(text + at, bytes - at);
        if (length == 0)
            buffer_append_text(out, "\xef\xbf\xbd");
        else if (spaces && length == 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0)
            buffer_append_char(out, ' ');
        else
            buffer_append(out, text + at, length);
        at += length == 0 ? 1 : length;
    }
}

static void detokenize(const struct tokenizer *tokenizer, const struct token_ids *ids,
                       struct buffer *out)
{
    struct detokenizer detokenizer;
    detokenizer_init(&detokenizer, tokenizer, true, false);
    for (size_t i = 0; i < ids->count; i++) {
        size_t before = out->bytes;
        int r = detokenizer_push(&detokenizer, ids->ids[i], out);
        ASSERT(r == 0);
        ASSERT(utf8_valid_bytes(out->data + before, out->bytes - before) == out->bytes - before);
    }
    detokenizer_finish(&detokenizer, out);
}

/* Text of the segments with a dummy space before each: take the spaces out of both and compare. */
static void drop_spaces(struct buffer *text)
{
    size_t out = 0;
    for (size_t i = 0; i < text->bytes; i++) {
        if (text->data[i] != ' ')
            text->data[out++] = text->data[i];
    }
    text->bytes = out;
}

static void check_text(const struct tokenizer *tokenizer, const struct token_ids *ids,
                       const char *text, size_t bytes)
{
    const struct model_card *card = tokenizer_card(tokenizer);
    struct buffer got, want;
    buffer_init(&got, 64u << 20);
    buffer_init(&want, 64u << 20);
    detokenize(tokenizer, ids, &got);
    clean(text, bytes, card->tokenizer != TOKENIZER_BPE, &want);
    if (card->add_space_prefix) {
        drop_spaces(&got);
        drop_spaces(&want);
    }
    ASSERT(got.bytes == want.bytes && memcmp(got.data, want.data, got.bytes) == 0);
    buffer_done(&got);
    buffer_done(&want);
}

static size_t count_control(const struct tokenizer *tokenizer, const struct token_ids *ids)
{
    size_t count = 0;
    for (size_t i = 0; i < ids->count; i++)
        count += tokenizer_card(tokenizer)->token_types[ids->ids[i]] == TOKEN_CONTROL;
    return count;
}

/* Cut at its seams, found in part and made in part: the same ids. The budget is small, so that
 * texts come and go. */
static void check_cached(struct tokenizer *tokenizer, unsigned kind, const char *text, size_t bytes,
                         const struct tokenize_options *options, const struct token_ids *want)
{
    static struct text_cache *cache;
    const struct text_owner owner = {tokenizer, kind, "", true};
    struct token_ids got;
    if (cache == NULL)
        cache = text_cache_new(1u << 16);
    token_ids_init(&got, IDS_MAX);
    int r = text_cache_encode(cache, &owner, text, bytes, options, &got, NULL);
    ASSERT(r == 0 && got.count == want->count);
    ASSERT(got.count == 0 || memcmp(got.ids, want->ids, got.count * sizeof(uint32_t)) == 0);
    token_ids_done(&got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizers[KINDS];
    struct token_ids ids, again;
    if (size < 3)
        return 0;
    unsigned kind = (data[0] & 0x7f) % KINDS;
    const char *text = (const char *)data + 3;
    size_t bytes = size - 3;
    struct text_range literal = {data[1] < bytes ? data[1] : bytes,
                                 data[2] < bytes ? data[2] : bytes};
    struct tokenize_options options = {.parse_special = (data[0] & 0x80) != 0,
                                       .literal = &literal,
                                       .literal_count = literal.start <= literal.end};
    if (tokenizers[kind] == NULL)
        tokenizers[kind] = make(kind);
    token_ids_init(&ids, IDS_MAX);
    token_ids_init(&again, IDS_MAX);
    int r = tokenizer_encode(tokenizers[kind], text, bytes, &options, &ids);
    ASSERT(r == 0);
    check_text(tokenizers[kind], &ids, text, bytes);
    check_cached(tokenizers[kind], kind, text, bytes, &options, &ids);
    r = tokenizer_encode(tokenizers[kind], text, bytes, &options, &again);
    ASSERT(r == 0 && again.count == ids.count);
    ASSERT(ids.count == 0 || memcmp(ids.ids, again.ids, ids.count * sizeof(uint32_t)) == 0);
    if (!options.parse_special)
        ASSERT(count_control(tokenizers[kind], &ids) == 0);
    literal = (struct text_range){0, bytes};
    options.literal_count = 1;
    again.count = 0;
    r = tokenizer_encode(tokenizers[kind], text, bytes, &options, &again);
    ASSERT(r == 0 && count_control(tokenizers[kind], &again) == 0);
    token_ids_done(&ids);
    token_ids_done(&again);
    return 0;
}
