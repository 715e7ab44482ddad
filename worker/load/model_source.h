/* model_source.h - an opened model: named tensors and numbers, whatever kind of file holds them.
 *
 *   FILE.gguf                       one file, or the first of NAME-00001-of-0000N.gguf
 *   FOLDER with config.json         and model.safetensors, or the shards that
 *                                   model.safetensors.index.json lists
 *
 * Everything is mapped read-only: a rank touches only the pages of its shard. Views stay valid
 * until model_source_close(). Thread: any (read-only). */
#ifndef REFRAIN_WORKER_LOAD_MODEL_SOURCE_H
#define REFRAIN_WORKER_LOAD_MODEL_SOURCE_H

#include <stdbool.h>

#include "proto/base/dtype.h"
#include "proto/base/errmsg.h"
#include "proto/base/json.h"
#include "proto/files/gguf.h"
#include "worker/load/safetensors.h"

#define MODEL_FILES_MAX 1024u
#define MODEL_NAME_MAX 256

struct model_source;

/* What the codes of an F8_E4M3 matrix are multiplied by (fp8.h): a scale for each block, blocks of
 * one row of blocks behind each other. */
struct model_scales {
    enum dtype dtype; /* not quantised */
    const void *data;
    uint64_t block_rows, block_columns, row_scales;
};

/* A stored matrix, or `planes` of them behind each other (experts of a GGUF). */
struct model_tensor {
    enum dtype dtype;               /* not of fp8 */
    bool fp8;                       /* a byte a value, with scales */
    uint64_t planes, rows, columns; /* a vector: 1 row; unused ones are 1 */
    const void *data;
    size_t bytes;
    uint32_t file; /* which file holds it */
    struct model_scales scales;
};

/* 0; -ENOENT...; -EINVAL: *err names file and reason. */
int model_source_open(const char *path, struct model_source **ret_source, struct errmsg *err);
/* Of what is open already, for tests and fuzzing; it is closed with the source. */
struct model_source *model_source_of_gguf(struct gguf *gguf);
struct model_source *model_source_of_safetensors(json_t *config, struct safetensors *file);
void model_source_close(struct model_source *source); /* NULL is fine */

const struct gguf *model_source_gguf(const struct model_source *source); /* keys; NULL: HF */
const json_t *model_source_config(const struct model_source *source);    /* NULL: GGUF */
const char *model_source_folder(const struct model_source *source);      /* NULL: GGUF */

/* 0; -ENOENT: no such tensor; -ENOTSUP: of a type that we do not read, *err names it; -EINVAL: an
 * F8_E4M3 matrix without scales that fit. */
int model_source_tensor(const struct model_source *source, const char *name,
                        struct model_tensor *ret_tensor, struct errmsg *err);
/* What the tensor of a file is called in a model of text alone: names of the text part of a model
 * that sees images too lose their prefix, look-ups take both. *ret_other: it is of another part. */
struct gguf_string model_source_plain_name(const struct model_source *source,
                                           struct gguf_string name, char ret_text[MODEL_NAME_MAX],
                                           bool *ret_other);
bool model_source_has(const struct model_source *source, const char *name);
size_t model_source_count(const struct model_source *source);
#define MODEL_DTYPE_OTHER UINT32_MAX
/* Name of the i-th tensor, not terminated, and its bytes for the fingerprint. */
struct model_entry {
    struct gguf_string name;
    uint64_t dims[4];
    uint32_t dtype; /* enum dtype, or MODEL_DTYPE_OTHER: F8_E4M3, or one that weights never have */
    const void *data;
    size_t bytes;
};
struct model_entry model_source_at(const struct model_source *source, size_t i);
void model_source_drop_pages(const struct model_source *source, const struct model_tensor *tensor);

#endif
