/* router_send.c - protobuf structs over arrays that live as long as the sender.
 *
 * Nothing is allocated per message but by ZeroMQ: items point into the engine's output, ids and
 * logprobs into scratch. Runs of stored blocks whose parent is the one before them share one
 * KvStored, so that a new prompt of 100 blocks is one parent and 100 hashes. */
#include "worker/router_send.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/wire.pb-c.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hashes and ids go out as they lie in memory: little-endian machines only"
#endif
_Static_assert(sizeof(struct block_hash) == 16, "low, high, back to back");

#define SNAPSHOT_PART_HASHES 65536u

/* Scratch of one item with logprobs. */
struct logprobs_scratch {
    Refrain__Logprobs logprobs;
    Refrain__TokenLogprob top[SAMPLE_LOGPROBS_MAX];
    Refrain__TokenLogprob *top_pointers[SAMPLE_LOGPROBS_MAX];
};

struct router_sender {
    void *socket;
    const struct worker_info *info;
    Refrain__StepItem *items;
    Refrain__StepItem **item_pointers;
    uint32_t items_max;
    struct logprobs_scratch *logprobs;     /* [logprobs_max] */
    Refrain__Logprobs **logprobs_pointers; /* to each of them */
    uint32_t logprobs_max;
    Refrain__KvStored stored[OUTPUT_STORED_MAX];
    Refrain__KvStored *stored_pointers[OUTPUT_STORED_MAX];
    struct block_hash stored_hashes[OUTPUT_STORED_MAX];
    Refrain__RankMetrics rank_metrics[TP_RANKS_MAX];
    Refrain__RankMetrics *rank_pointers[TP_RANKS_MAX];
};

/* protobuf-c has no const: what is sent is only read. */
static char *text_of(const char *text)
{
    return (char *)text;
}

static ProtobufCBinaryData bytes_of(const void *data, size_t bytes)
{
    return (ProtobufCBinaryData){bytes, (uint8_t *)data};
}

struct router_sender *router_sender_new(void *socket, const struct worker_info *info)
{
    struct router_sender *sender = mem_zalloc(sizeof(*sender));
    sender->socket = socket;
    sender->info = info;
    sender->logprobs_max = info->settings->sequences_max + SCORED_ROWS_MAX;
    sender->logprobs = mem_calloc(sender->logprobs_max, sizeof(*sender->logprobs));
    sender->logprobs_pointers = mem_calloc(sender->logprobs_max, sizeof(Refrain__Logprobs *));
    for (uint32_t i = 0; i < sender->logprobs_max; i++)
        sender->logprobs_pointers[i] = &sender->logprobs[i].logprobs;
    return sender;
}

void router_sender_free(struct router_sender *sender)
{
    if (sender == NULL)
        return;
    mem_free(sender->items);
    mem_free(sender->item_pointers);
    mem_free(sender->logprobs);
    mem_free(sender->logprobs_pointers);
    mem_free(sender);
}

int router_send_hello(struct router_sender *sender, const struct frame_peer *peer,
                      double prefill_seconds_per_token)
{
    const struct worker_info *info = sender->info;
    Refrain__Hello hello = REFRAIN__HELLO__INIT;
    int32_t pids[TP_RANKS_MAX];
    for (uint32_t rank = 0; rank < info->settings->ranks; rank++)
        pids[rank] = (int32_t)info->pids[rank];
    hello.worker_uuid = text_of(info->uuid);
    hello.epoch = info->epoch;
    hello.group = info->settings->group;
    hello.ranks = info->settings->ranks;
    hello.blocks_total = worker_info_blocks(info);
    hello.block_tokens = BLOCK_TOKENS;
    hello.sequences_max = info->settings->sequences_max;
    hello.step_tokens_max = info->step_tokens_max;
    hello.context_tokens_max = info->pool.context_tokens;
    hello.waiting_max = info->settings->waiting_max;
    hello.prefix_caching = info->settings->prefix_caching;
    hello.kv_cache_dtype = text_of(worker_kv_dtype(info->settings));
    hello.card = bytes_of(info->card_packed, info->card_packed_bytes);
    hello.version = text_of(REFRAIN_VERSION);
    hello.admin_socket = text_of(info->admin_path);
    hello.n_pids = info->settings->ranks;
    hello.pids = pids;
    hello.prefill_seconds_per_token = prefill_seconds_per_token;
    return frame_send(sender->socket, peer, FRAME_HELLO, &hello.base);
}

