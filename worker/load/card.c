/* card.c - what the router must know of a GGUF model: words, ids, template, defaults.
 *
 *   tokenizer.ggml.*          -> tokens, types, scores, merges, ids, switches
 *   tokenizer.chat_template   -> chat_template
 *   texts of control tokens   -> eos_ids: a file names one end token, chat models have several
 *   everything                -> fingerprint
 *
 * Why the pre-tokenizer table here: GGUF names a pre-tokenizer, and some switches that other
 *   formats spell out (ignore_merges, NFC, BOS) follow from that name.
 * Cost: one pass over the vocabulary and three short samples per tensor; 7 ms for 49152 tokens
 *   with 48900 merges, most of it page faults.
 * Invariant: what is returned has passed model_card_check(). */
#include "worker/load/card.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define SAMPLE_BYTES 256u
#define FINGERPRINT_VERSION "refrain fingerprint 1"

/* Switches that a pre-tokenizer's name stands for. */
struct pre_tokenizer {
    const char *name;
    bool add_bos, ignore_merges, normalize_nfc;
};
static const struct pre_tokenizer pre_tokenizers[] = {
    {"llama-bpe", true, true, false}, {"llama3", true, true, false},
    {"llama-v3", true, true, false},  {"falcon3", true, true, false},
    {"pixtral", true, true, false},   {"tekken", true, true, false},
    {"llama4", true, true, false},    {"gpt-4o", false, true, false},
    {"qwen2", false, false, true},    {"deepseek-r1-qwen", false, false, true},
    {"qwen35", false, false, true},
};

/* Control tokens that end an answer, whatever model they are in. */
static const char *const end_texts[] = {
    "<|im_end|>",      "<|eot_id|>",      "<|eom_id|>", "<|end|>",           "<end_of_turn>",
    "<|endoftext|>",   "<|end_of_text|>", "<|eot|>",    "<|EOT|>",           "<EOT>",
    "<|end_of_turn|>", "<|return|>",      "<|call|>",   "<end_of_utterance>"};
#define END_TEXTS (sizeof(end_texts) / sizeof(end_texts[0]))

struct maker {
    const struct gguf *gguf;
    const struct model_config *config;
    struct model_card *card;
    struct errmsg *err;
};

static bool equals(struct gguf_string string, const char *text)
{
    return string.bytes == strlen(text) && memcmp(string.text, text, string.bytes) == 0;
}

/* --- vocabulary ------------------------------------------------------------------------------ */

static int read_kind(const struct maker *maker)
{
    struct gguf_string model;
    struct model_card *card = maker->card;
    if (gguf_get_string(maker->gguf, "tokenizer.ggml.model", &model) < 0)
        return errmsg_set(maker->err, -EINVAL,
                          "key 'tokenizer.ggml.model' is missing: the file has no tokenizer");
    if (equals(model, "gpt2"))
        card->tokenizer = TOKENIZER_BPE;
    else if (equals(model, "llama"))
        card->tokenizer = TOKENIZER_SPM;
    else if (equals(model, "t5"))
        card->tokenizer = TOKENIZER_UNIGRAM;
    else
        return errmsg_set(maker->err, -ENOTSUP,
                          "the file's kind of tokenizer is not supported; supported: gpt2, llama, "
                          "t5");
    return 0;
}

static int read_strings(const struct maker *maker, const char *key, struct string_table *table)
{
    struct string_table_builder builder;
    const struct gguf_string *items = NULL;
    uint32_t count = 0;
    int r = gguf_array_strings(maker->gguf, key, &items, &count);
    if (r < 0)
        return errmsg_set(maker->err, -EINVAL, "key '%s' is missing or not an array of strings",
                          key);
    string_table_builder_init(&builder);
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = string_table_builder_add(&builder, items[i].text, items[i].bytes);
    if (r < 0) {
        string_table_builder_done(&builder);
        return errmsg_set(maker->err, -EINVAL, "key '%s' has too many bytes of text", key);
    }
    string_table_builder_move(&builder, maker->card, table);
    return 0;
}

/* One byte per token; absent: all normal. */
static int read_types(const struct maker *maker, uint8_t *ret_types)
{
    const int32_t *items = NULL;
    uint32_t count = 0, tokens = maker->card->tokens.count;
    memset(ret_types, TOKEN_NORMAL, tokens);
    int r = gguf_array_i32(maker->gguf, "tokenizer.ggml.token_type", &items, &count);
    if (r == -ENOENT)
        return 0;
    if (r < 0 || count != tokens)
        return errmsg_set(maker->err, -EINVAL, "key 'tokenizer.ggml.token_type' is not %u integers",
                          tokens);
    for (uint32_t i = 0; i < count; i++) {
        if (items[i] < 0 || items[i] > TOKEN_BYTE)
            return errmsg_set(maker->err, -EINVAL, "token %u has type %d, 1 to 6 are known", i,
                              items[i]);
        ret_types[i] = (uint8_t)(items[i] == 0 ? TOKEN_NORMAL : items[i]); /* 0: not stated */
    }
    return 0;
}

