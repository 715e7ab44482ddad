/* gguf_values.c - typed reading of what gguf.c parsed: keys by name, tensors by name or index.
 *
 * Writers disagree about integer widths (u32 or u64 counts, i32 or u32 ids), so integers convert
 * when the value fits; nothing else does. Cost: a hash lookup; the arrays of integers are scanned
 * when unsigned. Invariant: no function here changes the struct. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/files/gguf_private.h"

static const struct gguf_key *find(const struct gguf *gguf, const char *key)
{
    return map_get_text(gguf->keys_by_name, key);
}

/* Any integer or bool as i64; false: another type, or past INT64_MAX. */
static bool as_i64(const struct gguf_key *key, int64_t *ret_value)
{
    uint64_t raw = 0;
    size_t bytes = gguf_type_bytes(key->type);
    if (key->type == GGUF_F32 || key->type == GGUF_F64 || bytes == 0)
        return false;
    memcpy(&raw, key->scalar, bytes);
    if (key->type == GGUF_I8 || key->type == GGUF_I16 || key->type == GGUF_I32 ||
        key->type == GGUF_I64) {
        unsigned unused = 64 - 8 * (unsigned)bytes; /* sign extension */
        *ret_value = (int64_t)(raw << unused) >> unused;
        return true;
    }
    *ret_value = (int64_t)raw;
    return raw <= INT64_MAX;
}

int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *ret_value)
{
    int64_t value = 0;
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (!as_i64(found, &value) || value < 0 || value > UINT32_MAX)
        return -EINVAL;
    *ret_value = (uint32_t)value;
    return 0;
}

int gguf_get_f32(const struct gguf *gguf, const char *key, float *ret_value)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type == GGUF_F32) {
        memcpy(ret_value, found->scalar, sizeof(*ret_value));
        return 0;
    }
    if (found->type == GGUF_F64) {
        double value = 0;
        memcpy(&value, found->scalar, sizeof(value));
        *ret_value = (float)value;
        return 0;
    }
    int64_t value = 0;
    if (found->type == GGUF_BOOL || !as_i64(found, &value))
        return -EINVAL;
    *ret_value = (float)value;
    return 0;
}

int gguf_get_bool(const struct gguf *gguf, const char *key, bool *ret_value)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type != GGUF_BOOL)
        return -EINVAL;
    *ret_value = *found->scalar != 0;
    return 0;
}

int gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *ret_value)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type != GGUF_STRING)
        return -EINVAL;
    *ret_value = found->string;
    return 0;
}

int gguf_array_count(const struct gguf *gguf, const char *key, uint32_t *ret_count)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type != GGUF_ARRAY)
        return -EINVAL;
    *ret_count = found->items_count;
    return 0;
}

int gguf_array_strings(const struct gguf *gguf, const char *key,
                       const struct gguf_string **ret_items, uint32_t *ret_count)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type != GGUF_ARRAY || found->item_type != GGUF_STRING)
        return -EINVAL;
    *ret_items = found->strings;
    *ret_count = found->items_count;
    return 0;
}

int gguf_array_i32(const struct gguf *gguf, const char *key, const int32_t **ret_items,
                   uint32_t *ret_count)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type != GGUF_ARRAY || (found->item_type != GGUF_I32 && found->item_type != GGUF_U32))
        return -EINVAL;
    const int32_t *items = found->items;
    if (found->item_type == GGUF_U32) {
        for (uint32_t i = 0; i < found->items_count; i++) {
            if (items[i] < 0)
                return -EINVAL; /* past INT32_MAX */
        }
    }
    *ret_items = items;
    *ret_count = found->items_count;
    return 0;
}

int gguf_array_f32(const struct gguf *gguf, const char *key, const float **ret_items,
                   uint32_t *ret_count)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type != GGUF_ARRAY || found->item_type != GGUF_F32)
        return -EINVAL;
    *ret_items = found->items;
    *ret_count = found->items_count;
    return 0;
}

int gguf_array_bytes(const struct gguf *gguf, const char *key, const uint8_t **ret_items,
                     uint32_t *ret_count)
{
    const struct gguf_key *found = find(gguf, key);
    if (found == NULL)
        return -ENOENT;
    if (found->type != GGUF_ARRAY || (found->item_type != GGUF_U8 && found->item_type != GGUF_I8 &&
                                      found->item_type != GGUF_BOOL))
        return -EINVAL;
    *ret_items = found->items;
    *ret_count = found->items_count;
    return 0;
}

size_t gguf_tensors_count(const struct gguf *gguf)
{
    return gguf->tensors_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t i)
{
    ASSERT(i < gguf->tensors_count);
    return &gguf->tensors[i];
}

const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, const char *name)
{
    return map_get_text(gguf->tensors_by_name, name);
}
