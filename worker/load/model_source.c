/* model_source.c - GGUF files or a Hugging Face folder behind one look-up.
 *
 *   name --> file 0, file 1, ... each with its own index          first that has it
 *
 * Why look-ups in turn: shards are few (a 70B has 30), tensors are looked up once at load.
 * Invariants: exactly one of `gguf` and `safetensors` has files; names are unique over all files.
 */
#include "worker/load/model_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/files/file_bytes.h"
#include "worker/load/fp8.h"

#define JSON_BYTES_MAX (64u << 20)
#define SPLIT_DIGITS 5

struct model_source {
    struct gguf *gguf[MODEL_FILES_MAX];
    struct safetensors *safetensors[MODEL_FILES_MAX];
    uint32_t files;
    size_t count; /* tensors */
    json_t *config;
    char *folder;
};

/* --- GGUF ------------------------------------------------------------------------------------ */

struct model_source *model_source_of_gguf(struct gguf *gguf)
{
    struct model_source *source = mem_zalloc(sizeof(*source));
    source->gguf[0] = gguf;
    source->files = 1;
    source->count = gguf_tensors_count(gguf);
    return source;
}

/* "x-00001-of-00003.gguf" -> "x-" */
static bool split_stem(const char *path, uint32_t parts, char **ret_stem)
{
    char *tail = mem_printf("-00001-of-%0*u.gguf", SPLIT_DIGITS, parts);
    size_t bytes = strlen(path), end = strlen(tail);
    bool fits = bytes > end && strcmp(path + bytes - end, tail) == 0;
    if (fits)
        *ret_stem = mem_strndup(path, bytes - end + 1);
    mem_free(tail);
    return fits;
}

static int open_parts(struct model_source *source, const char *path, uint32_t parts,
                      struct errmsg *err)
{
    char *stem = NULL;
    int r = 0;
    if (parts > MODEL_FILES_MAX)
        return errmsg_set(err, -EINVAL, "'%s' is one of %u parts, at most %u", path, parts,
                          MODEL_FILES_MAX);
    if (!split_stem(path, parts, &stem))
        return errmsg_set(err, -EINVAL,
                          "'%s' is one of %u parts of a split model: name the first, which ends in "
                          "-00001-of-%0*u.gguf",
                          path, parts, SPLIT_DIGITS, parts);
    for (uint32_t i = 1; i < parts && r == 0; i++) {
        char *part =
            mem_printf("%s%0*u-of-%0*u.gguf", stem, SPLIT_DIGITS, i + 1, SPLIT_DIGITS, parts);
        uint32_t number = UINT32_MAX;
        r = gguf_open(part, &source->gguf[i], err);
        if (r == 0) {
            source->files++;
            source->count += gguf_tensors_count(source->gguf[i]);
            if (gguf_get_u32(source->gguf[i], "split.no", &number) < 0 || number != i)
                r = errmsg_set(err, -EINVAL, "'%s' is not part %u of the split model", part, i + 1);
        }
        mem_free(part);
    }
    mem_free(stem);
    return r;
}

/* A tensor that two parts have would be read from one of them. */
static int refuse_twins(const struct model_source *source, struct errmsg *err)
{
    for (uint32_t f = 1; f < source->files; f++) {
        for (size_t i = 0; i < gguf_tensors_count(source->gguf[f]); i++) {
            struct gguf_string text = gguf_tensor_at(source->gguf[f], i)->name;
            char *name = mem_strndup(text.text, text.bytes);
            bool twin = false;
            for (uint32_t before = 0; before < f && !twin; before++)
                twin = gguf_tensor(source->gguf[before], name) != NULL;
            mem_free(name);
            if (twin)
                return errmsg_set(err, -EINVAL, "part %u repeats a tensor of a part before", f + 1);
        }
    }
    return 0;
}

