/* messages.h - what io thread and engine thread tell each other.
 *
 *   io --(struct queue of struct command)--> engine --(outbox of struct output)--> io
 *
 * A command is allocated by its sender and freed by the engine. An output is one of a fixed number
 * of buffers (outbox.h), so a step allocates nothing; outputs leave in the order in which the
 * engine made them, which is what the routers' indexes rely on. */
#ifndef REFRAIN_WORKER_ENGINE_MESSAGES_H
#define REFRAIN_WORKER_ENGINE_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/block_hash.h"
#include "worker/sample/sampler.h"
#include "worker/sched/sequence.h"

enum command_kind {
    COMMAND_SUBMIT = 1,
    COMMAND_CANCEL,        /* router, request_id */
    COMMAND_CANCEL_ROUTER, /* everything of this router: it is gone */
    COMMAND_CANCEL_ANY,    /* request_id of whatever router; answers `client` */
    COMMAND_DRAIN,         /* undo; answers `client` unless 0 */
    COMMAND_RESET_CACHE,   /* answers `client` unless 0 */
    COMMAND_SNAPSHOT,      /* of the block index, for `router` */
    COMMAND_INSPECT,       /* `what`, answers `client` */
    COMMAND_PIN,           /* request_id: a request's or a block's hash; seconds, 0: undo */
    COMMAND_STOP
};

enum inspect_what {
    INSPECT_SEQUENCES = 1,
    INSPECT_BLOCKS,
    INSPECT_BLOCK_DUMP,
    INSPECT_TIERS,
    INSPECT_PINS,
    INSPECT_CHECK
};

struct command {
    enum command_kind kind;
    uint32_t router; /* serial of the router's attachment, never used again for another */
    uint32_t client; /* serial of an admin client, 0: nobody waits */
    char request_id[REQUEST_ID_MAX + 1];
    bool undo;
    uint32_t seconds; /* PIN: of the lease */
    enum inspect_what what;
    struct sequence_params params; /* SUBMIT: params.prompt is `prompt` */
    uint32_t prompt[];
};

/* ids: NULL leaves room for prompt_tokens. Everything else is zero. */
struct command *command_new(enum command_kind kind, uint32_t prompt_tokens);
void command_free(struct command *command);

enum output_kind {
    OUTPUT_STEP = 1, /* items */
    OUTPUT_KV,       /* changes of the block index */
    OUTPUT_SNAPSHOT, /* the whole index */
    OUTPUT_ANSWER,   /* to an admin client */
    OUTPUT_END       /* the engine has ended: nothing comes after */
};

#define OUTPUT_ERROR_TEXT_MAX 200

struct output_item {
    uint32_t router;
    char request_id[REQUEST_ID_MAX + 1];
    bool has_token, first;
    bool refused;     /* answered with an Error message: the id belongs to a running request */
    int32_t logprobs; /* index into output.logprobs, -1: none */
    /* Of prompt tokens from `scores_from` on: so many of output.logprobs, from `scores` on. */
    uint32_t scores, scores_count, scores_from;
    uint32_t id;
    enum sequence_finish finish;
    uint32_t cached_tokens, computed_tokens; /* with `first` */
    uint32_t cached_host_tokens, cached_disk_tokens;
    double queue_seconds, load_seconds, prefill_seconds;
    const char *miss; /* static */
    int error_code;   /* FINISH_ERROR: an HTTP status */
    char error_text[OUTPUT_ERROR_TEXT_MAX];
};

struct output_stored {
    struct block_hash parent, hash;
    bool first;       /* of a sequence: parent is the root of its salt, no block */
    uint32_t adapter; /* adapter_serial() of the sequence */
    uint32_t ids[BLOCK_TOKENS];
};

struct output {
    enum output_kind kind;
    /* STEP */
    uint64_t step;
    struct output_item *items; /* [items_max] */
    uint32_t items_count, items_max;
    struct sample_result *logprobs; /* [logprobs_max] */
    uint32_t logprobs_count, logprobs_max;
    /* KV: first `cleared`, then stored, then removed. kv_* is the index after it, SNAPSHOT's too.
     */
    struct output_stored *stored; /* [OUTPUT_STORED_MAX] */
    uint32_t stored_count;
    struct block_hash *removed; /* [OUTPUT_REMOVED_MAX] */
    uint32_t removed_count;
    uint64_t kv_sequence, kv_blocks, kv_digest;
    bool all_cleared; /* after stored and removed: by a reset, and nothing is left */
    /* SNAPSHOT: `hashes` by mem_alloc, freed by outbox_recycle */
    uint32_t router;
    struct block_hash *hashes;
    uint32_t hashes_count;
    /* ANSWER: `text` by mem_alloc, one line of JSON, freed by outbox_recycle */
    uint32_t client;
    char *text;
};

#define OUTPUT_STORED_MAX 2048u
#define OUTPUT_REMOVED_MAX 2048u

#endif
