/* card_ends.c - which tokens end an answer.
 *
 * A file names one end token, chat models have several: the stated ones come first, then control
 * tokens known by their text. */
#include "proto/files/card_ends.h"

#include <string.h>

/* Control tokens that end an answer, whatever model they are in. */
static const char *const end_texts[] = {
    "<|im_end|>",      "<|eot_id|>",      "<|eom_id|>", "<|end|>",           "<end_of_turn>",
    "<|endoftext|>",   "<|end_of_text|>", "<|eot|>",    "<|EOT|>",           "<EOT>",
    "<|end_of_turn|>", "<|return|>",      "<|call|>",   "<end_of_utterance>"};
#define END_TEXTS (sizeof(end_texts) / sizeof(end_texts[0]))

void card_add_end(struct model_card *card, uint32_t id)
{
    for (uint32_t i = 0; i < card->eos_count; i++) {
        if (card->eos_ids[i] == id)
            return;
    }
    if (id != TOKEN_ID_NONE && card->eos_count < MODEL_CARD_EOS_MAX)
        card->eos_ids[card->eos_count++] = id;
}

static void add_stated(struct model_card *card, const json_t *id)
{
    json_int_t value = json_integer_value(id);
    if (json_is_integer(id) && value >= 0 && value < (json_int_t)card->tokens.count)
        card_add_end(card, (uint32_t)value);
}

void card_add_stated_ends(struct model_card *card, const json_t *config)
{
    const json_t *ids = json_object_get(config, "eos_token_id"), *item = NULL;
    size_t i = 0;
    add_stated(card, ids);
    json_array_foreach(ids, i, item)
    {
        add_stated(card, item);
    }
}

/* Which of end_texts this is, END_TEXTS when none. */
static size_t end_text_index(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < END_TEXTS &&
           (strlen(end_texts[i]) != bytes || memcmp(end_texts[i], text, bytes) != 0))
        i++;
    return i;
}

void card_find_ends(struct model_card *card, uint32_t eom)
{
    uint32_t found[END_TEXTS];
    memset(found, 0xff, sizeof(found)); /* TOKEN_ID_NONE */
    for (uint32_t i = 0; i < card->tokens.count; i++) {
        uint8_t type = card->token_types[i];
        size_t bytes = 0;
        if (type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED)
            continue;
        const char *text = string_table_get(&card->tokens, i, &bytes);
        size_t index = end_text_index(text, bytes);
        if (index < END_TEXTS && found[index] == TOKEN_ID_NONE)
            found[index] = i;
    }
    card_add_end(card, card->eos);
    card_add_end(card, card->eot);
    card_add_end(card, eom);
    for (size_t i = 0; i < END_TEXTS; i++)
        card_add_end(card, found[i]);
}
