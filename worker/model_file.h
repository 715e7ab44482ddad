/* model_file.h - --model PATH: which file, and what the API calls it. Thread: at start. */
#ifndef REFRAIN_WORKER_MODEL_FILE_H
#define REFRAIN_WORKER_MODEL_FILE_H

#include "proto/base/errmsg.h"

/* path: a GGUF file; a folder with exactly one, or with the parts of one; a folder of Hugging
 * Face's kind (config.json and *.safetensors), which is itself the answer. *ret_file by mem_alloc.
 * -ENOENT, -EINVAL. */
int model_file_find(const char *path, char **ret_file, struct errmsg *err);
/* The file's or folder's name without ".gguf" and, of a split model, "-00001-of-00004"; by
 * mem_alloc. */
char *model_file_name(const char *path);

#endif
