/* card_gguf.c - the words of a GGUF model: vocabulary, ids, template, defaults.
 *
 *   tokenizer.ggml.*          -> tokens, types, scores, merges, ids, switches
 *   tokenizer.chat_template   -> chat_template; .tool_use: of requests with tools
 *   texts of control tokens   -> eos_ids (card_ends.c)
 *
 * Why the pre-tokenizer table here: GGUF names a pre-tokenizer, and some switches that other
 *   formats spell out (ignore_merges, NFC, BOS) follow from that name.
 * Cost: one pass over the vocabulary; 7 ms for 49152 tokens with 48900 merges, most of it page
 *   faults. */
#include "proto/files/card_gguf.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/files/card_ends.h"
#include "proto/files/sampling_defaults.h"

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

struct maker {
    const struct gguf *gguf;
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
    if (card->tokens.count == 0)
        return errmsg_set(maker->err, -EINVAL, "key 'tokenizer.ggml.tokens' is empty");
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

static int read_charsmap(const struct maker *maker)
{
    const uint8_t *bytes = NULL;
    uint32_t count = 0;
    int r = gguf_array_bytes(maker->gguf, "tokenizer.ggml.precompiled_charsmap", &bytes, &count);
    if (r == -EINVAL)
        return errmsg_set(maker->err, r,
                          "key 'tokenizer.ggml.precompiled_charsmap' is not an array of bytes");
    if (r == 0 && count > 0)
        model_card_set_charsmap(maker->card, bytes, count);
    return 0;
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
    card->decode_strip = card->add_space_prefix ? DECODE_STRIP_SPACE : DECODE_STRIP_NONE;
    return r == 0 ? read_charsmap(maker) : r;
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
    card_find_ends(card, eom);
    return 0;
}

/* --- the rest -------------------------------------------------------------------------------- */

static int read_template(const struct maker *maker, const char *key, char **ret_text)
{
    struct gguf_string text;
    int r = gguf_get_string(maker->gguf, key, &text);
    if (r == -ENOENT || (r == 0 && text.bytes == 0))
        return 0;
    if (r < 0 || memchr(text.text, '\0', text.bytes) != NULL)
        return errmsg_set(maker->err, -EINVAL, "key '%s' is not a text", key);
    *ret_text = mem_strndup(text.text, text.bytes);
    return 0;
}

/* What the model's makers recommend; newer files say it. Nonsense is as good as nothing. */
static void read_defaults(const struct maker *maker)
{
    static const char *const names[][2] = {
        {"temperature", "general.sampling.temp"},
        {"top_p", "general.sampling.top_p"},
        {"min_p", "general.sampling.min_p"},
        {"repetition_penalty", "general.sampling.penalty_repeat"}};
    json_t *config = json_object();
    float value = 0;
    uint32_t top_k = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (gguf_get_f32(maker->gguf, names[i][1], &value) == 0 && isfinite(value))
            (void)json_object_set_new(config, names[i][0], json_real((double)value));
    }
    if (gguf_get_u32(maker->gguf, "general.sampling.top_k", &top_k) == 0)
        (void)json_object_set_new(config, "top_k", json_integer(top_k));
    sampling_defaults_read(config, maker->card);
    json_decref(config);
}

int card_words_from_gguf(const struct gguf *gguf, struct model_card *card, struct errmsg *err)
{
    struct maker maker = {.gguf = gguf, .card = card, .err = err};
    int r = read_kind(&maker);
    if (r == 0)
        r = read_vocabulary(&maker);
    if (r == 0)
        r = read_switches(&maker);
    if (r == 0)
        r = read_ids(&maker);
    if (r == 0)
        r = read_template(&maker, "tokenizer.chat_template", &card->chat_template);
    if (r == 0)
        r = read_template(&maker, "tokenizer.chat_template.tool_use", &card->tool_template);
    if (r == 0)
        read_defaults(&maker);
    return r;
}
