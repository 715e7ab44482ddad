/* cards.h - model cards for the tokenizer's tests and its bench, from the outside vocabularies.
 *
 * Small readers of their own (GGUF metadata, tiktoken ranks, qwen2 lists, tokenizer.json): the
 * router has none and may not include the worker's. They trust the files. */
#ifndef REFRAIN_TESTS_UNIT_ROUTER_TEXT_CARDS_H
#define REFRAIN_TESTS_UNIT_ROUTER_TEXT_CARDS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/model_card.h"
#include "tests/model_path.h"

#define CASES_DIR SHARED_DIR "/cases/tokenizer/"

/* The file's bytes, unpacked when it ends in .gz; data NULL: absent, said aloud. At most `max`. */
struct file_bytes {
    char *data;
    size_t bytes;
};

static inline struct file_bytes read_file(const char *path, size_t max)
{
    struct file_bytes file = {NULL, 0};
    char command[1100];
    size_t length = strlen(path);
    bool packed = length > 3 && strcmp(path + length - 3, ".gz") == 0;
    if (access(path, R_OK) != 0) {
        printf("skipped: %s is absent\n", path);
        return file;
    }
    (void)snprintf(command, sizeof(command), "gzip -dc '%s'", path);
    FILE *in = packed ? popen(command, "r") : fopen(path, "rb");
    ASSERT(in != NULL);
    file.data = mem_alloc(max + 1);
    file.bytes = fread(file.data, 1, max, in);
    file.data[file.bytes] = '\0';
    if (packed)
        (void)pclose(in);
    else
        (void)fclose(in);
    return file;
}

static inline json_t *read_json(const char *path)
{
    struct file_bytes file = read_file(path, 16u << 20);
    if (file.data == NULL)
        return NULL;
    json_t *value = json_loadb(file.data, file.bytes, 0, NULL);
    ASSERT(value != NULL);
    mem_free(file.data);
    return value;
}

static inline struct model_card *test_card(enum tokenizer_model model, const char *pre)
{
    struct model_card *card = model_card_new();
    card->name = mem_strdup("test");
    card->fingerprint = mem_strdup("00000000000000000000000000000000");
    card->architecture = mem_strdup("llama");
    card->pre = mem_strdup(pre);
    card->tokenizer = model;
    card->context_tokens = 8192;
    card->vocab_size = 1;
    return card;
}

/* --- GGUF ------------------------------------------------------------------------------------ */

struct gguf_at {
    const char *at;
};

static inline uint64_t gguf_number(struct gguf_at *g, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, g->at, bytes);
    g->at += bytes;
    return value;
}

static inline const char *gguf_text(struct gguf_at *g, size_t *ret_bytes)
{
    *ret_bytes = gguf_number(g, 8);
    g->at += *ret_bytes;
    return g->at - *ret_bytes;
}

static inline size_t gguf_size(uint32_t type)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return sizes[type];
}

static inline void gguf_table(struct gguf_at *g, uint64_t count, struct model_card *card,
                              struct string_table *table)
{
    struct string_table_builder builder;
    string_table_builder_init(&builder);
    for (uint64_t i = 0; i < count; i++) {
        size_t bytes = 0;
        const char *text = gguf_text(g, &bytes);
        ASSERT(string_table_builder_add(&builder, text, bytes) == 0);
    }
    string_table_builder_move(&builder, card, table);
}

struct gguf_found {
    uint8_t *types;
    float *scores;
    bool has_space_prefix;
};

static inline void gguf_array(struct gguf_at *g, const char *key, struct model_card *card,
                              struct gguf_found *found)
{
    uint32_t type = (uint32_t)gguf_number(g, 4);
    uint64_t count = gguf_number(g, 8);
    if (strcmp(key, "tokenizer.ggml.tokens") == 0) {
        gguf_table(g, count, card, &card->tokens);
    } else if (strcmp(key, "tokenizer.ggml.merges") == 0) {
        gguf_table(g, count, card, &card->merges);
    } else if (strcmp(key, "tokenizer.ggml.token_type") == 0) {
        found->types = mem_alloc(count);
        for (uint64_t i = 0; i < count; i++)
            found->types[i] = (uint8_t)gguf_number(g, 4);
    } else if (strcmp(key, "tokenizer.ggml.scores") == 0) {
        found->scores = mem_alloc(count * sizeof(float));
        memcpy(found->scores, g->at, count * sizeof(float));
        g->at += count * sizeof(float);
    } else if (type == 8) {
        struct string_table ignored;
        gguf_table(g, count, card, &ignored);
    } else {
        g->at += count * gguf_size(type);
    }
}

