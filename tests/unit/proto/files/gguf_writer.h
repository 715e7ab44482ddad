/* gguf_writer.h - small GGUF files in memory, for tests: valid ones and, with put_*, broken ones.
 */
#ifndef REFRAIN_TESTS_UNIT_PROTO_FILES_GGUF_WRITER_H
#define REFRAIN_TESTS_UNIT_PROTO_FILES_GGUF_WRITER_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/files/gguf.h"

/* Head, keys and tensors are gathered apart, so that the counts need not be known before. */
struct gguf_writer {
    struct buffer keys, infos, data;
    uint64_t keys_count, tensors_count;
    uint32_t version;
    uint64_t alignment;
};

static inline void writer_init(struct gguf_writer *w)
{
    memset(w, 0, sizeof(*w));
    buffer_init(&w->keys, 64u << 20);
    buffer_init(&w->infos, 64u << 20);
    buffer_init(&w->data, 64u << 20);
    w->version = 3;
    w->alignment = 32;
}

static inline void writer_done(struct gguf_writer *w)
{
    buffer_done(&w->keys);
    buffer_done(&w->infos);
    buffer_done(&w->data);
}

static inline void put_u32(struct buffer *b, uint32_t value)
{
    buffer_append(b, &value, sizeof(value));
}

static inline void put_u64(struct buffer *b, uint64_t value)
{
    buffer_append(b, &value, sizeof(value));
}

static inline void put_string(struct buffer *b, const char *text)
{
    put_u64(b, strlen(text));
    buffer_append_text(b, text);
}

/* A key of any type: raw bytes of the value. */
static inline void write_key(struct gguf_writer *w, const char *name, uint32_t type,
                             const void *value, size_t bytes)
{
    put_string(&w->keys, name);
    put_u32(&w->keys, type);
    buffer_append(&w->keys, value, bytes);
    w->keys_count++;
}

static inline void write_u32(struct gguf_writer *w, const char *name, uint32_t value)
{
    write_key(w, name, 4, &value, sizeof(value));
}

static inline void write_f32(struct gguf_writer *w, const char *name, float value)
{
    write_key(w, name, 6, &value, sizeof(value));
}

static inline void write_bool(struct gguf_writer *w, const char *name, bool value)
{
    uint8_t byte = value;
    write_key(w, name, 7, &byte, 1);
}

static inline void write_text(struct gguf_writer *w, const char *name, const char *text)
{
    write_key(w, name, 8, NULL, 0);
    put_string(&w->keys, text);
}

static inline void write_array(struct gguf_writer *w, const char *name, uint32_t item_type,
                               uint64_t count, const void *items, size_t bytes)
{
    write_key(w, name, 9, NULL, 0);
    put_u32(&w->keys, item_type);
    put_u64(&w->keys, count);
    buffer_append(&w->keys, items, bytes);
}

static inline void write_texts(struct gguf_writer *w, const char *name, const char *const *texts,
                               size_t count)
{
    write_array(w, name, 8, count, NULL, 0);
    for (size_t i = 0; i < count; i++)
        put_string(&w->keys, texts[i]);
}

/* The description only; the offset is given. */
static inline void write_info(struct gguf_writer *w, const char *name, uint32_t dims_count,
                              const uint64_t *dims, uint32_t type, uint64_t offset)
{
    put_string(&w->infos, name);
    put_u32(&w->infos, dims_count);
    for (uint32_t i = 0; i < dims_count; i++)
        put_u64(&w->infos, dims[i]);
    put_u32(&w->infos, type);
    put_u64(&w->infos, offset);
    w->tensors_count++;
}

static inline void pad(struct buffer *b, uint64_t alignment)
{
    while (b->bytes % alignment != 0)
        buffer_append_char(b, '\0');
}

/* [rows, columns] of f32 with its data; values NULL: zeros. */
static inline void write_tensor(struct gguf_writer *w, const char *name, uint64_t rows,
                                uint64_t columns, const float *values)
{
    const uint64_t dims[2] = {columns, rows};
    pad(&w->data, w->alignment);
    write_info(w, name, rows == 1 ? 1 : 2, dims, 0, w->data.bytes);
    for (uint64_t i = 0; i < rows * columns; i++) {
        float value = values == NULL ? 0.0f : values[i];
        buffer_append(&w->data, &value, sizeof(value));
    }
}

