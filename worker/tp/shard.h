/* shard.h - which part of every matrix a rank holds. Pure arithmetic; every rank computes all.
 *
 * Heads: with ranks <= kv_heads, KV heads are dealt out as evenly as they go (first ranks one more)
 * with their whole query groups: 9 query / 3 KV heads over 2 ranks = 6/2 + 3/1. With more ranks
 * than KV heads, query heads are dealt out and a rank holds (a replica of) each KV head that its
 * query heads read. A rank may have no heads. FFN columns: in units of `ffn_unit` (32: a
 * quantisation group) where ffn is a multiple of it, else of 1; columns of shared experts likewise.
 * Experts: whole ones, as evenly as they go. Vocabulary rows of lm_head: in units of 16. */
#ifndef REFRAIN_WORKER_TP_SHARD_H
#define REFRAIN_WORKER_TP_SHARD_H

#include <stdint.h>

#include "kernels/ops.h"
#include "proto/base/errmsg.h"
#include "worker/load/model_config.h"
#include "worker/load/weights.h"

#define TP_RANKS_MAX 8u

struct shard {
    uint32_t rank, ranks;
    uint32_t q_first, q_count;   /* query heads */
    uint32_t kv_first, kv_count; /* KV heads held */
    uint32_t q_offset;           /* q_first - kv_first * group: struct heads.q_offset */
    uint32_t ffn_first, ffn_count;
    uint32_t vocab_first, vocab_count;
    uint32_t shared_first, shared_count;   /* columns of the shared experts */
    uint32_t experts_first, experts_count; /* whole experts */
};

/* -EINVAL: ranks is 0 or over TP_RANKS_MAX, rank >= ranks. */
int shard_compute(const struct model_config *config, uint32_t rank, uint32_t ranks,
                  struct shard *ret_shard, struct errmsg *err);
/* KV heads of the rank that holds the most: how large a pool's blocks may be. `ranks` is possible.
 */
uint32_t shard_kv_heads_max(const struct model_config *config, uint32_t ranks);
/* What loading needs of it, so that load/ does not depend on tp/. */
struct weights_slice shard_slice(const struct shard *shard);

#endif
