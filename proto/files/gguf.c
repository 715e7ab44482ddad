/* gguf.c - a GGUF file: mapped, walked once, every number checked before it is used.
 *
 *   header   "GGUF" | version u32 | tensors u64 | keys u64
 *   keys     name, type u32, value                      strings: bytes u64, then the text
 *   tensors  name, dims_count u32, dims u64[], type u32, offset u64
 *   (padding to general.alignment)
 *   data     tensors at their offsets
 *
 * Why everything at open: a hostile file is refused in one place, and afterwards the struct is
 * read-only, so any thread may use it. Arrays stay where they are in the file unless their address
 * is odd (numbers) or they are strings (indexed here, 16 bytes each).
 * Cost: one pass over the metadata, about 2 ms for 49152 tokens and 48900 merges; memory is bounded
 *   by a small multiple of the metadata's bytes. Tensor data is not touched.
 * Invariants: tensors lie inside the file, aligned, without overlap; names are unique.
 * A file that another process cuts short while it is mapped ends us with SIGBUS: model files are
 * replaced by rename, not rewritten. */
#include "proto/files/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/files/gguf_private.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "gguf.c reads arrays as they lie in the file: little-endian machines only"
#endif

#define VERSION_MIN 2u
#define VERSION_MAX 3u
#define VERSION_BIG_ENDIAN_MAX 0x0fu
#define NAME_BYTES_MAX 255u
#define KEY_BYTES_MIN 13u    /* empty name, type, one byte */
#define TENSOR_BYTES_MIN 32u /* empty name, one dimension */
#define ALIGNMENT_DEFAULT 32u
#define ALIGNMENT_MIN 8u
#define ALIGNMENT_MAX 65536u

struct cursor {
    const uint8_t *data;
    size_t at, bytes;
    struct errmsg *err;
};

/* A name from a file, safe to show: ASCII, cut. */
struct shown {
    char text[72];
};

static struct shown shown(struct gguf_string name)
{
    struct shown s;
    size_t n = name.bytes < sizeof(s.text) - 1 ? name.bytes : sizeof(s.text) - 1;
    for (size_t i = 0; i < n; i++) {
        char c = name.text[i];
        s.text[i] = (char)(c >= 0x20 && c < 0x7f && c != '\'' ? c : '?');
    }
    s.text[n] = '\0';
    return s;
}