/* The file; free() it: its size is exact, so that a sanitizer sees a read past the end. */
static inline void *writer_finish(struct gguf_writer *w, size_t *ret_bytes)
{
    struct buffer out;
    void *data = NULL;
    buffer_init(&out, 256u << 20);
    buffer_append_text(&out, "GGUF");
    put_u32(&out, w->version);
    put_u64(&out, w->tensors_count);
    put_u64(&out, w->keys_count);
    buffer_append(&out, w->keys.data, w->keys.bytes);
    buffer_append(&out, w->infos.data, w->infos.bytes);
    pad(&out, w->alignment);
    buffer_append(&out, w->data.data, w->data.bytes);
    if (posix_memalign(&data, 64, out.bytes) != 0)
        abort();
    memcpy(data, out.data, out.bytes);
    *ret_bytes = out.bytes;
    buffer_done(&out);
    return data;
}

/* --- a whole llama -------------------------------------------------------------------------- */

struct llama_sizes {
    uint32_t layers, hidden, ffn, q_heads, kv_heads, vocab_size;
    bool tied;
};

static const struct llama_sizes llama_small = {
    .layers = 2, .hidden = 8, .ffn = 12, .q_heads = 4, .kv_heads = 2, .vocab_size = 10};

static inline void write_llama_keys(struct gguf_writer *w, const struct llama_sizes *s)
{
    write_text(w, "general.architecture", "llama");
    write_u32(w, "llama.block_count", s->layers);
    write_u32(w, "llama.embedding_length", s->hidden);
    write_u32(w, "llama.feed_forward_length", s->ffn);
    write_u32(w, "llama.context_length", 64);
    write_u32(w, "llama.attention.head_count", s->q_heads);
    write_u32(w, "llama.attention.head_count_kv", s->kv_heads);
    write_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

/* Reproducible values in -1..1 from a counter. */
static inline float llama_value(uint64_t *counter)
{
    *counter = *counter * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(int32_t)(*counter >> 32) / 2147483648.0f;
}

static inline void write_random(struct gguf_writer *w, const char *name, uint64_t rows,
                                uint64_t columns, uint64_t *counter)
{
    float *values = mem_calloc(rows * columns, sizeof(float));
    for (uint64_t i = 0; i < rows * columns; i++)
        values[i] = llama_value(counter) + (rows == 1 ? 1.0f : 0.0f);
    write_tensor(w, name, rows, columns, values);
    mem_free(values);
}

static inline void write_llama_tensors(struct gguf_writer *w, const struct llama_sizes *s)
{
    uint64_t counter = 1, dim = s->hidden / s->q_heads;
    write_random(w, "token_embd.weight", s->vocab_size, s->hidden, &counter);
    for (uint32_t i = 0; i < s->layers; i++) {
        const struct {
            const char *kind;
            uint64_t rows, columns;
        } matrices[] = {
            {"attn_norm", 1, s->hidden},
            {"attn_q", s->q_heads * dim, s->hidden},
            {"attn_k", s->kv_heads * dim, s->hidden},
            {"attn_v", s->kv_heads * dim, s->hidden},
            {"attn_output", s->hidden, s->q_heads * dim},
            {"ffn_norm", 1, s->hidden},
            {"ffn_gate", s->ffn, s->hidden},
            {"ffn_up", s->ffn, s->hidden},
            {"ffn_down", s->hidden, s->ffn},
        };
        for (size_t m = 0; m < sizeof(matrices) / sizeof(matrices[0]); m++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", i, matrices[m].kind);
            write_random(w, name, matrices[m].rows, matrices[m].columns, &counter);
        }
    }
    write_random(w, "output_norm.weight", 1, s->hidden, &counter);
    if (!s->tied)
        write_random(w, "output.weight", s->vocab_size, s->hidden, &counter);
}

#endif