static void fill_logprobs(struct logprobs_scratch *scratch, const struct sample_result *result)
{
    ASSERT(result->top_count <= SAMPLE_LOGPROBS_MAX);
    refrain__logprobs__init(&scratch->logprobs);
    scratch->logprobs.chosen = result->logprob;
    scratch->logprobs.rank = result->rank;
    scratch->logprobs.n_top = result->top_count;
    scratch->logprobs.top = scratch->top_pointers;
    for (uint32_t i = 0; i < result->top_count; i++) {
        refrain__token_logprob__init(&scratch->top[i]);
        scratch->top[i].id = result->top_ids[i];
        scratch->top[i].logprob = result->top_logprobs[i];
        scratch->top_pointers[i] = &scratch->top[i];
    }
}

/* `count` results from `first` on, as a repeated field. */
static Refrain__Logprobs **fill_all_logprobs(struct router_sender *sender,
                                             const struct output *output, uint32_t first,
                                             uint32_t count)
{
    ASSERT(first + count <= sender->logprobs_max);
    for (uint32_t i = first; i < first + count; i++)
        fill_logprobs(&sender->logprobs[i], &output->logprobs[i]);
    return &sender->logprobs_pointers[first];
}

static void fill_item(struct router_sender *sender, Refrain__StepItem *to,
                      const struct output *output, const struct output_item *from)
{
    refrain__step_item__init(to);
    to->request_id = text_of(from->request_id);
    if (from->has_token)
        to->ids = bytes_of(&from->id, sizeof(from->id));
    if (from->logprobs >= 0) {
        to->n_logprobs = 1;
        to->logprobs = fill_all_logprobs(sender, output, (uint32_t)from->logprobs, 1);
    }
    if (from->scores_count > 0) {
        to->n_prompt_logprobs = from->scores_count;
        to->prompt_logprobs = fill_all_logprobs(sender, output, from->scores, from->scores_count);
        to->prompt_from = from->scores_from;
    }
    to->finish = (Refrain__Finish)from->finish;
    to->first = from->first;
    to->cached_tokens = from->cached_tokens;
    to->computed_tokens = from->computed_tokens;
    to->queue_seconds = from->queue_seconds;
    to->prefill_seconds = from->prefill_seconds;
    to->cached_host_tokens = from->cached_host_tokens;
    to->cached_disk_tokens = from->cached_disk_tokens;
    to->load_seconds = from->load_seconds;
    to->miss = text_of(from->miss);
    to->error_code = from->error_code;
    to->error_text = text_of(from->error_text);
}

/* The first output says how many items there are at most: all are alike. */
static void make_room(struct router_sender *sender, uint32_t items_max)
{
    if (sender->items_max >= items_max)
        return;
    ASSERT(sender->items == NULL);
    sender->items = mem_calloc(items_max, sizeof(*sender->items));
    sender->item_pointers = mem_calloc(items_max, sizeof(Refrain__StepItem *));
    sender->items_max = items_max;
}

int router_send_step(struct router_sender *sender, const struct frame_peer *peer, uint32_t router,
                     const struct output *output)
{
    Refrain__StepOutput message = REFRAIN__STEP_OUTPUT__INIT;
    int r = 0;
    make_room(sender, output->items_max);
    message.step = output->step;
    message.items = sender->item_pointers;
    for (uint32_t i = 0; i < output->items_count && r == 0; i++) {
        const struct output_item *item = &output->items[i];
        if (item->router != router)
            continue;
        if (item->refused) {
            r = router_send_error(sender, peer, FRAME_SUBMIT, item->error_code, item->error_text,
                                  item->request_id);
            continue;
        }
        fill_item(sender, &sender->items[message.n_items], output, item);
        sender->item_pointers[message.n_items] = &sender->items[message.n_items];
        message.n_items++;
    }
    if (r < 0 || message.n_items == 0)
        return r;
    return frame_send(sender->socket, peer, FRAME_STEP_OUTPUT, &message.base);
}

int router_send_kv(struct router_sender *sender, const struct frame_peer *peer,
                   const struct output *output)
{
    Refrain__KvEvents message = REFRAIN__KV_EVENTS__INIT;
    message.sequence = output->kv_sequence;
    message.stored = sender->stored_pointers;
    for (uint32_t i = 0; i < output->stored_count; i++) {
        const struct output_stored *stored = &output->stored[i];
        sender->stored_hashes[i] = stored->hash;
        if (i > 0 && block_hash_equal(stored->parent, output->stored[i - 1].hash)) {
            sender->stored[message.n_stored - 1].hashes.len += sizeof(stored->hash);
            continue;
        }
        Refrain__KvStored *run = &sender->stored[message.n_stored];
        refrain__kv_stored__init(run);
        run->parent = bytes_of(&stored->parent, sizeof(stored->parent));
        run->hashes = bytes_of(&sender->stored_hashes[i], sizeof(stored->hash));
        sender->stored_pointers[message.n_stored++] = run;
    }
    message.removed = bytes_of(output->removed, output->removed_count * sizeof(output->removed[0]));
    return frame_send(sender->socket, peer, FRAME_KV_EVENTS, &message.base);
}

