/* gguf.h - one GGUF file, mapped read-only, every count, length and offset checked before use.
 *
 * Format: GGUF version 2 and 3, little-endian. Hostile files get a named error, never a crash:
 * truncated, absurd counts, overlapping or misaligned tensors, unknown types, duplicate names,
 * strings past the end, nested arrays.
 *
 * Views stay valid until gguf_close(). Thread: any (read-only). */
#ifndef REFRAIN_PROTO_FILES_GGUF_H
#define REFRAIN_PROTO_FILES_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/dtype.h"
#include "proto/base/errmsg.h"

#define GGUF_TENSORS_MAX 65536u
#define GGUF_KEYS_MAX 65536u
#define GGUF_ARRAY_MAX (1u << 24)

struct gguf;

struct gguf_string {
    const char *text; /* not terminated */
    size_t bytes;
};

struct gguf_tensor {
    struct gguf_string name;
    uint32_t dims_count;
    uint64_t dims[4]; /* dims[0] is contiguous (columns); unused ones are 1 */
    enum dtype dtype;
    const void *data;
    size_t bytes;
};

/* path: a file. 0; -ENOENT...; -EINVAL with a sentence that names file, key or tensor. */
int gguf_open(const char *path, struct gguf **ret_gguf, struct errmsg *err);
/* The same over memory that outlives it (tests, fuzzing); 64-byte aligned where tensors are used.
 */
int gguf_open_memory(const void *data, size_t bytes, struct gguf **ret_gguf, struct errmsg *err);
void gguf_close(struct gguf *gguf); /* NULL is fine */
/* These bytes of the file were used and will not be again soon: they leave our resident memory. */
void gguf_drop_pages(const struct gguf *gguf, const void *data, size_t bytes);

size_t gguf_tensors_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t i);
const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, const char *name); /* or NULL */

/* 0; -ENOENT: no such key; -EINVAL: another type. Integers of any width and sign convert when the
 * value fits; u32 also from bool. */
int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *ret_value);
int gguf_get_f32(const struct gguf *gguf, const char *key, float *ret_value);
int gguf_get_bool(const struct gguf *gguf, const char *key, bool *ret_value);
int gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *ret_value);
/* Arrays: views; i32 also from u32 whose values fit; bytes from u8 and i8. */
int gguf_array_count(const struct gguf *gguf, const char *key, uint32_t *ret_count);
int gguf_array_strings(const struct gguf *gguf, const char *key,
                       const struct gguf_string **ret_items, uint32_t *ret_count);
int gguf_array_i32(const struct gguf *gguf, const char *key, const int32_t **ret_items,
                   uint32_t *ret_count);
int gguf_array_f32(const struct gguf *gguf, const char *key, const float **ret_items,
                   uint32_t *ret_count);
/* Of u8, i8 or bool (0 or 1). */
int gguf_array_bytes(const struct gguf *gguf, const char *key, const uint8_t **ret_items,
                     uint32_t *ret_count);

#endif
