/* sequence.c - one request's tokens, blocks and state.
 *
 *   WAITING --admit--> PREFILL --last chunk--> DECODE --stop, length--> FINISHED
 *      ^                  |                       |     (cancel: FINISHED from anywhere)
 *      +---- preempt -----+-----------------------+
 *
 * Why no PREEMPTED state: resuming is an admission like any other, and the blocks are still cached.
 * The ids stay; only KV is computed again, so no token changes.
 *
 *   ids      [ prompt ............... | output ...... last ]
 *   computed [ KV is in the table ...................)        DECODE, between steps: ids_count - 1
 *   sealed   [ full blocks, findable ......)
 *
 * Generated tokens are hashed and sealed as prompt tokens are: the next turn's history holds them.
 * Invariant: only PREFILL and DECODE hold block references. */
#define LOG_MODULE "sched"
#include "worker/sched/sequence.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "worker/kv/window_blocks.h"
#include "worker/sample/rules.h"
#include "worker/sample/thinking.h"

static const bool may_follow[SEQ_STATES][SEQ_STATES] = {
    [SEQ_WAITING] = {[SEQ_PREFILL] = true, [SEQ_FINISHED] = true},
    [SEQ_PREFILL] = {[SEQ_DECODE] = true, [SEQ_WAITING] = true, [SEQ_FINISHED] = true},
    [SEQ_DECODE] = {[SEQ_WAITING] = true, [SEQ_FINISHED] = true},
};

static const char *const state_names[SEQ_STATES] = {"waiting", "prefill", "decode", "finished"};

const char *sequence_state_name(enum sequence_state state)
{
    ASSERT(state < SEQ_STATES);
    return state_names[state];
}

void sequence_set_state(struct sequence *seq, enum sequence_state next, const char *why)
{
    ASSERT(may_follow[seq->state][next]);
    ASSERT(next == SEQ_PREFILL || next == SEQ_DECODE || seq->table.count == 0);
    log_debug("sequence_state", "req=%s from=%s to=%s why=%s", seq->params.request_id,
              state_names[seq->state], state_names[next], why);
    seq->state = next;
}

static uint32_t blocks_of(uint32_t tokens)
{
    return tokens / BLOCK_TOKENS + (tokens % BLOCK_TOKENS != 0);
}

struct sequence *sequence_new(const struct sequence_params *params, uint32_t ids_max)
{
    struct sequence *seq = mem_zalloc(sizeof(*seq));

    ASSERT(ids_max > params->prompt_tokens);
    list_init(&seq->link);
    seq->params = *params;
    seq->ids = mem_alloc(ids_max * sizeof(*seq->ids));
    memcpy(seq->ids, params->prompt, params->prompt_tokens * sizeof(*seq->ids));
    seq->params.prompt = seq->ids;
    seq->params.sampling.logprob_ids = seq->params.logprob_ids;
    seq->prompt_tokens = seq->ids_count = params->prompt_tokens;
    seq->ids_max = ids_max;
    block_table_init(&seq->table, blocks_of(ids_max));
    seq->hashes = mem_alloc(blocks_of(ids_max) * sizeof(*seq->hashes));
    seq->hashes_count =
        (uint32_t)block_hash_chain(params->root, seq->ids, seq->ids_count, seq->hashes);
    seq->miss = "";
    return seq;
}

void sequence_free(struct sequence *seq)
{
    if (seq == NULL)
        return;
    block_table_done(&seq->table);
    grammar_matcher_free(seq->matcher);
    sample_rules_free(seq->params.rules);
    thinking_free(seq->params.thinking);
    repetition_free(seq->params.repetition);
    adapter_leave(seq->params.adapter);
    mem_free(seq->hashes);
    mem_free(seq->ids);
    mem_free(seq);
}

static struct block_hash parent_of(const struct sequence *seq, uint32_t block)
{
    return block == 0 ? seq->params.root : seq->hashes[block - 1];
}

/* How many of a block's tokens are the prompt's. */
static uint32_t prompt_tokens_in(const struct sequence *seq, uint32_t block)
{
    uint32_t at = block * BLOCK_TOKENS;
    uint32_t rest = seq->prompt_tokens > at ? seq->prompt_tokens - at : 0;

    return rest < BLOCK_TOKENS ? rest : BLOCK_TOKENS;
}

static bool is_stop_id(const struct sequence *seq, uint32_t id)
{
    for (uint32_t i = 0; i < seq->params.stop_ids_count; i++)
        if (seq->params.stop_ids[i] == id)
            return true;
    return false;
}

/* Every token is shown to it, also those before tokens_min, which cannot end the answer. */
static bool repeats_itself(struct sequence *seq)
{
    uint32_t output = sequence_output_tokens(seq);

    return seq->params.repetition != NULL &&
           repetition_take(seq->params.repetition, seq->ids + seq->prompt_tokens, output) &&
           output >= seq->params.tokens_min;
}

enum sequence_finish sequence_append(struct sequence *seq, uint32_t id)
{
    uint32_t output_before = sequence_output_tokens(seq);

    ASSERT(seq->state == SEQ_DECODE);
    ASSERT(seq->ids_count < seq->ids_max);
    seq->ids[seq->ids_count++] = id;
    if (seq->ids_count % BLOCK_TOKENS == 0) {
        uint32_t block = seq->hashes_count++;
        seq->hashes[block] =
            block_hash_next(parent_of(seq, block), seq->ids + (size_t)block * BLOCK_TOKENS);
    }
    bool repeats = repeats_itself(seq);
    if (seq->answer_over || (output_before >= seq->params.tokens_min && is_stop_id(seq, id)))
        return SEQ_FINISH_STOP;
    if (output_before + 1 >= seq->params.tokens_max || seq->ids_count == seq->ids_max)
        return SEQ_FINISH_LENGTH;
    return repeats ? SEQ_FINISH_REPETITION : SEQ_FINISH_NONE;
}

