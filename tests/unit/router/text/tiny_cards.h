/* tiny_cards.h - vocabularies small enough to work ids out by hand. */
#ifndef REFRAIN_TESTS_UNIT_ROUTER_TEXT_TINY_CARDS_H
#define REFRAIN_TESTS_UNIT_ROUTER_TEXT_TINY_CARDS_H

#include "tests/unit/router/text/cards.h"

#define NO_MERGES NULL

struct tiny_token {
    const char *text;
    uint8_t type;
    uint8_t flags;
    float score;
};

/* Byte-level BPE: ids 0..255 are the bytes, then `tokens`; `merges` ends with NULL. */
static inline struct model_card *tiny_bpe(const char *pre, const struct tiny_token *tokens,
                                          size_t count, const char *const *merges)
{
    struct model_card *card = test_card(TOKENIZER_BPE, pre);
    struct string_table_builder builder;
    uint8_t *types = mem_alloc(256 + count), *flags = mem_zalloc(256 + count);
    string_table_builder_init(&builder);
    memset(types, TOKEN_NORMAL, 256);
    for (unsigned b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        char text[4];
        ASSERT(string_table_builder_add(&builder, text, to_alphabet(&byte, 1, text)) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        types[256 + i] = tokens[i].type;
        flags[256 + i] = tokens[i].flags;
        ASSERT(string_table_builder_add(&builder, tokens[i].text, strlen(tokens[i].text)) == 0);
    }
    string_table_builder_move(&builder, card, &card->tokens);
    for (size_t i = 0; merges != NULL && merges[i] != NULL; i++)
        ASSERT(string_table_builder_add(&builder, merges[i], strlen(merges[i])) == 0);
    string_table_builder_move(&builder, card, &card->merges);
    model_card_set_types(card, types, flags, NULL);
    card->vocab_size = card->tokens.count;
    mem_free(types);
    mem_free(flags);
    return card;
}

/* SentencePiece (either model): exactly `tokens`. */
static inline struct model_card *tiny_pieces(enum tokenizer_model model,
                                             const struct tiny_token *tokens, size_t count)
{
    struct model_card *card = test_card(model, "");
    struct string_table_builder builder;
    uint8_t *types = mem_alloc(count);
    float *scores = mem_alloc(count * sizeof(*scores));
    string_table_builder_init(&builder);
    for (size_t i = 0; i < count; i++) {
        types[i] = tokens[i].type;
        scores[i] = tokens[i].score;
        ASSERT(string_table_builder_add(&builder, tokens[i].text, strlen(tokens[i].text)) == 0);
    }
    string_table_builder_move(&builder, card, &card->tokens);
    model_card_set_types(card, types, NULL, scores);
    card->vocab_size = card->tokens.count;
    mem_free(types);
    mem_free(scores);
    return card;
}

#endif
