/* check.h - `refrain-worker --check MODEL`: load, say what was loaded, answer ids with logits.
 *
 * The logits come through the path that serves: step descriptors over a paged KV pool, prompts in
 * chunks, ranks over shared memory. Rank 0 is the caller; the other ranks are forked here, before
 * any thread of ours is started: call it from a process that has only its main thread.
 *
 *   in   one JSON object a line: {"ids": [1, 2, 3], "positions": [0, 2]}   positions may be absent
 *   out  one JSON object a line: {"argmax": [9, 9, 4], "logits": [[...], [...]]}
 *        argmax: one per id; logits: one full row per entry of positions
 *
 * Thread: main only. */
#ifndef REFRAIN_WORKER_CHECK_H
#define REFRAIN_WORKER_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/ops.h"
#include "proto/base/errmsg.h"
#include "worker/load/model_config.h"
#include "worker/settings.h"

#define CHECK_CHUNK_DEFAULT 512u

struct check_settings {
    const char *model;      /* path of a GGUF file or a Hugging Face folder */
    const char *backend;    /* NULL: "cpu"; with `reference` "ref" */
    const char *isa;        /* NULL: by CPUID */
    bool reference;         /* --reference: the float32 definition of every op */
    unsigned threads;       /* per rank; 0: 1 */
    uint32_t chunk;         /* --chunk, rows per step; 0: CHECK_CHUNK_DEFAULT */
    uint32_t ranks;         /* --tensor-parallel-size; 0: 1 */
    uint32_t deadline_ms;   /* of every wait between ranks; 0: 30000 */
    uint32_t tokens_max;    /* longest sequence; 0: the model's context, at most 32768 */
    enum kv_dtype kv_dtype; /* --kv-cache-dtype */
    const struct worker_settings *start; /* whose plan the report has; NULL: none. Borrowed */
    uint64_t memory_bytes;               /* this machine's; 0: not known */
};

/* Load, print architecture and sizes to `out` as `key: value` lines and try one token; or, when
 * `in` is not NULL (--ids), answer its lines instead. 0; -EINVAL: *err names file, key or input
 * line; -ENOTSUP, -ENOMEM; -EDOM: a logit of the tried token is no number; -ECANCELED, -ETIMEDOUT:
 * a rank failed. Settings with which a worker would not start (start_plan.h) are told last, after
 * the whole report. */
int check_run(const struct check_settings *settings, FILE *in, FILE *out, struct errmsg *err);

/* The same in parts, for tests. */
struct check;
int check_open(const struct check_settings *settings, struct check **ret_check, struct errmsg *err);
void check_close(struct check *check); /* NULL is fine; stops and reaps the other ranks */
const struct model_config *check_config(const struct check *check);

/* Called once per position, rising; `logits` [vocab_size] is valid during the call. */
typedef void (*check_row_fn)(void *user, uint32_t position, const float *logits);
/* One sequence from an empty KV cache. -EINVAL: an id or the length is out of range. */
int check_sequence(struct check *check, const uint32_t *ids, uint32_t count, check_row_fn on_row,
                   void *user, struct errmsg *err);

#endif