size_t gguf_type_bytes(uint32_t type)
{
    static const uint8_t bytes[GGUF_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return type < GGUF_TYPES ? bytes[type] : 0;
}

static int take(struct cursor *cursor, size_t bytes, const char *what, const uint8_t **ret_data)
{
    if (bytes > cursor->bytes - cursor->at)
        return errmsg_set(cursor->err, -EINVAL,
                          "%s of %zu bytes at byte %zu: the file ends at %zu, it is truncated",
                          what, bytes, cursor->at, cursor->bytes);
    *ret_data = cursor->data + cursor->at;
    cursor->at += bytes;
    return 0;
}

static int take_u32(struct cursor *cursor, const char *what, uint32_t *ret_value)
{
    const uint8_t *data = NULL;
    int r = take(cursor, sizeof(*ret_value), what, &data);
    if (r < 0)
        return r;
    ASSERT(data != NULL);
    memcpy(ret_value, data, sizeof(*ret_value));
    return 0;
}

static int take_u64(struct cursor *cursor, const char *what, uint64_t *ret_value)
{
    const uint8_t *data = NULL;
    int r = take(cursor, sizeof(*ret_value), what, &data);
    if (r < 0)
        return r;
    ASSERT(data != NULL);
    memcpy(ret_value, data, sizeof(*ret_value));
    return 0;
}

static int take_string(struct cursor *cursor, const char *what, struct gguf_string *ret_string)
{
    uint64_t bytes = 0;
    const uint8_t *data = NULL;
    int r = take_u64(cursor, what, &bytes);
    if (r == 0)
        r = take(cursor, bytes, what, &data);
    if (r < 0)
        return r;
    *ret_string = (struct gguf_string){(const char *)data, bytes};
    return 0;
}

static int take_name(struct cursor *cursor, const char *what, struct gguf_string *ret_name)
{
    size_t at = cursor->at;
    int r = take_string(cursor, what, ret_name);
    if (r < 0)
        return r;
    if (ret_name->bytes == 0 || ret_name->bytes > NAME_BYTES_MAX ||
        memchr(ret_name->text, '\0', ret_name->bytes) != NULL)
        return errmsg_set(cursor->err, -EINVAL,
                          "%s at byte %zu has %zu bytes or a NUL; 1 to %u bytes are allowed", what,
                          at, ret_name->bytes, NAME_BYTES_MAX);
    return 0;
}

/* --- keys ------------------------------------------------------------------------------------ */

static int take_array_strings(struct cursor *cursor, struct gguf_key *key)
{
    key->strings = key->owned = mem_calloc(key->items_count + 1, sizeof(*key->strings));
    for (uint32_t i = 0; i < key->items_count; i++) {
        int r = take_string(cursor, "a string", &key->strings[i]);
        if (r < 0)
            return errmsg_prefix(cursor->err, r, "item %u of key '%s'", i, shown(key->name).text);
    }
    return 0;
}

static int take_array(struct cursor *cursor, struct gguf_key *key)
{
    uint64_t count = 0;
    int r = take_u32(cursor, "an item type", &key->item_type);
    if (r == 0)
        r = take_u64(cursor, "an item count", &count);
    if (r < 0)
        return errmsg_prefix(cursor->err, r, "key '%s'", shown(key->name).text);
    size_t item_bytes = gguf_type_bytes(key->item_type);
    if (key->item_type == GGUF_ARRAY)
        return errmsg_set(cursor->err, -EINVAL, "key '%s' is an array of arrays",
                          shown(key->name).text);
    if (item_bytes == 0 && key->item_type != GGUF_STRING)
        return errmsg_set(cursor->err, -EINVAL, "key '%s' has items of unknown type %u",
                          shown(key->name).text, key->item_type);
    size_t least = item_bytes == 0 ? sizeof(uint64_t) : item_bytes;
    if (count > GGUF_ARRAY_MAX || count > (cursor->bytes - cursor->at) / least)
        return errmsg_set(cursor->err, -EINVAL,
                          "key '%s' has %llu items: at most %u, and the file has only %zu bytes "
                          "left",
                          shown(key->name).text, (unsigned long long)count, GGUF_ARRAY_MAX,
                          cursor->bytes - cursor->at);
    key->items_count = (uint32_t)count;
    if (key->item_type == GGUF_STRING)
        return take_array_strings(cursor, key);
    const uint8_t *data = NULL;
    r = take(cursor, count * item_bytes, "an array", &data);
    if (r < 0)
        return r;
    key->items = data;
    if ((uintptr_t)data % item_bytes != 0 && count > 0) {
        key->owned = mem_alloc(count * item_bytes);
        memcpy(key->owned, data, count * item_bytes);
        key->items = key->owned;
    }
    return 0;
}

static int take_value(struct cursor *cursor, struct gguf_key *key)
{
    int r = take_u32(cursor, "a value's type", &key->type);
    if (r < 0)
        return errmsg_prefix(cursor->err, r, "key '%s'", shown(key->name).text);
    if (key->type == GGUF_ARRAY)
        return take_array(cursor, key);
    if (key->type == GGUF_STRING) {
        r = take_string(cursor, "a string", &key->string);
        return r < 0 ? errmsg_prefix(cursor->err, r, "key '%s'", shown(key->name).text) : 0;
    }
    size_t bytes = gguf_type_bytes(key->type);
    if (bytes == 0)
        return errmsg_set(cursor->err, -EINVAL, "key '%s' has unknown type %u",
                          shown(key->name).text, key->type);
    r = take(cursor, bytes, "a value", &key->scalar);
    if (r < 0)
        return errmsg_prefix(cursor->err, r, "key '%s'", shown(key->name).text);
    if (key->type == GGUF_BOOL && *key->scalar > 1)
        return errmsg_set(cursor->err, -EINVAL, "key '%s' is a bool of value %u",
                          shown(key->name).text, *key->scalar);
    return 0;
}

static int take_keys(struct cursor *cursor, struct gguf *gguf, uint64_t count)
{
    gguf->keys = mem_calloc(count + 1, sizeof(*gguf->keys));
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_key *key = &gguf->keys[i];
        gguf->keys_count = i + 1; /* so that close frees what a failed one owns */
        int r = take_name(cursor, "a key", &key->name);
        if (r == 0)
            r = take_value(cursor, key);
        if (r < 0)
            return r;
        if (map_get(gguf->keys_by_name, key->name.text, key->name.bytes) != NULL)
            return errmsg_set(cursor->err, -EINVAL, "key '%s' stands in the file twice",
                              shown(key->name).text);
        r = map_set(gguf->keys_by_name, key->name.text, key->name.bytes, key, NULL);
        ASSERT(r == 0);
    }
    return 0;
}

