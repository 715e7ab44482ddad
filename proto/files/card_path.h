/* card_path.h - a model card from a path, whatever kind of file lies there.
 *
 * GGUF; tokenizer.json, with what stands beside it; tokenizer.model; or a directory with one of
 * them. For people and programs that need a model's words without its weights. Thread: any. */
#ifndef REFRAIN_PROTO_FILES_CARD_PATH_H
#define REFRAIN_PROTO_FILES_CARD_PATH_H

#include "proto/base/errmsg.h"
#include "proto/model_card.h"

/* name: the served model name. The fingerprint covers words only. *ret_card has one reference and
 * has passed model_card_check. 0; -ENOENT...: *err names the path; -EINVAL: a malformed file;
 * -ENOTSUP: a kind of file, tokenizer or step that we do not have, *err lists what is supported. */
int card_from_path(const char *path, const char *name, struct model_card **ret_card,
                   struct errmsg *err);

#endif