static int read_vocabulary(const struct maker *maker)
{
    struct model_card *card = maker->card;
    const float *scores = NULL;
    uint32_t scores_count = 0;
    int r = read_strings(maker, "tokenizer.ggml.tokens", &card->tokens);
    if (r < 0)
        return r;
    if (card->tokens.count == 0 || card->tokens.count > maker->config->vocab_size)
        return errmsg_set(maker->err, -EINVAL, "%u tokens for an embedding of %u rows",
                          card->tokens.count, maker->config->vocab_size);
    if (card->tokenizer == TOKENIZER_BPE)
        r = read_strings(maker, "tokenizer.ggml.merges", &card->merges);
    if (r < 0)
        return r;
    r = gguf_array_f32(maker->gguf, "tokenizer.ggml.scores", &scores, &scores_count);
    if (card->tokenizer != TOKENIZER_BPE && r == -ENOENT)
        return errmsg_set(maker->err, -EINVAL, "key 'tokenizer.ggml.scores' is missing");
    if (r == -EINVAL || (r == 0 && scores_count != card->tokens.count))
        return errmsg_set(maker->err, -EINVAL, "key 'tokenizer.ggml.scores' is not %u numbers",
                          card->tokens.count);
    if (card->tokenizer == TOKENIZER_BPE)
        scores = NULL; /* ranks of merges decide; some files carry zeros here */
    uint8_t *types = mem_alloc(card->tokens.count);
    r = read_types(maker, types);
    if (r == 0)
        model_card_set_types(card, types, NULL, scores);
    mem_free(types);
    return r;
}

/* --- switches and ids ------------------------------------------------------------------------ */

static int read_switch(const struct maker *maker, const char *key, bool *value)
{
    int r = gguf_get_bool(maker->gguf, key, value);
    return r == -EINVAL ? errmsg_set(maker->err, r, "key '%s' is not a bool", key) : 0;
}

static int read_switches(const struct maker *maker)
{
    struct model_card *card = maker->card;
    struct gguf_string pre = {"", 0};
    int r = gguf_get_string(maker->gguf, "tokenizer.ggml.pre", &pre);
    if (r == -EINVAL)
        return errmsg_set(maker->err, r, "key 'tokenizer.ggml.pre' is not a string");
    card->pre = mem_strndup(pre.text, pre.bytes);
    card->add_bos = card->tokenizer == TOKENIZER_SPM;
    card->add_space_prefix = card->tokenizer != TOKENIZER_BPE;
    card->add_eos = card->tokenizer == TOKENIZER_UNIGRAM;
    for (size_t i = 0; i < sizeof(pre_tokenizers) / sizeof(pre_tokenizers[0]); i++) {
        const struct pre_tokenizer *known = &pre_tokenizers[i];
        if (card->tokenizer != TOKENIZER_BPE || strcmp(card->pre, known->name) != 0)
            continue;
        card->add_bos = known->add_bos;
        card->ignore_merges = known->ignore_merges;
        card->normalize_nfc = known->normalize_nfc;
    }
    r = read_switch(maker, "tokenizer.ggml.add_bos_token", &card->add_bos);
    if (r == 0)
        r = read_switch(maker, "tokenizer.ggml.add_eos_token", &card->add_eos);
    if (r == 0)
        r = read_switch(maker, "tokenizer.ggml.add_space_prefix", &card->add_space_prefix);
    if (r == 0)
        r = read_switch(maker, "tokenizer.ggml.remove_extra_whitespaces",
                        &card->remove_extra_whitespaces);
    return r;
}

static int read_id(const struct maker *maker, const char *name, uint32_t *value)
{
    char key[96];
    uint32_t id = TOKEN_ID_NONE;
    (void)snprintf(key, sizeof(key), "tokenizer.ggml.%s_token_id", name);
    int r = gguf_get_u32(maker->gguf, key, &id);
    if (r == -ENOENT || (r == 0 && id == UINT32_MAX))
        return 0;
    if (r < 0 || id >= maker->card->tokens.count)
        return errmsg_set(maker->err, -EINVAL, "key '%s' is not one of %u tokens", key,
                          maker->card->tokens.count);
    *value = id;
    return 0;
}

static void add_end(struct model_card *card, uint32_t id)
{
    for (uint32_t i = 0; i < card->eos_count; i++) {
        if (card->eos_ids[i] == id)
            return;
    }
    if (id != TOKEN_ID_NONE && card->eos_count < MODEL_CARD_EOS_MAX)
        card->eos_ids[card->eos_count++] = id;
}

/* Which of end_texts this is, END_TEXTS when none. */
static size_t end_text_index(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < END_TEXTS && !equals((struct gguf_string){text, bytes}, end_texts[i]))
        i++;
    return i;
}