static inline void gguf_scalar(struct gguf_at *g, uint32_t type, const char *key,
                               struct model_card *card, struct gguf_found *found)
{
    if (type == 8) {
        size_t bytes = 0;
        const char *text = gguf_text(g, &bytes);
        if (strcmp(key, "tokenizer.ggml.pre") == 0) {
            mem_free(card->pre);
            card->pre = mem_strndup(text, bytes);
        } else if (strcmp(key, "tokenizer.ggml.model") == 0) {
            card->tokenizer = bytes == 4   ? TOKENIZER_BPE
                              : bytes == 5 ? TOKENIZER_SPM
                                           : TOKENIZER_UNIGRAM;
        } else if (strcmp(key, "tokenizer.chat_template") == 0) {
            card->chat_template = mem_strndup(text, bytes);
        }
        return;
    }
    uint32_t value = (uint32_t)gguf_number(g, gguf_size(type));
    if (strcmp(key, "tokenizer.ggml.bos_token_id") == 0)
        card->bos = value;
    else if (strcmp(key, "tokenizer.ggml.eos_token_id") == 0)
        card->eos = value;
    else if (strcmp(key, "tokenizer.ggml.unknown_token_id") == 0)
        card->unk = value;
    else if (strcmp(key, "tokenizer.ggml.add_bos_token") == 0)
        card->add_bos = value != 0;
    else if (strcmp(key, "tokenizer.ggml.add_space_prefix") == 0) {
        card->add_space_prefix = value != 0;
        found->has_space_prefix = true;
    }
}

/* From GGUF metadata; NULL: the file is absent. */
static inline struct model_card *card_from_gguf(const char *path)
{
    struct file_bytes file = read_file(path, 8u << 20);
    if (file.data == NULL)
        return NULL;
    struct gguf_at g = {file.data + 16};
    struct gguf_found found = {0};
    struct model_card *card = test_card(TOKENIZER_BPE, "");
    uint64_t count = gguf_number(&g, 8);
    for (uint64_t i = 0; i < count; i++) {
        size_t bytes = 0;
        const char *text = gguf_text(&g, &bytes);
        char *key = mem_strndup(text, bytes);
        uint32_t type = (uint32_t)gguf_number(&g, 4);
        if (type == 9)
            gguf_array(&g, key, card, &found);
        else
            gguf_scalar(&g, type, key, card, &found);
        mem_free(key);
    }
    if (!found.has_space_prefix) /* llama.cpp's defaults */
        card->add_space_prefix = card->tokenizer == TOKENIZER_SPM;
    card->decode_strip = card->add_space_prefix ? DECODE_STRIP_SPACE : DECODE_STRIP_NONE;
    card->vocab_size = card->tokens.count;
    model_card_set_types(card, found.types, NULL, found.scores);
    mem_free(found.types);
    mem_free(found.scores);
    mem_free(file.data);
    return card;
}

/* --- lists ----------------------------------------------------------------------------------- */

static inline void add_lines(struct string_table_builder *builder, const struct file_bytes *file)
{
    const char *at = file->data, *end = file->data + file->bytes;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = newline == NULL ? (size_t)(end - at) : (size_t)(newline - at);
        ASSERT(string_table_builder_add(builder, at, bytes) == 0);
        at += bytes + 1;
    }
}

/* Qwen2's vocabulary with its merges and added tokens; NULL: a file is absent. */
static inline struct model_card *card_from_qwen2(void)
{
    struct file_bytes tokens = read_file(CASES_DIR "qwen2.tokens.txt.gz", 8u << 20);
    struct file_bytes merges = read_file(CASES_DIR "qwen2.merges.txt.gz", 8u << 20);
    json_t *added = read_json(CASES_DIR "qwen2.added_tokens.json");
    if (tokens.data == NULL || merges.data == NULL || added == NULL)
        return NULL;
    struct model_card *card = test_card(TOKENIZER_BPE, "qwen2");
    struct string_table_builder builder;
    string_table_builder_init(&builder);
    add_lines(&builder, &merges);
    string_table_builder_move(&builder, card, &card->merges);
    add_lines(&builder, &tokens);
    uint32_t base = builder.count;
    uint8_t *types = mem_alloc(base + json_array_size(added));
    memset(types, TOKEN_NORMAL, base);
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const char *text = json_string_value(json_object_get(token, "content"));
        ASSERT(json_integer_value(json_object_get(token, "id")) == builder.count);
        types[builder.count] =
            json_is_true(json_object_get(token, "special")) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
        ASSERT(string_table_builder_add(&builder, text, strlen(text)) == 0);
    }
    string_table_builder_move(&builder, card, &card->tokens);
    card->vocab_size = card->tokens.count;
    model_card_set_types(card, types, NULL, NULL);
    mem_free(types);
    mem_free(tokens.data);
    mem_free(merges.data);
    json_decref(added);
    return card;
}

