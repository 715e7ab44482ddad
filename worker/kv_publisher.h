/* kv_publisher.h - the block index's changes for KV-aware routers of others, in vLLM's protocol.
 *
 *   PUB     topic | sequence, 8 bytes big-endian | batch (kv_encode.h)
 *   ROUTER  request:  [empty] | first sequence wanted, 8 bytes
 *           answers:  [empty] | topic | sequence | batch ... then topic | -1 | empty
 *
 * Off by default. --kv-events-config takes vLLM's JSON: enable_kv_cache_events, publisher ("zmq"),
 * endpoint, replay_endpoint, buffer_steps, hwm, topic; and ours: format ("map" or "array"),
 * int_block_hashes. Batches hold the ids of prompts, so an endpoint that another machine can reach
 * needs --insecure-tcp. Group g listens g ports further up, as vLLM's ranks do. Sequences count
 * from 0. The last buffer_steps batches are kept for replay, of at most KV_REPLAY_BYTES_MAX.
 *
 * Thread: io. */
#ifndef REFRAIN_WORKER_KV_PUBLISHER_H
#define REFRAIN_WORKER_KV_PUBLISHER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "worker/engine/messages.h"

#define KV_REPLAY_BYTES_MAX ((size_t)64 << 20)

struct adapters; /* worker/lora/adapters.h */
struct kv_publisher;

struct kv_publisher_settings {
    const char *config; /* the JSON, or NULL */
    uint32_t group;
    bool insecure_tcp;
    bool windows; /* layers of the model slide */
};

/* NULL or disabled in its config: *ret_publisher is NULL, and that is fine for all calls below.
 * -EINVAL: *err names the field; errno of ZeroMQ. */
int kv_publisher_new(const struct kv_publisher_settings *settings,
                     struct kv_publisher **ret_publisher, struct errmsg *err);
/* Who knows the names of adapters; outlives the publisher. NULL publisher or adapters: nothing. */
void kv_publisher_use_adapters(struct kv_publisher *publisher, const struct adapters *adapters);
void kv_publisher_free(struct kv_publisher *publisher);
/* An output of the engine; all but OUTPUT_KV are ignored. Never waits. */
void kv_publisher_output(struct kv_publisher *publisher, const struct output *output);
/* Answer what asks for a replay, a few requests a turn. */
void kv_publisher_turn(struct kv_publisher *publisher);
/* To poll for input, -1: none. Edge-triggered: call kv_publisher_turn() on the tick too. */
int kv_publisher_fd(const struct kv_publisher *publisher);

#endif
