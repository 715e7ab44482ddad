/* safetensors.c - the header of a *.safetensors file, checked once, then only views.
 *
 * Why everything at open: a hostile file is refused in one place, and afterwards the struct is
 * read-only. Why no holes: the reference reader refuses them too; bytes that no tensor owns would
 * be a second file inside the file.
 * Cost: one JSON parse; 50,000 tensors are about 10 MB of header. Tensor data is not touched.
 * Invariant: tensors lie inside the file, back to back, in some order. */
#include "worker/load/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"

#define LENGTH_BYTES 8u

struct safetensors {
    const uint8_t *data;
    size_t bytes;
    void *mapping;  /* NULL: memory of the caller */
    json_t *header; /* owns the names */
    struct safetensor *tensors;
    size_t count;
    struct map *by_name;
};

struct stored_type {
    const char *name;
    unsigned bytes;
    int dtype; /* -1: no weight has it */
};

static const struct stored_type types[] = {
    {"F32", 4, DTYPE_F32}, {"F16", 2, DTYPE_F16}, {"BF16", 2, DTYPE_BF16}, {"F64", 8, -1},
    {"I64", 8, -1},        {"U64", 8, -1},        {"I32", 4, -1},          {"U32", 4, -1},
    {"I16", 2, -1},        {"U16", 2, -1},        {"I8", 1, -1},           {"U8", 1, -1},
    {"BOOL", 1, -1},       {"F8_E4M3", 1, -1},    {"F8_E5M2", 1, -1},
};

/* A name from a file, safe to show: ASCII, cut. */
struct shown {
    char text[96];
};

static struct shown shown(const char *name)
{
    struct shown s;
    size_t n = 0;
    for (; name[n] != '\0' && n < sizeof(s.text) - 1; n++)
        s.text[n] = (char)(name[n] >= 0x20 && name[n] < 0x7f && name[n] != '\'' ? name[n] : '?');
    s.text[n] = '\0';
    return s;
}

static const struct stored_type *find_type(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    }
    return NULL;
}

/* Item i of an array as an integer from 0 on; false: it is none. */
static bool item_u64(const json_t *array, size_t i, uint64_t *ret_value)
{
    const json_t *item = json_array_get(array, i);
    if (!json_is_integer(item) || json_integer_value(item) < 0)
        return false;
    *ret_value = (uint64_t)json_integer_value(item);
    return true;
}

static int read_shape(struct safetensor *tensor, const json_t *shape, unsigned value_bytes,
                      struct errmsg *err)
{
    size_t dims = json_array_size(shape);
    uint64_t bytes = value_bytes;
    if (!json_is_array(shape) || dims > SAFETENSORS_DIMS_MAX)
        return errmsg_set(err, -EINVAL, "tensor '%s' has no shape of at most %u dimensions",
                          shown(tensor->name).text, SAFETENSORS_DIMS_MAX);
    tensor->dims_count = (uint32_t)dims;
    for (size_t i = 0; i < dims; i++) {
        if (!item_u64(shape, i, &tensor->dims[i]))
            return errmsg_set(err, -EINVAL, "tensor '%s': dimension %zu is not a size",
                              shown(tensor->name).text, i);
        if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes))
            return errmsg_set(err, -EINVAL, "tensor '%s': its dimensions overflow",
                              shown(tensor->name).text);
    }
    tensor->bytes = bytes;
    return 0;
}

static int read_tensor(const struct safetensors *file, size_t begin, struct safetensor *tensor,
                       const json_t *entry, struct errmsg *err)
{
    const struct stored_type *type = find_type(json_string_value(json_object_get(entry, "dtype")));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t first = 0, end = 0, room = file->bytes - begin;
    if (type == NULL)
        return errmsg_set(err, -EINVAL, "tensor '%s' has no known dtype", shown(tensor->name).text);
    tensor->type_name = type->name;
    tensor->info = type->dtype >= 0 ? dtype_info((uint32_t)type->dtype) : NULL;
    tensor->dtype = type->dtype >= 0 ? (enum dtype)type->dtype : DTYPE_F32;
    int r = read_shape(tensor, json_object_get(entry, "shape"), type->bytes, err);
    if (r < 0)
        return r;
    if (json_array_size(offsets) != 2 || !item_u64(offsets, 0, &first) ||
        !item_u64(offsets, 1, &end))
        return errmsg_set(err, -EINVAL, "tensor '%s': data_offsets are not two sizes",
                          shown(tensor->name).text);
    if (end < first || end > room)
        return errmsg_set(err, -EINVAL,
                          "tensor '%s' lies at bytes %llu to %llu of the data, which has %llu: the "
                          "file is truncated",
                          shown(tensor->name).text, (unsigned long long)first,
                          (unsigned long long)end, (unsigned long long)room);
    if (end - first != tensor->bytes)
        return errmsg_set(err, -EINVAL, "tensor '%s' has %llu bytes, its shape wants %zu",
                          shown(tensor->name).text, (unsigned long long)(end - first),
                          tensor->bytes);
    tensor->data = file->data + begin + first;
    return 0;
}