/* Bytes in GPT-2's byte alphabet. */
static inline size_t to_alphabet(const unsigned char *bytes, size_t count, char *ret_text)
{
    size_t out = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t b = bytes[i], cp = b;
        if (b <= 0x20)
            cp = 0x100 + b;
        else if (b >= 0x7f && b <= 0xa0)
            cp = 0x100 + b - 0x7f + 0x21;
        else if (b == 0xad)
            cp = 0x143;
        if (cp >= 0x80)
            ret_text[out++] = (char)(0xc0 | cp >> 6);
        ret_text[out++] = (char)(cp < 0x80 ? cp : 0x80 | (cp & 0x3f));
    }
    return out;
}

static inline size_t from_base64(const char *text, size_t count, unsigned char *ret_bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t word = 0, bits = 0;
    size_t out = 0;
    for (size_t i = 0; i < count && text[i] != '='; i++) {
        word = word << 6 | (uint32_t)(strchr(digits, text[i]) - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            ret_bytes[out++] = (unsigned char)(word >> bits);
        }
    }
    return out;
}

/* "base64 rank" lines, ranks rising from 0: no merges, a token's rank is its id. */
static inline struct model_card *card_from_tiktoken(const char *path, const char *pre)
{
    struct file_bytes file = read_file(path, 16u << 20);
    struct string_table_builder builder;
    if (file.data == NULL)
        return NULL;
    struct model_card *card = test_card(TOKENIZER_BPE, pre);
    string_table_builder_init(&builder);
    for (const char *at = file.data; at < file.data + file.bytes;) {
        unsigned char bytes[1024];
        char text[2048];
        const char *space = strchr(at, ' ');
        const char *newline = strchr(space, '\n');
        ASSERT((uint32_t)atoi(space + 1) >= builder.count);
        while (builder.count < (uint32_t)atoi(space + 1)) /* a rank that is not used */
            ASSERT(string_table_builder_add(&builder, "", 0) == 0);
        size_t count = from_base64(at, (size_t)(space - at), bytes);
        ASSERT(string_table_builder_add(&builder, text, to_alphabet(bytes, count, text)) == 0);
        at = newline == NULL ? file.data + file.bytes : newline + 1;
    }
    string_table_builder_move(&builder, card, &card->tokens);
    uint8_t *types = mem_alloc(card->tokens.count);
    memset(types, TOKEN_NORMAL, card->tokens.count);
    model_card_set_types(card, types, NULL, NULL);
    card->vocab_size = card->tokens.count;
    mem_free(types);
    mem_free(file.data);
    return card;
}

/* --- tokenizer.json -------------------------------------------------------------------------- */

/* Byte-level BPE with "merges" as texts and the GPT-2 pattern. */
static inline struct model_card *card_from_tokenizer_json(const char *path)
{
    json_t *root = read_json(path);
    if (root == NULL)
        return NULL;
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab"), *merge = NULL;
    const json_t *added = json_object_get(root, "added_tokens");
    struct model_card *card = test_card(TOKENIZER_BPE, "gpt-2");
    struct string_table_builder builder;
    size_t i = 0, count = json_object_size(vocab) + json_array_size(added);
    const char **texts = mem_calloc(count, sizeof(*texts)), *text = NULL;
    uint8_t *types = mem_alloc(count);
    json_t *id = NULL;
    memset(types, TOKEN_NORMAL, count);
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id) texts[json_integer_value(id)] = text;
    for (i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        size_t at = (size_t)json_integer_value(json_object_get(token, "id"));
        texts[at] = json_string_value(json_object_get(token, "content"));
        types[at] =
            json_is_true(json_object_get(token, "special")) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    }
    string_table_builder_init(&builder);
    for (i = 0; i < count && texts[i] != NULL; i++)
        ASSERT(string_table_builder_add(&builder, texts[i], strlen(texts[i])) == 0);
    string_table_builder_move(&builder, card, &card->tokens);
    json_array_foreach(json_object_get(model, "merges"), i, merge)
    {
        char line[256];
        text = json_string_value(merge);
        if (text == NULL) {
            (void)snprintf(line, sizeof(line), "%s %s", json_string_value(json_array_get(merge, 0)),
                           json_string_value(json_array_get(merge, 1)));
            text = line;
        }
        ASSERT(string_table_builder_add(&builder, text, strlen(text)) == 0);
    }
    string_table_builder_move(&builder, card, &card->merges);
    model_card_set_types(card, types, NULL, NULL);
    card->vocab_size = card->tokens.count;
    mem_free(texts);
    mem_free(types);
    json_decref(root);
    return card;
}

#endif
