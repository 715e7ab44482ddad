/* kv_encode.h - changes of the block index as a batch in vLLM's KV-event format (msgpack).
 *
 *   batch: [ts, [event, ...], data_parallel_rank]
 *   event: {"type": "BlockStored", "block_hashes": [...], "parent_block_hash": hash or nil,
 *           "token_ids": [...], "block_size": 16, "medium": "GPU",
 *           "lora_name": name}                                      (of an adapter's blocks only)
 *          {"type": "BlockRemoved", "block_hashes": [...], "medium": "GPU"}
 *          {"type": "AllBlocksCleared"}
 *
 * With `arrays` an event is an array with its type first, as before 2026-06. A hash is its 16 bytes
 * (low, high; little-endian) or, with `int_hashes`, the low 64 bits. "GPU" is vLLM's word for the
 * pool that attention reads, whatever the backend. Consecutive blocks of one chain make one event.
 * Source: facts on vLLM, KV events over ZeroMQ. Thread: any. */
#ifndef REFRAIN_WORKER_KV_ENCODE_H
#define REFRAIN_WORKER_KV_ENCODE_H

#include "proto/base/buffer.h"
#include "worker/engine/messages.h"
#include "worker/lora/adapters.h"

struct kv_encoding {
    bool arrays, int_hashes;
    const struct adapters *adapters; /* knows their names; NULL: none are served */
    uint32_t group;                  /* data_parallel_rank */
    /* Layers of the model slide: maps say group_idx 0, the first group of layers. Window blocks are
     * not told of: they hang on blocks, and what is missing of them is computed again. */
    bool windows;
};

/* Append the batch of an OUTPUT_KV to *out. ts: unix seconds. */
void kv_encode_batch(const struct kv_encoding *encoding, const struct output *output, double ts,
                     struct buffer *out);

#endif
