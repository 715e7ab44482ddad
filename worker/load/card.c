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

#define SAMPLE_BYTES 256u
#define FINGERPRINT_VERSION "refrain fingerprint 2"

static void hash_text(XXH3_state_t *state, const void *text, size_t bytes)
{
    const uint64_t length = bytes;
    (void)XXH3_128bits_update(state, &length, sizeof(length));
    (void)XXH3_128bits_update(state, text, bytes);
}

static void hash_tensors(XXH3_state_t *state, const struct gguf *gguf)
{
    for (size_t i = 0; i < gguf_tensors_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        const char *data = tensor->data;
        uint32_t dtype = (uint32_t)tensor->dtype;
        hash_text(state, tensor->name.text, tensor->name.bytes);
        hash_text(state, tensor->dims, sizeof(tensor->dims));
        hash_text(state, &dtype, sizeof(dtype));
        if (tensor->bytes <= 3 * SAMPLE_BYTES) {
            hash_text(state, data, tensor->bytes);
            continue;
        }
        hash_text(state, data, SAMPLE_BYTES);
        hash_text(state, data + tensor->bytes / 2, SAMPLE_BYTES);
        hash_text(state, data + tensor->bytes - SAMPLE_BYTES, SAMPLE_BYTES);
    }
}

static void hash_config(XXH3_state_t *state, const struct model_config *config)
{
    const uint32_t numbers[] = {
        config->layers,     config->hidden,           config->ffn,
        config->vocab_size, config->context_tokens,   config->q_heads,
        config->kv_heads,   config->head_dim,         config->rotary_dims,
        config->window,     config->rope_interleaved, config->tied_embedding};
    const float reals[] = {config->norm_eps, config->rope_theta, config->attention_scale,
                           config->rope_scale};
    hash_text(state, config->architecture, strlen(config->architecture));
    hash_text(state, numbers, sizeof(numbers));
    hash_text(state, reals, sizeof(reals));
    hash_text(state, config->rope_divisors, sizeof(config->rope_divisors));
}

static char *make_fingerprint(const struct gguf *gguf, const struct model_config *config,
                              const struct model_card *card)
{
    uint64_t words[2];
    XXH3_state_t *state = XXH3_createState();
    ASSERT(state != NULL);
    (void)XXH3_128bits_reset(state);
    hash_text(state, FINGERPRINT_VERSION, strlen(FINGERPRINT_VERSION));
    hash_config(state, config);
    hash_tensors(state, gguf);
    model_card_words_digest(card, words);
    hash_text(state, words, sizeof(words));
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)XXH3_freeState(state);
    return mem_printf("%016llx%016llx", (unsigned long long)hash.high64,
                      (unsigned long long)hash.low64);
}

int card_from_gguf(const struct gguf *gguf, const struct model_config *config, const char *name,
                   struct model_card **ret_card, struct errmsg *err)
{
    struct model_card *card = model_card_new();
    card->name = mem_strdup(name);
    card->architecture = mem_strdup(config->architecture);
    card->context_tokens = config->context_tokens;
    card->vocab_size = config->vocab_size;
    int r = card_words_from_gguf(gguf, card, err);
    if (r == 0 && card->tokens.count > config->vocab_size)
        r = errmsg_set(err, -EINVAL, "%u tokens for an embedding of %u rows", card->tokens.count,
                       config->vocab_size);
    if (r == 0) {
        card->fingerprint = make_fingerprint(gguf, config, card);
        r = model_card_check(card, err);
    }
    if (r < 0) {
        model_card_unref(card);
        return r;
    }
    *ret_card = card;
    return 0;
}
