/* sequence.h - one request inside a worker: its tokens, its blocks, its state.
 *
 *   WAITING --admit--> PREFILL --last chunk--> DECODE --stop, length--> FINISHED
 *      ^                  |                       |     (cancel: FINISHED from anywhere)
 *      +---- preempt -----+-----------------------+
 *
 * Owned by the scheduler. Thread: engine only. */
#ifndef REFRAIN_WORKER_SCHED_SEQUENCE_H
#define REFRAIN_WORKER_SCHED_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/list.h"
#include "proto/block_hash.h"
#include "proto/grammar/machine.h"
#include "proto/sampling_limits.h"
#include "worker/kv/block_table.h"
#include "worker/lora/adapter_use.h"
#include "worker/sample/sampler.h"
#include "worker/sched/repetition.h"

struct thinking;

#define SEQUENCE_STOP_IDS_MAX 80 /* a client's 64 and MODEL_CARD_EOS_MAX of the model */
#define REQUEST_ID_MAX 64

enum sequence_state { SEQ_WAITING = 0, SEQ_PREFILL, SEQ_DECODE, SEQ_FINISHED, SEQ_STATES };

/* The order of wire.proto's Finish. */
enum sequence_finish {
    SEQ_FINISH_NONE = 0,
    SEQ_FINISH_STOP,
    SEQ_FINISH_LENGTH,
    SEQ_FINISH_CANCELLED,
    SEQ_FINISH_DEADLINE,
    SEQ_FINISH_ERROR,
    SEQ_FINISH_REPETITION,
};

struct sequence_params {
    char request_id[REQUEST_ID_MAX + 1];
    const uint32_t *prompt; /* copied */
    uint32_t prompt_tokens;
    struct sample_params sampling;
    /* NULL: none; these move into the sequence */
    struct sample_rules *rules;
    struct thinking *thinking;
    struct repetition *repetition;
    uint32_t logprob_ids[LOGPROB_IDS_MAX]; /* sampling.logprob_ids */
    uint32_t tokens_max, tokens_min;
    uint32_t stop_ids[SEQUENCE_STOP_IDS_MAX];
    uint32_t stop_ids_count;
    /* What the answer may be; NULL: any text. The sequence takes a reference. */
    struct grammar *grammar;
    struct grammar_machine *grammars;     /* that runs it */
    uint32_t end_ids[MODEL_CARD_EOS_MAX]; /* the model's own, in force when it is complete */
    uint32_t end_ids_count;
    int32_t priority;
    uint64_t arrival_ns, deadline_ns; /* 0: none */
    struct adapter_use *adapter;      /* NULL: the base model; the user is counted, it moves */
    struct block_hash root;           /* block_hash_root(fingerprint, adapter, salt) */
    bool no_prefix_reuse;
    uint32_t prompt_logprobs; /* 0: none; n + 1: each prompt token and n best; reuses nothing */
    void *owner;              /* the io side's handle, never followed here */
};

struct sequence {
    struct list link; /* in one of the scheduler's lists */
    struct sequence_params params;
    enum sequence_state state;
    enum sequence_finish finish;
    uint32_t *ids; /* prompt, then output */
    uint32_t ids_count, ids_max;
    uint32_t prompt_tokens;
    uint32_t computed; /* leading ids whose KV is in the table */
    uint32_t sealed;   /* leading blocks that were sealed */
    struct block_table table;
    struct block_hash *hashes; /* of full prompt blocks at least; grown with sealing */
    uint32_t hashes_count;
    uint32_t scored;        /* leading prompt tokens whose log probabilities were told; the first
                               has none */
    uint32_t cached_tokens; /* reused at the first admission; of these from slower tiers: */
    uint32_t cached_host_tokens, cached_disk_tokens;
    uint32_t preemptions;
    uint32_t bypassed; /* later requests that were admitted before this one */
    uint64_t scheduled_ns, first_token_ns;
    uint64_t load_since_ns; /* when it first waited for a slow tier; 0: it has not */
    uint64_t load_wait_ns;  /* before it was scheduled: for blocks of a slow tier */
    uint64_t load_copy_ns;  /* after that: for their copies; the engine measures it */
    bool loads_in_step;     /* of the step being computed */
    const char *miss;       /* one word, static text; "" = nothing was missed */
    uint64_t number;        /* order of arrival */
    bool deferred;          /* while it waits: for a prefix on its way, not for room */
    uint32_t held_plans;    /* steps it waited for a prefix that another one was computing */
    struct grammar_matcher *matcher; /* at ids_count; NULL: any text */
    bool answer_over;                /* the token being appended ends it, by the grammar */
    bool in_step;                    /* has rows between plan and commit */
    bool reported;                   /* commit told its finish: ready for scheduler_release */
};

static inline uint32_t sequence_output_tokens(const struct sequence *seq)
{
    return seq->ids_count - seq->prompt_tokens;
}
const char *sequence_state_name(enum sequence_state state);

/* For the scheduler only. params are taken as checked. */
struct sequence *sequence_new(const struct sequence_params *params, uint32_t ids_max);
void sequence_free(struct sequence *seq); /* its table must be dropped */
/* The only writer of seq->state; asserts the arrow. `why` is one static word. */
void sequence_set_state(struct sequence *seq, enum sequence_state next, const char *why);
/* A sampled token becomes the newest id; FINISH_NONE, or why it is the last one. */
enum sequence_finish sequence_append(struct sequence *seq, uint32_t id);
/* Publish every full block whose KV is computed. scratch: table.blocks_max ids. */
void sequence_seal(struct sequence *seq, struct block_pool *pool, uint32_t *scratch);
/* Publish what is computed, the last block's head included, and give all blocks back. */
void sequence_let_go(struct sequence *seq, struct block_pool *pool, uint32_t *scratch);
void sequence_check(const struct sequence *seq, const struct block_pool *pool);

#endif
