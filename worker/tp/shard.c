/* shard.c - deals heads, FFN columns and vocabulary rows to ranks.
 *
 *   9 query heads on 3 KV heads     2 ranks   q 0-5 kv 0-1 | q 6-8 kv 2
 *                                   4 ranks   q 0-2 kv 0 | q 3-4 kv 1 | q 5-6 kv 1-2 | q 7-8 kv 2
 *
 * Why whole KV heads as long as they suffice: then no KV is held twice. Beyond that, query heads
 * are dealt and KV heads follow, replicated where a group is cut. Cost: none.
 * Invariant: every query head, column, expert and row belongs to exactly one rank. */
#include "worker/tp/shard.h"

#include <errno.h>

#include "proto/base/assert.h"

#define FFN_UNIT 32u
#define VOCAB_UNIT 16u

/* `total` things over `ranks`, as evenly as they go, the first ranks one more. */
static void deal(uint32_t total, uint32_t rank, uint32_t ranks, uint32_t *ret_first,
                 uint32_t *ret_count)
{
    uint32_t each = total / ranks, more = total % ranks;
    *ret_first = rank * each + (rank < more ? rank : more);
    *ret_count = each + (rank < more ? 1 : 0);
}

/* The same in units; the last unit may be short. */
static void deal_units(uint32_t total, uint32_t unit, uint32_t rank, uint32_t ranks,
                       uint32_t *ret_first, uint32_t *ret_count)
{
    uint32_t first = 0, count = 0;
    deal((total + unit - 1) / unit, rank, ranks, &first, &count);
    uint32_t end = (first + count) * unit;
    *ret_first = first * unit < total ? first * unit : total;
    *ret_count = (end < total ? end : total) - *ret_first;
}

static void deal_heads(const struct model_config *config, struct shard *shard)
{
    uint32_t group = config->q_heads / config->kv_heads;
    if (shard->ranks <= config->kv_heads) {
        deal(config->kv_heads, shard->rank, shard->ranks, &shard->kv_first, &shard->kv_count);
        shard->q_first = shard->kv_first * group;
        shard->q_count = shard->kv_count * group;
        return;
    }
    deal(config->q_heads, shard->rank, shard->ranks, &shard->q_first, &shard->q_count);
    if (shard->q_count == 0)
        return; /* more ranks than query heads: this one only has FFN columns */
    shard->kv_first = shard->q_first / group;
    shard->kv_count = (shard->q_first + shard->q_count - 1) / group - shard->kv_first + 1;
    shard->q_offset = shard->q_first - shard->kv_first * group;
}

int shard_compute(const struct model_config *config, uint32_t rank, uint32_t ranks,
                  struct shard *ret_shard, struct errmsg *err)
{
    if (ranks == 0 || ranks > TP_RANKS_MAX)
        return errmsg_set(err, -EINVAL, "tensor parallel size %u, 1 to %u are possible", ranks,
                          TP_RANKS_MAX);
    if (rank >= ranks)
        return errmsg_set(err, -EINVAL, "rank %u of %u", rank, ranks);
    ASSERT(config->kv_heads > 0 && config->q_heads % config->kv_heads == 0);
    struct shard shard = {.rank = rank, .ranks = ranks};
    deal_heads(config, &shard);
    deal_units(config->ffn, config->ffn % FFN_UNIT == 0 ? FFN_UNIT : 1, rank, ranks,
               &shard.ffn_first, &shard.ffn_count);
    uint32_t shared = config->experts.shared_ffn;
    deal_units(shared, shared % FFN_UNIT == 0 ? FFN_UNIT : 1, rank, ranks, &shard.shared_first,
               &shard.shared_count);
    deal(config->experts.count, rank, ranks, &shard.experts_first, &shard.experts_count);
    deal_units(config->vocab_size, VOCAB_UNIT, rank, ranks, &shard.vocab_first, &shard.vocab_count);
    *ret_shard = shard;
    return 0;
}

uint32_t shard_kv_heads_max(const struct model_config *config, uint32_t ranks)
{
    uint32_t most = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct shard shard;
        int r = shard_compute(config, rank, ranks, &shard, NULL);
        ASSERT(r == 0);
        most = shard.kv_count > most ? shard.kv_count : most;
    }
    return most;
}

struct weights_slice shard_slice(const struct shard *shard)
{
    return (struct weights_slice){
        .q_first = shard->q_first,
        .q_count = shard->q_count,
        .kv_first = shard->kv_first,
        .kv_count = shard->kv_count,
        .ffn_first = shard->ffn_first,
        .ffn_count = shard->ffn_count,
        .vocab_first = shard->vocab_first,
        .vocab_count = shard->vocab_count,
        .shared_first = shard->shared_first,
        .shared_count = shard->shared_count,
        .experts_first = shard->experts_first,
        .experts_count = shard->experts_count,
    };
}
