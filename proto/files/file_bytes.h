/* file_bytes.h - a whole small file in memory. */
#ifndef REFRAIN_PROTO_FILES_FILE_BYTES_H
#define REFRAIN_PROTO_FILES_FILE_BYTES_H

#include <stddef.h>

#include "proto/base/errmsg.h"

/* *ret_data by mem_alloc, with a NUL behind it that is not counted. 0; -EFBIG: more than bytes_max;
 * -EISDIR: no regular file; else the errno of the call that *err names. */
int file_bytes_read(const char *path, size_t bytes_max, char **ret_data, size_t *ret_bytes,
                    struct errmsg *err);

#endif