/* --- tensors --------------------------------------------------------------------------------- */

/* Dims and type -> bytes, refusing what would overflow. */
static int size_tensor(struct cursor *cursor, struct gguf_tensor *tensor, uint32_t type)
{
    const struct dtype_info *info = dtype_info(type);
    struct shown name = shown(tensor->name);
    if (info == NULL)
        return errmsg_set(cursor->err, -EINVAL, "tensor '%s' has type %u, which is not known",
                          name.text, type);
    uint64_t values = 1, blocks = 0, bytes = 0;
    for (uint32_t i = 0; i < 4; i++) {
        if (tensor->dims[i] == 0)
            return errmsg_set(cursor->err, -EINVAL, "tensor '%s': dimension %u is 0", name.text, i);
        if (__builtin_mul_overflow(values, tensor->dims[i], &values))
            return errmsg_set(cursor->err, -EINVAL, "tensor '%s': its dimensions overflow",
                              name.text);
    }
    if (tensor->dims[0] % info->block_values != 0)
        return errmsg_set(
            cursor->err, -EINVAL, "tensor '%s': rows of %llu values are not whole %s blocks of %u",
            name.text, (unsigned long long)tensor->dims[0], info->name, info->block_values);
    blocks = values / info->block_values;
    if (__builtin_mul_overflow(blocks, (uint64_t)info->block_bytes, &bytes))
        return errmsg_set(cursor->err, -EINVAL, "tensor '%s': its dimensions overflow", name.text);
    tensor->dtype = (enum dtype)type;
    tensor->bytes = bytes;
    return 0;
}

static int take_tensor(struct cursor *cursor, struct gguf_tensor *tensor, uint64_t *ret_offset)
{
    uint32_t type = 0;
    int r = take_name(cursor, "a tensor's name", &tensor->name);
    if (r < 0)
        return r;
    r = take_u32(cursor, "a dimension count", &tensor->dims_count);
    if (r < 0)
        return r;
    if (tensor->dims_count < 1 || tensor->dims_count > 4)
        return errmsg_set(cursor->err, -EINVAL, "tensor '%s' has %u dimensions, 1 to 4 are known",
                          shown(tensor->name).text, tensor->dims_count);
    for (uint32_t i = 0; i < 4; i++) {
        tensor->dims[i] = 1;
        if (i < tensor->dims_count)
            r = take_u64(cursor, "a dimension", &tensor->dims[i]);
        if (r < 0)
            return r;
    }
    r = take_u32(cursor, "a tensor's type", &type);
    if (r == 0)
        r = take_u64(cursor, "a tensor's offset", ret_offset);
    if (r == 0)
        r = size_tensor(cursor, tensor, type);
    return r;
}

/* A tensor and where its data begins, before that is known to be inside the file. */
struct placed {
    uint64_t offset;
    struct gguf_tensor *tensor;
};