/* The ids stated by the file come first, then control tokens known by their text. */
static void find_ends(struct model_card *card, uint32_t eom)
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
    add_end(card, card->eos);
    add_end(card, card->eot);
    add_end(card, eom);
    for (size_t i = 0; i < END_TEXTS; i++)
        add_end(card, found[i]);
}

static int read_ids(const struct maker *maker)
{
    struct model_card *card = maker->card;
    uint32_t eom = TOKEN_ID_NONE;
    int r = read_id(maker, "bos", &card->bos);
    if (r == 0)
        r = read_id(maker, "eos", &card->eos);
    if (r == 0)
        r = read_id(maker, "eot", &card->eot);
    if (r == 0)
        r = read_id(maker, "eom", &eom);
    if (r == 0)
        r = read_id(maker, "unknown", &card->unk);
    if (r == 0)
        r = read_id(maker, "padding", &card->pad);
    if (r < 0)
        return r;
    find_ends(card, eom);
    return 0;
}

/* --- the rest -------------------------------------------------------------------------------- */

static int read_template(const struct maker *maker)
{
    struct gguf_string text;
    int r = gguf_get_string(maker->gguf, "tokenizer.chat_template", &text);
    if (r == -ENOENT || (r == 0 && text.bytes == 0))
        return 0;
    if (r < 0 || memchr(text.text, '\0', text.bytes) != NULL)
        return errmsg_set(maker->err, -EINVAL, "key 'tokenizer.chat_template' is not a text");
    maker->card->chat_template = mem_strndup(text.text, text.bytes);
    return 0;
}

/* What the model's makers recommend; newer files say it. Nonsense is as good as nothing. */
static void read_defaults(const struct maker *maker)
{
    struct model_card *card = maker->card;
    float value = 0;
    if (gguf_get_f32(maker->gguf, "general.sampling.temp", &value) == 0 && value >= 0 &&
        value <= 100)
        card->temperature = (double)value;
    if (gguf_get_f32(maker->gguf, "general.sampling.top_p", &value) == 0 && value > 0 && value <= 1)
        card->top_p = (double)value;
    if (gguf_get_f32(maker->gguf, "general.sampling.penalty_repeat", &value) == 0 && value > 0 &&
        value <= 100)
        card->repetition_penalty = (double)value;
    (void)gguf_get_u32(maker->gguf, "general.sampling.top_k", &card->top_k);
}

static void hash_text(XXH3_state_t *state, const void *text, size_t bytes)
{
    const uint64_t length = bytes;
    (void)XXH3_128bits_update(state, &length, sizeof(length));
    (void)XXH3_128bits_update(state, text, bytes);
}

static void hash_table(XXH3_state_t *state, const struct string_table *table)
{
    hash_text(state, table->offsets, ((size_t)table->count + 1) * sizeof(uint32_t));
    hash_text(state, table->bytes, table->offsets[table->count]);
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

static void make_fingerprint(const struct maker *maker)
{
    struct model_card *card = maker->card;
    XXH3_state_t *state = XXH3_createState();
    ASSERT(state != NULL);
    (void)XXH3_128bits_reset(state);
    hash_text(state, FINGERPRINT_VERSION, strlen(FINGERPRINT_VERSION));
    hash_config(state, maker->config);
    hash_tensors(state, maker->gguf);
    hash_table(state, &card->tokens);
    hash_table(state, &card->merges);
    hash_text(state, card->token_types, card->tokens.count);
    if (card->scores != NULL)
        hash_text(state, card->scores, card->tokens.count * sizeof(float));
    hash_text(state, card->pre, strlen(card->pre));
    if (card->chat_template != NULL)
        hash_text(state, card->chat_template, strlen(card->chat_template));
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)XXH3_freeState(state);
    card->fingerprint = mem_printf("%016llx%016llx", (unsigned long long)hash.high64,
                                   (unsigned long long)hash.low64);
}

int card_from_gguf(const struct gguf *gguf, const struct model_config *config, const char *name,
                   struct model_card **ret_card, struct errmsg *err)
{
    struct maker maker = {.gguf = gguf, .config = config, .card = model_card_new(), .err = err};
    maker.card->name = mem_strdup(name);
    maker.card->architecture = mem_strdup(config->architecture);
    maker.card->context_tokens = config->context_tokens;
    maker.card->vocab_size = config->vocab_size;
    int r = read_kind(&maker);
    if (r == 0)
        r = read_vocabulary(&maker);
    if (r == 0)
        r = read_switches(&maker);
    if (r == 0)
        r = read_ids(&maker);
    if (r == 0)
        r = read_template(&maker);
    if (r == 0) {
        read_defaults(&maker);
        make_fingerprint(&maker);
        r = model_card_check(maker.card, err);
    }
    if (r < 0) {
        model_card_unref(maker.card);
        return r;
    }
    *ret_card = maker.card;
    return 0;
}