int router_send_snapshot(struct router_sender *sender, const struct frame_peer *peer,
                         const struct output *output)
{
    uint32_t sent = 0;
    int r = 0;
    do {
        Refrain__Snapshot message = REFRAIN__SNAPSHOT__INIT;
        uint32_t left = output->hashes_count - sent;
        uint32_t count = left < SNAPSHOT_PART_HASHES ? left : SNAPSHOT_PART_HASHES;
        message.barrier = output->kv_sequence;
        message.hashes = bytes_of(output->hashes + sent, count * sizeof(output->hashes[0]));
        message.first = sent == 0;
        sent += count;
        message.last = sent == output->hashes_count;
        r = frame_send(sender->socket, peer, FRAME_SNAPSHOT, &message.base);
    } while (r == 0 && sent < output->hashes_count);
    return r;
}

int router_send_heartbeat(struct router_sender *sender, const struct frame_peer *peer,
                          const struct engine_status *status, const struct kv_state *kv,
                          struct worker_metrics *metrics)
{
    Refrain__Heartbeat message = REFRAIN__HEARTBEAT__INIT;
    message.epoch = sender->info->epoch;
    message.running = status->counts.running;
    message.waiting = status->counts.waiting;
    message.pending_prefill_tokens = status->counts.pending_prefill_tokens;
    message.blocks_referenced = status->blocks.private_ + status->blocks.shared;
    message.blocks_cached = status->blocks.cached;
    message.blocks_empty = status->blocks.empty;
    message.kv_sequence = kv->sequence;
    message.kv_blocks = kv->blocks;
    message.kv_digest = kv->digest;
    message.draining = status->draining;
    message.step_seconds = status->step_seconds;
    message.prefill_seconds_per_token = status->prefill_seconds_per_token;
    message.metrics = sender->rank_pointers;
    for (uint32_t rank = 0; metrics != NULL && rank < worker_metrics_ranks(metrics); rank++) {
        Refrain__RankMetrics *one = &sender->rank_metrics[rank];
        refrain__rank_metrics__init(one);
        one->rank = rank;
        one->values = worker_metrics_flat(metrics, rank, &one->n_values);
        sender->rank_pointers[message.n_metrics++] = one;
    }
    return frame_send(sender->socket, peer, FRAME_HEARTBEAT, &message.base);
}

int router_send_adapters(struct router_sender *sender, const struct frame_peer *peer,
                         const struct adapters *adapters)
{
    Refrain__Adapters message = REFRAIN__ADAPTERS__INIT;
    Refrain__Adapter items[LORA_SLOTS_MAX], *pointers[LORA_SLOTS_MAX];
    message.adapters_max = adapters != NULL ? adapters_max(adapters) : 0;
    message.adapters = pointers;
    for (uint32_t i = 0; i < message.adapters_max; i++) {
        struct adapter_view view;
        Refrain__Adapter *item = &items[message.n_adapters];
        if (!adapters_at(adapters, i, &view))
            continue;
        refrain__adapter__init(item);
        item->name = text_of(view.name);
        item->key = text_of(view.key);
        item->path = text_of(view.path);
        pointers[message.n_adapters++] = item;
    }
    return frame_send(sender->socket, peer, FRAME_ADAPTERS, &message.base);
}

int router_send_adapter_result(struct router_sender *sender, const struct frame_peer *peer,
                               uint64_t ticket, int code, const char *text)
{
    Refrain__AdapterResult message = REFRAIN__ADAPTER_RESULT__INIT;
    message.ticket = ticket;
    message.code = code;
    message.text = text_of(text);
    return frame_send(sender->socket, peer, FRAME_ADAPTER_RESULT, &message.base);
}

int router_send_error(struct router_sender *sender, const struct frame_peer *peer,
                      enum frame_kind kind, int code, const char *text, const char *request_id)
{
    Refrain__Error message = REFRAIN__ERROR__INIT;
    message.kind = (uint32_t)kind;
    message.code = code;
    message.text = text_of(text);
    if (request_id != NULL)
        message.request_id = text_of(request_id);
    return frame_send(sender->socket, peer, FRAME_ERROR, &message.base);
}

int router_send_refusal(struct router_sender *sender, const struct frame_peer *peer,
                        const char *request_id, int code, const char *text)
{
    Refrain__StepOutput message = REFRAIN__STEP_OUTPUT__INIT;
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    Refrain__StepItem *pointer = &item;
    item.request_id = text_of(request_id);
    item.finish = REFRAIN__FINISH__FINISH_ERROR;
    item.error_code = code;
    item.error_text = text_of(text);
    message.n_items = 1;
    message.items = &pointer;
    return frame_send(sender->socket, peer, FRAME_STEP_OUTPUT, &message.base);
}