static int take_tensors(struct cursor *cursor, struct gguf *gguf, uint64_t count,
                        struct placed *placed)
{
    gguf->tensors = mem_calloc(count + 1, sizeof(*gguf->tensors));
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_tensor *tensor = &gguf->tensors[i];
        uint64_t offset = 0;
        int r = take_tensor(cursor, tensor, &offset);
        if (r < 0)
            return r;
        if (offset % gguf->alignment != 0)
            return errmsg_set(
                cursor->err, -EINVAL, "tensor '%s' is misaligned: offset %llu, alignment %zu",
                shown(tensor->name).text, (unsigned long long)offset, gguf->alignment);
        if (map_get(gguf->tensors_by_name, tensor->name.text, tensor->name.bytes) != NULL)
            return errmsg_set(cursor->err, -EINVAL, "tensor '%s' stands in the file twice",
                              shown(tensor->name).text);
        r = map_set(gguf->tensors_by_name, tensor->name.text, tensor->name.bytes, tensor, NULL);
        ASSERT(r == 0);
        placed[i] = (struct placed){offset, tensor};
        gguf->tensors_count = i + 1;
    }
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Offsets -> pointers; every tensor lies inside the file and apart from the others. */
static int place_tensors(struct cursor *cursor, struct gguf *gguf, struct placed *placed)
{
    size_t mask = gguf->alignment - 1, count = gguf->tensors_count;
    size_t begin = (cursor->at + mask) & ~mask;
    size_t room = gguf->bytes > begin ? gguf->bytes - begin : 0;
    uint64_t end = 0;
    qsort(placed, count, sizeof(*placed), by_offset);
    for (size_t i = 0; i < count; i++) {
        struct gguf_tensor *tensor = placed[i].tensor;
        uint64_t offset = placed[i].offset;
        if (offset > room || tensor->bytes > room - offset)
            return errmsg_set(cursor->err, -EINVAL,
                              "tensor '%s' needs %zu bytes at offset %llu of the data, which has "
                              "%zu: the file is truncated",
                              shown(tensor->name).text, tensor->bytes, (unsigned long long)offset,
                              room);
        if (offset < end)
            return errmsg_set(cursor->err, -EINVAL, "tensors '%s' and '%s' overlap",
                              shown(placed[i - 1].tensor->name).text, shown(tensor->name).text);
        tensor->data = gguf->data + begin + offset;
        end = offset + tensor->bytes;
    }
    return 0;
}

/* --- file ------------------------------------------------------------------------------------ */

static int take_header(struct cursor *cursor, uint64_t *ret_tensors, uint64_t *ret_keys)
{
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    int r = take(cursor, 4, "the magic", &magic);
    if (r < 0)
        return r;
    ASSERT(magic != NULL);
    if (memcmp(magic, "GGUF", 4) != 0)
        return errmsg_set(cursor->err, -EINVAL, "this is not a GGUF file");
    r = take_u32(cursor, "the version", &version);
    if (r < 0)
        return r;
    if (version != 0 && __builtin_bswap32(version) <= VERSION_BIG_ENDIAN_MAX)
        return errmsg_set(cursor->err, -EINVAL,
                          "a big-endian GGUF file, only little-endian is read");
    if (version < VERSION_MIN || version > VERSION_MAX)
        return errmsg_set(cursor->err, -EINVAL, "GGUF version %u, versions %u and %u are read",
                          version, VERSION_MIN, VERSION_MAX);
    r = take_u64(cursor, "the tensor count", ret_tensors);
    if (r == 0)
        r = take_u64(cursor, "the key count", ret_keys);
    if (r < 0)
        return r;
    size_t left = cursor->bytes - cursor->at;
    if (*ret_tensors > GGUF_TENSORS_MAX || *ret_tensors > left / TENSOR_BYTES_MIN)
        return errmsg_set(cursor->err, -EINVAL, "a tensor count of %llu in a file of %zu bytes",
                          (unsigned long long)*ret_tensors, cursor->bytes);
    if (*ret_keys > GGUF_KEYS_MAX || *ret_keys > left / KEY_BYTES_MIN)
        return errmsg_set(cursor->err, -EINVAL, "a key count of %llu in a file of %zu bytes",
                          (unsigned long long)*ret_keys, cursor->bytes);
    return 0;
}

static int read_alignment(struct gguf *gguf, struct errmsg *err)
{
    uint32_t alignment = ALIGNMENT_DEFAULT;
    int r = gguf_get_u32(gguf, "general.alignment", &alignment);
    if (r == -EINVAL)
        return errmsg_set(err, -EINVAL, "key 'general.alignment' is not a small integer");
    if (alignment < ALIGNMENT_MIN || alignment > ALIGNMENT_MAX ||
        (alignment & (alignment - 1)) != 0)
        return errmsg_set(err, -EINVAL,
                          "general.alignment is %u, powers of two from %u to %u are read",
                          alignment, ALIGNMENT_MIN, ALIGNMENT_MAX);
    gguf->alignment = alignment;
    return 0;
}

