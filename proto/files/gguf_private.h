/* gguf_private.h - an open GGUF file, shared by gguf.c (parsing) and gguf_values.c (reading). */
#ifndef REFRAIN_PROTO_FILES_GGUF_PRIVATE_H
#define REFRAIN_PROTO_FILES_GGUF_PRIVATE_H

#include "proto/base/map.h"
#include "proto/files/gguf.h"

enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

struct gguf_key {
    struct gguf_string name;
    uint32_t type;             /* enum gguf_type; GGUF_ARRAY: see below */
    const uint8_t *scalar;     /* not aligned */
    struct gguf_string string; /* GGUF_STRING */
    uint32_t item_type, items_count;
    const void *items;           /* numbers, aligned: into the file, or into `owned` */
    struct gguf_string *strings; /* GGUF_STRING items */
    void *owned;
};

struct gguf {
    const uint8_t *data;
    size_t bytes;
    void *mapping; /* NULL: memory of the caller */
    size_t alignment;
    struct gguf_key *keys;
    size_t keys_count;
    struct gguf_tensor *tensors;
    size_t tensors_count;
    struct map *keys_by_name;
    struct map *tensors_by_name;
};

/* Bytes of a scalar of this type; 0: string, array or unknown. */
size_t gguf_type_bytes(uint32_t type);

#endif
