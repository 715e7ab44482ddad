/* fuzz_model_card.c - hostile packed cards. The first byte decides whether the header is made right
 * (so that the fuzzer gets behind the checksum). What is accepted must pack to a card that unpacks
 * again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/model_card.h"
#include "proto/model_card_private.h"

#define HEADER_BYTES 24

static void make_header_right(uint8_t *card, uint32_t bytes)
{
    const uint32_t words[4] = {MODEL_CARD_MAGIC, MODEL_CARD_VERSION, bytes, 0};
    uint64_t checksum = XXH3_64bits(card + HEADER_BYTES, bytes - HEADER_BYTES);
    memcpy(card, words, sizeof(words));
    memcpy(card + sizeof(words), &checksum, sizeof(checksum));
}

static void check_round_trip(const struct model_card *card)
{
    struct model_card *again = NULL;
    struct errmsg err;
    void *data = NULL;
    size_t bytes = 0;
    ASSERT(model_card_check(card, &err) == 0);
    ASSERT(model_card_pack(card, &data, &bytes, &err) == 0);
    ASSERT(model_card_unpack(data, bytes, &again, &err) == 0);
    ASSERT(again->tokens.count == card->tokens.count);
    ASSERT(strcmp(again->name, card->name) == 0);
    model_card_unref(again);
    mem_free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct model_card *card = NULL;
    struct errmsg err;
    if (bytes == 0)
        return 0;
    size_t card_bytes = bytes - 1;
    uint8_t *copy = malloc(card_bytes + 1);
    ASSERT(copy != NULL);
    memcpy(copy, data + 1, card_bytes);
    if ((data[0] & 1) != 0 && card_bytes >= HEADER_BYTES)
        make_header_right(copy, (uint32_t)card_bytes);
    if (model_card_unpack(copy, card_bytes, &card, &err) == 0)
        check_round_trip(card);
    model_card_unref(card);
    free(copy);
    return 0;
}
