/* safetensors.h - one *.safetensors file, mapped read-only, every length and offset checked.
 *
 *   u64 header length | header: JSON {name: {dtype, shape, data_offsets}} | tensors, back to back
 *
 * Hostile files get a named error, never a crash: truncated, absurd lengths, offsets outside the
 * file, overlaps and holes, sizes that do not fit their shape. Views stay valid until
 * safetensors_close(); data may be unaligned. Thread: any (read-only). */
#ifndef REFRAIN_WORKER_LOAD_SAFETENSORS_H
#define REFRAIN_WORKER_LOAD_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/dtype.h"
#include "proto/base/errmsg.h"

#define SAFETENSORS_HEADER_MAX (100u << 20) /* as the reference reader */
#define SAFETENSORS_TENSORS_MAX 200000u
#define SAFETENSORS_DIMS_MAX 4u

struct safetensors;

struct safetensor {
    const char *name;
    const char *type_name;         /* "BF16", as the file says */
    const struct dtype_info *info; /* NULL: a type that weights never have here (I64, BOOL...) */
    enum dtype dtype;              /* where info is not NULL */
    uint32_t dims_count;
    uint64_t dims[SAFETENSORS_DIMS_MAX]; /* the last one is contiguous */
    const void *data;
    size_t bytes;
};

/* 0; the errno of open; -EINVAL: *err names file, tensor and numbers. */
int safetensors_open(const char *path, struct safetensors **ret_file, struct errmsg *err);
/* The same over memory that outlives it (tests, fuzzing). */
int safetensors_open_memory(const void *data, size_t bytes, struct safetensors **ret_file,
                            struct errmsg *err);
void safetensors_close(struct safetensors *file); /* NULL is fine */

size_t safetensors_count(const struct safetensors *file);
const struct safetensor *safetensors_at(const struct safetensors *file, size_t i);
const struct safetensor *safetensors_find(const struct safetensors *file, const char *name);
/* These bytes were used and will not be again soon: they leave our resident memory. */
void safetensors_drop_pages(const struct safetensors *file, const void *data, size_t bytes);

#endif
