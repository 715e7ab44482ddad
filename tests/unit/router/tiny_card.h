/* tiny_card.h - the least model a router can serve: one token per byte, and three control tokens.
 *
 * Ids: 0 "<bos>", 1 "<end>", 2 "<user>", then 3 + byte. So tests can write prompts down by hand. */
#ifndef REFRAIN_TESTS_UNIT_ROUTER_TINY_CARD_H
#define REFRAIN_TESTS_UNIT_ROUTER_TINY_CARD_H

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/model_card.h"

#define TINY_BOS 0u
#define TINY_END 1u
#define TINY_USER 2u
#define TINY_BYTE(c) (3u + (unsigned char)(c))

/* GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and up. */
static inline size_t tiny_letter(unsigned byte, char text[4])
{
    unsigned code = byte, others = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && !printable)
            code = 256 + others;
        others += !printable;
    }
    if (code < 0x80) {
        text[0] = (char)code;
        return 1;
    }
    text[0] = (char)(0xc0 | code >> 6);
    text[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* `user`: text of the third control token. */
static inline struct model_card *tiny_card_with(const char *chat_template, const char *user)
{
    const char *const control[] = {"<bos>", "<end>", user};
    struct model_card *card = model_card_new();
    struct string_table_builder tokens;
    uint8_t types[259];

    string_table_builder_init(&tokens);
    for (unsigned i = 0; i < 259; i++) {
        char text[4];
        int r = i < 3 ? string_table_builder_add(&tokens, control[i], strlen(control[i]))
                      : string_table_builder_add(&tokens, text, tiny_letter(i - 3, text));
        ASSERT(r == 0);
        types[i] = i < 3 ? TOKEN_CONTROL : TOKEN_NORMAL;
    }
    string_table_builder_move(&tokens, card, &card->tokens);
    string_table_builder_done(&tokens);
    model_card_set_types(card, types, NULL, NULL);
    card->name = mem_strdup("tiny");
    card->architecture = mem_strdup("llama");
    card->fingerprint = mem_strdup("00112233445566778899aabbccddeeff");
    card->pre = mem_strdup("gpt-2");
    card->vocab_size = 259;
    card->context_tokens = 128;
    card->bos = TINY_BOS;
    card->eos = card->eos_ids[0] = TINY_END;
    card->eos_count = 1;
    card->add_bos = true;
    card->chat_template = chat_template ? mem_strdup(chat_template) : NULL;
    return card;
}

static inline struct model_card *tiny_card(const char *chat_template)
{
    return tiny_card_with(chat_template, "<user>");
}

#endif
