/* choice.h - one answer of a request: token ids of a worker -> text that may be sent.
 *
 *   ids --detokenize--> whole characters --stop matcher--> `text`: certain, not sent yet
 *                                              |
 *                                              +--> `reader` --> reasoning, calls, and `text`
 *
 * A request has n choices per prompt, each with a dispatch of its own; a choice whose worker was
 * lost starts anew with choice_restart(). Ownership: embedded in the request. Thread: the loop's.
 */
#ifndef REFRAIN_ROUTER_CHOICE_H
#define REFRAIN_ROUTER_CHOICE_H

#include "router/answer_formats.h"
#include "router/api/chunk_json.h"
#include "router/api/logprobs_json.h"
#include "router/text/detokenize.h"
#include "router/text/stop.h"
#include "router/worker_links.h"

#define CHOICE_ID_MAX 65 /* the wire's 64 bytes and a NUL */
#define CHOICE_MISS_MAX 32
#define CHOICE_IDS_MAX ((size_t)1 << 24) /* the most that a client may ask for */

struct request;

/* What all choices of a request share. Must outlive them. */
struct choice_plan {
    const struct tokenizer *tokenizer;
    const struct api_request *fields;
    bool strip_first_space;
    size_t text_bytes_max;
    struct answer_plan answer;
};

struct choice {
    struct request *request;
    const struct choice_plan *plan;
    uint32_t index, prompt; /* its place in the answer; of which prompt */
    uint32_t attempts;      /* dispatches so far */
    char id[CHOICE_ID_MAX]; /* of the current dispatch */
    struct dispatch dispatch;
    Refrain__Sampling sampling;
    const char *echo; /* written before everything, NULL: nothing */
    size_t echo_bytes;
    const uint32_t *prompt_ids;
    size_t prompt_count;

    struct detokenizer detokenizer;
    struct stop_matcher *stop; /* NULL: no stop strings */
    struct buffer raw, text;
    struct buffer certain;       /* with `reader`: what it has not read yet */
    struct answer_reader reader; /* if plan->answer.reads */
    struct logprobs_json logprobs;
    struct token_ids generated;    /* all of them but an id that ended the answer unseen */
    size_t text_bytes;             /* of the answer so far, before `reader`, without `echo` */
    struct buffer prompt_logprobs; /* JSON entries, the first one null; when asked for */
    struct buffer ids;             /* generated since the last chunk, "5,6,7"; when asked for */
    size_t scored;                 /* prompt tokens whose log probabilities came */
    uint32_t tokens;               /* generated so far */
    uint32_t reasoning_tokens;     /* of these, between the tags */
    double logprob_sum;            /* over tokens, of those that the worker told */
    size_t held_bytes;             /* when the request last counted its choices' memory */

    bool sent;      /* something of it went to the client */
    bool role_sent; /* the first delta */
    bool done;
    const char *finish_reason; /* with done: "stop", "length", "tool_calls" */
    enum chunk_stop stop_kind;
    size_t stop_which;
    uint32_t stop_id;

    /* With the first token. */
    bool first_seen;
    uint32_t cached_tokens, computed_tokens, group;
    uint32_t cached_host_tokens, cached_disk_tokens; /* of cached_tokens */
    double queue_seconds, load_seconds, prefill_seconds;
    const char *why;
    char miss[CHOICE_MISS_MAX];
};

void choice_init(struct choice *choice, struct request *request, const struct choice_plan *plan);
void choice_done(struct choice *choice);
/* Forget what came: the same request goes to another worker. Nothing of it was sent. */
void choice_restart(struct choice *choice);
/* Tokens of one step, or log probabilities of the prompt's. True: the answer is over (a stop
 * string, or the worker's finish). -EPROTO: the worker sent what makes no sense; -ENOBUFS: text,
 * ids or log probabilities are more than a choice may hold. The choice is half-way then, and must
 * end. */
int choice_take(struct choice *choice, const Refrain__StepItem *item, bool *ret_over);
/* How many of `generated` stand for the text that was given out, when `text_unsent` bytes of it
 * were not sent. 0: none, or the text ends inside a token (a stop string cut it). */
size_t choice_kept_ids(const struct choice *choice, size_t text_unsent);
/* Memory that its texts and numbers take. */
size_t choice_bytes(const struct choice *choice);
/* The mean log probability of its tokens; -INFINITY without tokens. */
double choice_mean_logprob(const struct choice *choice);

#endif
