/* use_card.h - what a card from hostile words must stand: checks, the wire, a tokenizer. */
#ifndef REFRAIN_TESTS_FUZZ_USE_CARD_H
#define REFRAIN_TESTS_FUZZ_USE_CARD_H

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/model_card.h"
#include "router/text/detokenize.h"
#include "router/text/tokenizer.h"
#include "router/text/unicode.h"

static inline void use_pack(const struct model_card *card)
{
    struct model_card *back = NULL;
    struct errmsg err = {""};
    void *data = NULL;
    size_t bytes = 0;
    uint64_t before[2], after[2];
    if (model_card_pack(card, &data, &bytes, &err) < 0)
        return; /* too big */
    int r = model_card_unpack(data, bytes, &back, &err);
    ASSERT(r == 0);
    model_card_words_digest(card, before);
    model_card_words_digest(back, after);
    ASSERT(memcmp(before, after, sizeof(before)) == 0);
    model_card_unref(back);
    mem_free(data);
}

static inline void use_encode(struct tokenizer *tokenizer, const char *text, bool parse)
{
    const struct model_card *card = tokenizer_card(tokenizer);
    const struct tokenize_options options = {.add_special = parse, .parse_special = parse};
    struct detokenizer detokenizer;
    struct token_ids ids;
    struct buffer out;
    token_ids_init(&ids, 100000);
    buffer_init(&out, 64u << 20);
    detokenizer_init(&detokenizer, tokenizer, true, true);
    if (tokenizer_encode(tokenizer, text, strlen(text), &options, &ids) == 0) {
        for (size_t i = 0; i < ids.count; i++) {
            ASSERT(ids.ids[i] < card->tokens.count);
            ASSERT(parse || card->token_types[ids.ids[i]] != TOKEN_CONTROL ||
                   ids.ids[i] == card->unk);
            (void)detokenizer_push(&detokenizer, ids.ids[i], &out);
        }
        detokenizer_finish(&detokenizer, &out);
        ASSERT(buffer_finish(&out) < 0 || utf8_valid_bytes(out.data, out.bytes) == out.bytes);
    }
    buffer_done(&out);
    token_ids_done(&ids);
}

static inline void use_card(struct model_card *card)
{
    static const char *const texts[] = {
        "",
        "Hello  world, it's 1234 \n\n a<s>b</s> ab abab",
        "\xe2\x96\x81 \xe2\x96\x81x caf\xc3\xa9 e\xcc\x81",
        "\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80",
        "\xff\xc3 \xef\xac\x81 \xef\xb7\xba \xc4\xb0 aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {""};
    card->name = mem_strdup("fuzz");
    card->pre = mem_strdup("");
    card->fingerprint = mem_strdup("00000000000000000000000000000000");
    card->architecture = mem_strdup("");
    card->context_tokens = 1000;
    card->vocab_size = card->tokens.count;
    if (model_card_check(card, &err) < 0)
        return; /* a score that is no number, for one */
    use_pack(card);
    if (tokenizer_new(card, &tokenizer, &err) < 0) {
        ASSERT(err.text[0] != '\0');
        return;
    }
    for (size_t i = 0; i < 2 * sizeof(texts) / sizeof(texts[0]); i++)
        use_encode(tokenizer, texts[i / 2], i % 2 == 0);
    for (uint32_t id = 0; id < card->tokens.count; id++) {
        const char *text = NULL;
        size_t bytes = 0;
        bool control = false;
        int r = tokenizer_token_bytes(tokenizer, id, &text, &bytes, &control);
        ASSERT(r == 0);
    }
    tokenizer_free(tokenizer);
}

#endif
