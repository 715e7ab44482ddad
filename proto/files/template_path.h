/* template_path.h - a chat template from a path: a Jinja file, a model directory, a GGUF, or a JSON
 * file with "chat_template" (tokenizer_config.json, chat_template.json). Thread: any. */
#ifndef REFRAIN_PROTO_FILES_TEMPLATE_PATH_H
#define REFRAIN_PROTO_FILES_TEMPLATE_PATH_H

#include <stddef.h>

#include "proto/base/errmsg.h"

/* All by mem_alloc. */
struct template_file {
    char *source;
    size_t bytes;
    char *bos_token, *eos_token; /* what stands with it, or NULL */
};

/* 0; -ENOENT: no such path, or no template there; -EINVAL, -EFBIG and so on: *err names the file.
 */
int template_from_path(const char *path, struct template_file *ret_template, struct errmsg *err);
void template_file_done(struct template_file *template);

#endif
