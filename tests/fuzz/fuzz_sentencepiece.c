/* fuzz_sentencepiece.c - any bytes as a SentencePiece model; then as fuzz_tokenizer_json. */
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/files/sentencepiece.h"
#include "tests/fuzz/use_card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct model_card *card = model_card_new();
    struct errmsg err = {""};
    int r = card_words_from_sentencepiece(data, bytes, card, &err);
    ASSERT(r <= 0 && (r == 0 || err.text[0] != '\0'));
    if (r == 0)
        use_card(card);
    model_card_unref(card);
    return 0;
}