static int parse(struct gguf *gguf, struct errmsg *err)
{
    struct cursor cursor = {.data = gguf->data, .bytes = gguf->bytes, .err = err};
    uint64_t tensors = 0, keys = 0;
    int r = take_header(&cursor, &tensors, &keys);
    if (r == 0)
        r = take_keys(&cursor, gguf, keys);
    if (r == 0)
        r = read_alignment(gguf, err);
    if (r < 0)
        return r;
    struct placed *placed = mem_calloc(tensors + 1, sizeof(*placed));
    r = take_tensors(&cursor, gguf, tensors, placed);
    if (r == 0)
        r = place_tensors(&cursor, gguf, placed);
    mem_free(placed);
    return r;
}

static int open_bytes(const void *data, size_t bytes, void *mapping, struct gguf **ret_gguf,
                      struct errmsg *err)
{
    struct gguf *gguf = mem_zalloc(sizeof(*gguf));
    gguf->data = data;
    gguf->bytes = bytes;
    gguf->mapping = mapping;
    gguf->keys_by_name = map_new(GGUF_KEYS_MAX);
    gguf->tensors_by_name = map_new(GGUF_TENSORS_MAX);
    int r = parse(gguf, err);
    if (r < 0) {
        gguf_close(gguf);
        return r;
    }
    *ret_gguf = gguf;
    return 0;
}

int gguf_open_memory(const void *data, size_t bytes, struct gguf **ret_gguf, struct errmsg *err)
{
    return open_bytes(data, bytes, NULL, ret_gguf, err);
}

static int map_file(int fd, const char *path, void **ret_data, size_t *ret_bytes,
                    struct errmsg *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return errmsg_errno(err, "stat '%s'", path);
    if (S_ISDIR(st.st_mode))
        return errmsg_set(err, -EINVAL, "'%s' is a directory; give the path of a GGUF file", path);
    if (!S_ISREG(st.st_mode))
        return errmsg_set(err, -EINVAL, "'%s' is not a regular file", path);
    if (st.st_size == 0)
        return errmsg_set(err, -EINVAL, "'%s' is empty", path);
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return errmsg_errno(err, "map '%s'", path);
    *ret_data = data;
    *ret_bytes = (size_t)st.st_size;
    return 0;
}

int gguf_open(const char *path, struct gguf **ret_gguf, struct errmsg *err)
{
    void *data = NULL;
    size_t bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe: refused at once */
    if (fd < 0)
        return errmsg_errno(err, "open '%s'", path);
    int r = map_file(fd, path, &data, &bytes, err);
    (void)close(fd); /* the mapping stays valid */
    if (r < 0)
        return r;
    r = open_bytes(data, bytes, data, ret_gguf, err);
    return r < 0 ? errmsg_prefix(err, r, "'%s'", path) : 0;
}

void gguf_close(struct gguf *gguf)
{
    if (gguf == NULL)
        return;
    for (size_t i = 0; i < gguf->keys_count; i++)
        mem_free(gguf->keys[i].owned);
    mem_free(gguf->keys);
    mem_free(gguf->tensors);
    map_free(gguf->keys_by_name);
    map_free(gguf->tensors_by_name);
    if (gguf->mapping != NULL)
        (void)munmap(gguf->mapping, gguf->bytes);
    mem_free(gguf);
}

void gguf_drop_pages(const struct gguf *gguf, const void *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (gguf->mapping == NULL || bytes == 0)
        return;
    ASSERT((const uint8_t *)data >= gguf->data &&
           bytes <= gguf->bytes - (size_t)((const uint8_t *)data - gguf->data));
    size_t offset = (size_t)((const uint8_t *)data - gguf->data);
    size_t first = offset / page * page;
    /* Only advice: it may fail. A page shared with a neighbour is read again. */
    (void)madvise((char *)gguf->mapping + first, offset + bytes - first, MADV_DONTNEED);
}
