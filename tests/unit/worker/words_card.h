/* words_card.h - a model card with a vocabulary that grammars can run on. */
#ifndef REFRAIN_TESTS_UNIT_WORKER_WORDS_CARD_H
#define REFRAIN_TESTS_UNIT_WORKER_WORDS_CARD_H

#include <cmocka.h>

#include "proto/base/mem.h"
#include "proto/model_card.h"

/* A card of 100 tokens, each one byte. */
static inline struct model_card *card_with_words(void)
{
    struct model_card *card = model_card_new();
    struct string_table_builder builder;
    uint8_t types[100];
    string_table_builder_init(&builder);
    for (unsigned i = 0; i < 100; i++) {
        char text = (char)(' ' + i % 95);
        types[i] = TOKEN_NORMAL;
        assert_int_equal(string_table_builder_add(&builder, &text, 1), 0);
    }
    string_table_builder_move(&builder, card, &card->tokens);
    model_card_set_types(card, types, NULL, NULL);
    card->tokenizer = TOKENIZER_SPM;
    card->fingerprint = mem_strdup("fp");
    card->vocab_size = 100;
    card->eos_count = 1;
    card->eos_ids[0] = 2;
    return card;
}

#endif