static int by_address(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

/* Back to back from the first byte of data to the last. */
static int check_places(struct safetensors *file, size_t begin, struct errmsg *err)
{
    const uint8_t *at = file->data + begin;
    qsort(file->tensors, file->count, sizeof(*file->tensors), by_address);
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensor *tensor = &file->tensors[i];
        if ((const uint8_t *)tensor->data != at)
            return errmsg_set(err, -EINVAL, "tensor '%s' %s the one before",
                              shown(tensor->name).text,
                              (const uint8_t *)tensor->data < at ? "overlaps" : "leaves a hole to");
        at += tensor->bytes;
    }
    if (at != file->data + file->bytes)
        return errmsg_set(err, -EINVAL, "%zu bytes at the end belong to no tensor",
                          (size_t)(file->data + file->bytes - at));
    return 0;
}

static int read_tensors(struct safetensors *file, size_t begin, struct errmsg *err)
{
    const char *name;
    json_t *entry;
    size_t most = json_object_size(file->header);
    if (most > SAFETENSORS_TENSORS_MAX)
        return errmsg_set(err, -EINVAL, "%zu tensors, at most %u", most, SAFETENSORS_TENSORS_MAX);
    file->tensors = mem_calloc(most + 1, sizeof(*file->tensors));
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct safetensor *tensor = &file->tensors[file->count];
        tensor->name = name;
        int r = read_tensor(file, begin, tensor, entry, err);
        if (r < 0)
            return r;
        file->count++;
    }
    int r = check_places(file, begin, err);
    if (r < 0)
        return r;
    file->by_name = map_new(most + 1);
    for (size_t i = 0; i < file->count; i++) {
        r = map_set_text(file->by_name, file->tensors[i].name, &file->tensors[i]);
        ASSERT(r == 0);
    }
    return 0;
}

static int parse(struct safetensors *file, struct errmsg *err)
{
    uint64_t length = 0;
    if (file->bytes < LENGTH_BYTES)
        return errmsg_set(err, -EINVAL, "%zu bytes are no safetensors file", file->bytes);
    memcpy(&length, file->data, LENGTH_BYTES);
    if (length > SAFETENSORS_HEADER_MAX || length > file->bytes - LENGTH_BYTES)
        return errmsg_set(err, -EINVAL,
                          "a header of %llu bytes in a file of %zu: at most %u, or the file is "
                          "truncated",
                          (unsigned long long)length, file->bytes, SAFETENSORS_HEADER_MAX);
    int r = json_parse((const char *)file->data + LENGTH_BYTES, length, SAFETENSORS_HEADER_MAX,
                       &file->header, err);
    if (r < 0)
        return errmsg_prefix(err, -EINVAL, "header");
    if (!json_is_object(file->header))
        return errmsg_set(err, -EINVAL, "the header is not an object");
    return read_tensors(file, LENGTH_BYTES + length, err);
}

static int open_bytes(const void *data, size_t bytes, void *mapping, struct safetensors **ret_file,
                      struct errmsg *err)
{
    struct safetensors *file = mem_zalloc(sizeof(*file));
    file->data = data;
    file->bytes = bytes;
    file->mapping = mapping;
    int r = parse(file, err);
    if (r < 0) {
        safetensors_close(file);
        return r;
    }
    *ret_file = file;
    return 0;
}

int safetensors_open_memory(const void *data, size_t bytes, struct safetensors **ret_file,
                            struct errmsg *err)
{
    return open_bytes(data, bytes, NULL, ret_file, err);
}

int safetensors_open(const char *path, struct safetensors **ret_file, struct errmsg *err)
{
    struct stat st;
    void *data = MAP_FAILED;
    int r = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe: refused at once */
    if (fd < 0)
        return errmsg_errno(err, "open '%s'", path);
    if (fstat(fd, &st) < 0)
        r = errmsg_errno(err, "stat '%s'", path);
    else if (!S_ISREG(st.st_mode) || st.st_size == 0)
        r = errmsg_set(err, -EINVAL, "'%s' is not a regular file, or empty", path);
    if (r == 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            r = errmsg_errno(err, "map '%s'", path);
    }
    (void)close(fd); /* the mapping stays valid */
    if (r < 0)
        return r;
    r = open_bytes(data, (size_t)st.st_size, data, ret_file, err);
    return r < 0 ? errmsg_prefix(err, r, "'%s'", path) : 0;
}

void safetensors_close(struct safetensors *file)
{
    if (file == NULL)
        return;
    map_free(file->by_name);
    mem_free(file->tensors);
    json_decref(file->header);
    if (file->mapping != NULL)
        (void)munmap(file->mapping, file->bytes);
    mem_free(file);
}

size_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensor *safetensors_at(const struct safetensors *file, size_t i)
{
    ASSERT(i < file->count);
    return &file->tensors[i];
}

const struct safetensor *safetensors_find(const struct safetensors *file, const char *name)
{
    return map_get_text(file->by_name, name);
}

void safetensors_drop_pages(const struct safetensors *file, const void *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (file->mapping == NULL || bytes == 0)
        return;
    size_t offset = (size_t)((const uint8_t *)data - file->data);
    ASSERT(offset <= file->bytes && bytes <= file->bytes - offset);
    size_t first = offset / page * page;
    /* Only advice: it may fail. A page shared with a neighbour is read again. */
    (void)madvise((char *)file->mapping + first, offset + bytes - first, MADV_DONTNEED);
}