/* Blocks [0, count) are findable with just our ids in them. */
static bool chain_is_published(const struct sequence *seq, struct block_pool *pool, uint32_t count,
                               uint32_t *scratch, uint32_t *ret_published)
{
    if (count == 0 || block_pool_state(pool, seq->table.ids[count - 1]) == BLOCK_SHARED)
        *ret_published = count;
    else
        *ret_published =
            block_pool_match_root(pool, seq->params.root, seq->hashes, seq->ids, count, scratch);
    return *ret_published == count;
}

/* Block `block` is published already, not by us, and its window block was evicted while ours is
 * here: give it ours and use it instead of our own, so that the prefix can be found again. Between
 * steps: nobody but our table knows our block. */
static void mend_window(struct sequence *seq, struct block_pool *pool, uint32_t block,
                        const uint32_t *published)
{
    uint32_t own = seq->table.ids[block], twin = block_pool_find(pool, seq->hashes[block]);
    uint32_t before = BLOCK_NONE;

    if (block > 0)
        before = block_pool_state(pool, seq->table.ids[block - 1]) == BLOCK_SHARED
                     ? seq->table.ids[block - 1]
                     : published[block - 1];
    if (twin == BLOCK_NONE || twin == own || window_of_block(pool, twin) != BLOCK_NONE ||
        window_of_block(pool, own) == BLOCK_NONE ||
        !block_pool_holds(pool, twin, before, parent_of(seq, block),
                          seq->ids + (size_t)block * BLOCK_TOKENS))
        return;
    block_pool_ref(pool, twin);
    window_move(pool, own, twin);
    block_pool_unref(pool, &own, 1);
    seq->table.ids[block] = twin;
}

/* Seal one block. Where ours before it are private, because another sequence had published the same
 * ones first, its chain is compared with our ids down to the root, and what was evicted of it is
 * replaced by our blocks. A chain that collides with ours gets no child from us. */
static void seal_block(struct sequence *seq, struct block_pool *pool, uint32_t block,
                       uint32_t *scratch)
{
    uint32_t from;

    (void)chain_is_published(seq, pool, block, scratch, &from);
    for (uint32_t i = from; i <= block; i++) {
        block_pool_seal(pool, seq->table.ids[i], parent_of(seq, i), seq->hashes[i],
                        seq->ids + (size_t)i * BLOCK_TOKENS, i == 0, prompt_tokens_in(seq, i));
        if (block_pool_state(pool, seq->table.ids[i]) == BLOCK_SHARED)
            continue;
        if (i == block && window_tokens(pool) > 0)
            mend_window(seq, pool, block, scratch);
        return;
    }
}

void sequence_seal(struct sequence *seq, struct block_pool *pool, uint32_t *scratch)
{
    uint32_t full = seq->computed / BLOCK_TOKENS;

    ASSERT(full <= seq->hashes_count && full <= seq->table.count);
    block_pool_set_owner(pool, adapter_serial(seq->params.adapter));
    if (block_pool_caching(pool))
        for (uint32_t block = seq->sealed; block < full; block++)
            seal_block(seq, pool, block, scratch);
    seq->sealed = full;
}

void sequence_let_go(struct sequence *seq, struct block_pool *pool, uint32_t *scratch)
{
    uint32_t full = seq->computed / BLOCK_TOKENS;
    uint32_t tail = seq->computed % BLOCK_TOKENS;
    uint32_t published;

    ASSERT(!seq->in_step);
    ASSERT(seq->sealed == full);
    if (tail > 0 && block_pool_caching(pool) &&
        chain_is_published(seq, pool, full, scratch, &published))
        block_pool_seal_tail(pool, seq->table.ids[full], parent_of(seq, full),
                             seq->ids + (size_t)full * BLOCK_TOKENS, tail, full == 0,
                             prompt_tokens_in(seq, full));
    block_table_drop(&seq->table, pool);
    seq->computed = 0; /* the next admission looks the prefix up again */
    seq->sealed = 0;
}

void sequence_check(const struct sequence *seq, const struct block_pool *pool)
{
    bool holds = seq->state == SEQ_PREFILL || seq->state == SEQ_DECODE;

    ASSERT(seq->ids_count <= seq->ids_max && seq->prompt_tokens <= seq->ids_count);
    ASSERT(seq->scored < seq->prompt_tokens);
    ASSERT(seq->hashes_count == seq->ids_count / BLOCK_TOKENS);
    ASSERT(holds == (seq->table.count > 0));
    ASSERT(holds || (seq->computed == 0 && seq->sealed == 0 && !seq->in_step));
    if (!holds)
        return;
    ASSERT(seq->sealed == seq->computed / BLOCK_TOKENS);
    ASSERT(blocks_of(seq->computed) <= seq->table.count);
    ASSERT(seq->state == SEQ_DECODE ? seq->computed + 1 == seq->ids_count
                                    : seq->computed < seq->ids_count);
    for (uint32_t i = 0; i < seq->table.count; i++)
        ASSERT(block_pool_refs(pool, seq->table.ids[i]) > 0);
    uint32_t tokens = window_tokens(pool);
    if (tokens == 0)
        return;
    ASSERT(seq->table.window_first == window_first_block(tokens, seq->computed));
    ASSERT(seq->table.window_end >= blocks_of(seq->computed));
    ASSERT(seq->table.window_end <= seq->table.count);
    for (uint32_t i = seq->table.window_first; i < seq->table.window_end; i++)
        ASSERT(window_of_block(pool, seq->table.ids[i]) != BLOCK_NONE);
}