static int open_gguf(const char *path, struct model_source **ret_source, struct errmsg *err)
{
    struct gguf *gguf = NULL;
    uint32_t parts = 1, expected = 0;
    int r = gguf_open(path, &gguf, err);
    if (r < 0)
        return r;
    struct model_source *source = model_source_of_gguf(gguf);
    if (gguf_get_u32(gguf, "split.count", &parts) == 0 && parts > 1)
        r = open_parts(source, path, parts, err);
    if (r == 0)
        r = refuse_twins(source, err);
    if (r == 0 && parts > 1 && gguf_get_u32(gguf, "split.tensors.count", &expected) == 0 &&
        expected != source->count)
        r = errmsg_set(err, -EINVAL, "the %u parts of '%s' have %zu tensors, %u are stated", parts,
                       path, source->count, expected);
    if (r < 0) {
        model_source_close(source);
        return r;
    }
    *ret_source = source;
    return 0;
}

/* --- Hugging Face folder --------------------------------------------------------------------- */

struct model_source *model_source_of_safetensors(json_t *config, struct safetensors *file)
{
    struct model_source *source = mem_zalloc(sizeof(*source));
    source->config = config;
    source->safetensors[0] = file;
    source->files = 1;
    source->count = safetensors_count(file);
    return source;
}

static int read_json(const char *folder, const char *name, json_t **ret_value, struct errmsg *err)
{
    char *path = mem_printf("%s/%s", folder, name);
    char *text = NULL;
    size_t bytes = 0;
    int r = file_bytes_read(path, JSON_BYTES_MAX, &text, &bytes, err);
    if (r < 0)
        goto out;
    r = json_parse(text, bytes, JSON_BYTES_MAX, ret_value, err);
    if (r < 0)
        r = errmsg_prefix(err, r, "'%s'", path);
    else if (!json_is_object(*ret_value))
        r = errmsg_set(err, -EINVAL, "'%s' is not an object", path);
out:
    mem_free(text);
    mem_free(path);
    return r;
}

static int open_shard(struct model_source *source, const char *name, struct errmsg *err)
{
    if (source->files == MODEL_FILES_MAX)
        return errmsg_set(err, -EINVAL, "more than %u shards", MODEL_FILES_MAX);
    if (name == NULL || strchr(name, '/') != NULL || name[0] == '.' || name[0] == '\0')
        return errmsg_set(err, -EINVAL,
                          "model.safetensors.index.json names a shard that is no plain file name");
    char *path = mem_printf("%s/%s", source->folder, name);
    int r = safetensors_open(path, &source->safetensors[source->files], err);
    mem_free(path);
    if (r == 0) {
        source->count += safetensors_count(source->safetensors[source->files]);
        source->files++;
    }
    return r;
}

/* Open each shard once; every listed tensor is where the list says, and nothing else is there. */
static int open_shards(struct model_source *source, const json_t *index, struct errmsg *err)
{
    json_t *weight_map = json_object_get(index, "weight_map"), *opened = json_object();
    const char *name;
    json_t *value;
    int r = 0;
    if (!json_is_object(weight_map))
        r = errmsg_set(err, -EINVAL, "model.safetensors.index.json has no weight_map");
    json_object_foreach(weight_map, name, value)
    {
        const char *shard = json_string_value(value);
        if (r == 0 && (shard == NULL || json_object_get(opened, shard) == NULL)) {
            r = open_shard(source, shard, err);
            if (r == 0)
                (void)json_object_set_new(opened, shard, json_integer(source->files - 1));
        }
        if (r < 0)
            break;
        json_int_t file = json_integer_value(json_object_get(opened, shard));
        if (safetensors_find(source->safetensors[file], name) == NULL)
            r = errmsg_set(err, -EINVAL, "tensor '%.80s' is not in '%.80s', where the index has it",
                           name, shard);
    }
    if (r == 0 && source->count != json_object_size(weight_map))
        r = errmsg_set(err, -EINVAL, "the shards hold %zu tensors, the index lists %zu",
                       source->count, json_object_size(weight_map));
    json_decref(opened);
    return r;
}

