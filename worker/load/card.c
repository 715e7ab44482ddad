/* card.c - the card that a worker registers: a file's words (proto/files) and its fingerprint.
 *
 * Cost: one pass over the vocabulary and three short samples per tensor. Invariant: what is
 * returned has passed model_card_check(). */
#include "worker/load/card.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/files/card_gguf.h"
#include "proto/files/card_path.h"

#define SAMPLE_BYTES 256u
#define FINGERPRINT_VERSION "refrain fingerprint 3"

static void hash_text(XXH3_state_t *state, const void *text, size_t bytes)
{
    const uint64_t length = bytes;
    (void)XXH3_128bits_update(state, &length, sizeof(length));
    (void)XXH3_128bits_update(state, text, bytes);
}

static void hash_tensors(XXH3_state_t *state, const struct model_source *source)
{
    for (size_t i = 0; i < model_source_count(source); i++) {
        const struct model_entry tensor = model_source_at(source, i);
        const char *data = tensor.data;
        hash_text(state, tensor.name.text, tensor.name.bytes);
        hash_text(state, tensor.dims, sizeof(tensor.dims));
        hash_text(state, &tensor.dtype, sizeof(tensor.dtype));
        if (tensor.bytes <= 3 * SAMPLE_BYTES) {
            hash_text(state, data, tensor.bytes);
            continue;
        }
        hash_text(state, data, SAMPLE_BYTES);
        hash_text(state, data + tensor.bytes / 2, SAMPLE_BYTES);
        hash_text(state, data + tensor.bytes - SAMPLE_BYTES, SAMPLE_BYTES);
    }
}

static char *make_fingerprint(const struct model_source *source, const struct model_config *config,
                              const struct model_card *card)
{
    uint64_t words[2];
    XXH3_state_t *state = XXH3_createState();
    ASSERT(state != NULL);
    (void)XXH3_128bits_reset(state);
    hash_text(state, FINGERPRINT_VERSION, strlen(FINGERPRINT_VERSION));
    hash_text(state, config, sizeof(*config));
    hash_tensors(state, source);
    model_card_words_digest(card, words);
    hash_text(state, words, sizeof(words));
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)XXH3_freeState(state);
    return mem_printf("%016llx%016llx", (unsigned long long)hash.high64,
                      (unsigned long long)hash.low64);
}

/* A card with the words of the model's files. */
static int read_words(const struct model_source *source, const char *name,
                      struct model_card **ret_card, struct errmsg *err)
{
    const struct gguf *gguf = model_source_gguf(source);
    if (gguf == NULL)
        return card_from_path(model_source_folder(source), name, ret_card, err);
    struct model_card *card = model_card_new();
    card->name = mem_strdup(name);
    int r = card_words_from_gguf(gguf, card, err);
    if (r < 0)
        model_card_unref(card);
    else
        *ret_card = card;
    return r;
}

static void replace_text(char **text, char *with)
{
    mem_free(*text);
    *text = with;
}

int card_from_source(const struct model_source *source, const struct model_config *config,
                     const char *name, const struct sampling_rule *rule,
                     struct model_card **ret_card, struct errmsg *err)
{
    struct model_card *card = NULL;
    int r = read_words(source, name, &card, err);
    if (r < 0)
        return r;
    ASSERT(card != NULL);
    replace_text(&card->architecture, mem_strdup(config->architecture));
    card->context_tokens = config->context_tokens;
    card->vocab_size = config->vocab_size;
    if (card->tokens.count > config->vocab_size)
        r = errmsg_set(err, -EINVAL, "%u tokens for an embedding of %u rows", card->tokens.count,
                       config->vocab_size);
    if (r == 0 && rule != NULL)
        r = sampling_rule_apply(rule, card, err);
    if (r == 0) {
        replace_text(&card->fingerprint, make_fingerprint(source, config, card));
        r = model_card_check(card, err);
    }
    if (r < 0) {
        model_card_unref(card);
        return r;
    }
    *ret_card = card;
    return 0;
}
