/* submit.h - a Submit message -> a command for the engine, every field checked. Thread: io. */
#ifndef REFRAIN_WORKER_SUBMIT_H
#define REFRAIN_WORKER_SUBMIT_H

#include "proto/base/errmsg.h"
#include "proto/model_card.h"
#include "proto/wire.pb-c.h"
#include "worker/engine/messages.h"
#include "worker/grammars.h"
#include "worker/lora/adapters.h"

struct submit_limits {
    const struct model_card *card; /* fingerprint, vocab_size, eos ids */
    uint32_t context_tokens_max;
    struct grammars *grammars;
    const struct adapters *adapters; /* NULL: none are served */
};

/* Printable ASCII without quotes, 1..REQUEST_ID_MAX bytes: it goes into logs and JSON. */
bool submit_id_is_good(const char *request_id);
/* The caller sets command->router. -EINVAL, -E2BIG: a sentence for the client, with numbers;
 * -ENOENT: no such adapter; -ENOSPC, -ENOMEM: memory for grammars. The id must be good. */
int submit_to_command(const Refrain__Submit *submit, const struct submit_limits *limits,
                      uint64_t now_ns, struct command **ret_command, struct errmsg *err);

#endif