static int open_folder(const char *path, struct model_source **ret_source, struct errmsg *err)
{
    struct model_source *source = mem_zalloc(sizeof(*source));
    json_t *index = NULL;
    char *single = mem_printf("%s/model.safetensors", path);
    struct stat st;
    source->folder = mem_strdup(path);
    int r = read_json(path, "config.json", &source->config, err);
    if (r == 0 && stat(single, &st) == 0) {
        r = open_shard(source, "model.safetensors", err);
    } else if (r == 0) {
        r = read_json(path, "model.safetensors.index.json", &index, err);
        if (r == -ENOENT)
            r = errmsg_set(err, r,
                           "folder '%s' has neither model.safetensors nor "
                           "model.safetensors.index.json",
                           path);
        else if (r == 0)
            r = open_shards(source, index, err);
    }
    json_decref(index);
    mem_free(single);
    if (r < 0) {
        model_source_close(source);
        return r;
    }
    *ret_source = source;
    return 0;
}

/* --- both ------------------------------------------------------------------------------------ */

int model_source_open(const char *path, struct model_source **ret_source, struct errmsg *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return errmsg_errno(err, "model '%s'", path);
    return S_ISDIR(st.st_mode) ? open_folder(path, ret_source, err)
                               : open_gguf(path, ret_source, err);
}

void model_source_close(struct model_source *source)
{
    if (source == NULL)
        return;
    for (uint32_t i = 0; i < source->files; i++) {
        gguf_close(source->gguf[i]);
        safetensors_close(source->safetensors[i]);
    }
    json_decref(source->config);
    mem_free(source->folder);
    mem_free(source);
}

const struct gguf *model_source_gguf(const struct model_source *source)
{
    return source->gguf[0];
}

const json_t *model_source_config(const struct model_source *source)
{
    return source->config;
}

const char *model_source_folder(const struct model_source *source)
{
    return source->folder;
}

static int find_gguf(const struct model_source *source, const char *name,
                     struct model_tensor *ret_tensor)
{
    for (uint32_t i = 0; i < source->files; i++) {
        const struct gguf_tensor *t = gguf_tensor(source->gguf[i], name);
        if (t == NULL)
            continue;
        *ret_tensor = (struct model_tensor){.dtype = t->dtype,
                                            .planes = t->dims[2] * t->dims[3],
                                            .rows = t->dims[1],
                                            .columns = t->dims[0],
                                            .data = t->data,
                                            .bytes = t->bytes,
                                            .file = i};
        return 0;
    }
    return -ENOENT;
}

/* A model that sees images too keeps its text part under a prefix, of which there are two
 * generations. */
static const char *const prefixes[][2] = {{"language_model.model.", "model."},
                                          {"language_model.lm_head.", "lm_head."},
                                          {"model.language_model.", "model."}};
#define PREFIXES (sizeof(prefixes) / sizeof(prefixes[0]))

static bool sees_images(const struct model_source *source)
{
    return json_is_object(json_object_get(source->config, "text_config"));
}

static bool has_prefix(struct gguf_string name, const char *prefix)
{
    size_t bytes = strlen(prefix);
    return name.bytes > bytes && memcmp(name.text, prefix, bytes) == 0;
}

struct gguf_string model_source_plain_name(const struct model_source *source,
                                           struct gguf_string name, char ret_text[MODEL_NAME_MAX],
                                           bool *ret_other)
{
    static const char *const others[] = {"vision_tower.", "multi_modal_projector.",
                                         "model.vision_tower.", "model.multi_modal_projector."};
    *ret_other = false;
    if (!sees_images(source))
        return name;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        *ret_other = *ret_other || has_prefix(name, others[i]);
    for (size_t i = 0; i < PREFIXES; i++) {
        if (!has_prefix(name, prefixes[i][0]))
            continue;
        size_t from = strlen(prefixes[i][0]);
        int bytes = snprintf(ret_text, MODEL_NAME_MAX, "%s%.*s", prefixes[i][1],
                             (int)(name.bytes - from), name.text + from);
        if (bytes < MODEL_NAME_MAX)
            return (struct gguf_string){ret_text, (size_t)bytes};
    }
    return name;
}

