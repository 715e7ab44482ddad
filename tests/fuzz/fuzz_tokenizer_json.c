/* fuzz_tokenizer_json.c - any bytes as a tokenizer.json. What is accepted must make a card that
 * checks, packs and unpacks, and a tokenizer (or a refusal) that encodes texts to ids that exist
 * and decodes every id. */
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/files/tokenizer_json.h"
#include "tests/fuzz/use_card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct added_token more[] = {
        {.id = 7, .text = "<more>", .bytes = 6, .type = TOKEN_CONTROL}};
    struct model_card *card = model_card_new();
    struct errmsg err = {""};
    int r = card_words_from_tokenizer_json((const char *)data, bytes, more, 1, card, &err);
    ASSERT(r <= 0 && (r == 0 || err.text[0] != '\0'));
    if (r == 0)
        use_card(card);
    model_card_unref(card);
    return 0;
}