static int find_stored(const struct model_source *source, const char *name,
                       struct model_tensor *ret_tensor, struct errmsg *err)
{
    for (uint32_t i = 0; i < source->files; i++) {
        const struct safetensor *t = safetensors_find(source->safetensors[i], name);
        if (t == NULL)
            continue;
        bool fp8 = strcmp(t->type_name, "F8_E4M3") == 0;
        if (t->info == NULL && !fp8)
            return errmsg_set(err, -ENOTSUP,
                              "tensor '%s' is of type %s; F32, F16, BF16 and F8_E4M3 are read",
                              name, t->type_name);
        uint32_t n = t->dims_count;
        struct model_tensor tensor = {.dtype = t->dtype,
                                      .fp8 = fp8,
                                      .planes = 1,
                                      .rows = n > 1 ? t->dims[n - 2] : 1,
                                      .columns = n > 0 ? t->dims[n - 1] : 1,
                                      .data = t->data,
                                      .bytes = t->bytes,
                                      .file = i};
        for (uint32_t d = 0; d + 2 < n; d++)
            tensor.planes *= t->dims[d];
        int r = fp8 ? fp8_find_scales(source, name, &tensor, err) : 0;
        if (r == 0)
            *ret_tensor = tensor;
        return r;
    }
    return -ENOENT;
}

static int find_safetensor(const struct model_source *source, const char *name,
                           struct model_tensor *ret_tensor, struct errmsg *err)
{
    char stored[MODEL_NAME_MAX];
    int r = find_stored(source, name, ret_tensor, err);
    for (size_t i = 0; i < PREFIXES && r == -ENOENT && sees_images(source); i++) {
        size_t plain = strlen(prefixes[i][1]);
        if (strncmp(name, prefixes[i][1], plain) != 0)
            continue;
        (void)snprintf(stored, sizeof(stored), "%s%s", prefixes[i][0], name + plain);
        r = find_stored(source, stored, ret_tensor, err);
    }
    return r;
}

int model_source_tensor(const struct model_source *source, const char *name,
                        struct model_tensor *ret_tensor, struct errmsg *err)
{
    return source->gguf[0] != NULL ? find_gguf(source, name, ret_tensor)
                                   : find_safetensor(source, name, ret_tensor, err);
}

bool model_source_has(const struct model_source *source, const char *name)
{
    struct model_tensor tensor;
    return model_source_tensor(source, name, &tensor, NULL) != -ENOENT;
}

size_t model_source_count(const struct model_source *source)
{
    return source->count;
}

struct model_entry model_source_at(const struct model_source *source, size_t i)
{
    struct model_entry entry = {.dims = {1, 1, 1, 1}};
    uint32_t f = 0;
    ASSERT(i < source->count);
    if (source->gguf[0] != NULL) {
        while (i >= gguf_tensors_count(source->gguf[f]))
            i -= gguf_tensors_count(source->gguf[f++]);
        const struct gguf_tensor *t = gguf_tensor_at(source->gguf[f], i);
        entry = (struct model_entry){
            .name = t->name, .dtype = (uint32_t)t->dtype, .data = t->data, .bytes = t->bytes};
        memcpy(entry.dims, t->dims, sizeof(entry.dims));
        return entry;
    }
    while (i >= safetensors_count(source->safetensors[f]))
        i -= safetensors_count(source->safetensors[f++]);
    const struct safetensor *t = safetensors_at(source->safetensors[f], i);
    entry.name = (struct gguf_string){t->name, strlen(t->name)};
    entry.dtype = t->info != NULL ? (uint32_t)t->dtype : MODEL_DTYPE_OTHER;
    entry.data = t->data;
    entry.bytes = t->bytes;
    for (uint32_t d = 0; d < t->dims_count; d++)
        entry.dims[d] = t->dims[d];
    return entry;
}

void model_source_drop_pages(const struct model_source *source, const struct model_tensor *tensor)
{
    if (source->gguf[0] != NULL)
        gguf_drop_pages(source->gguf[tensor->file], tensor->data, tensor->bytes);
    else
        safetensors_drop_pages(source->safetensors[tensor->file], tensor->data, tensor->bytes);
}
