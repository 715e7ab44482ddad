/* window_model.h - window blocks as anybody would write them: one array, scans, time stamps.
 *
 * A driver plays sequences as the scheduler makes them, and some oddities: prefix hits, chunks,
 * windows that slide, tails, leases, single blocks that are held, window blocks handed to a twin,
 * resets. What a block is comes from the pool (pool_model.h compares that); the model knows who has
 * a window block, who holds it, and which one has to go next. After each operation all of it is
 * compared. Draws come from a generator (property test) or from a fuzzer's bytes. */
#ifndef REFRAIN_TESTS_WINDOW_MODEL_H
#define REFRAIN_TESTS_WINDOW_MODEL_H

#include <string.h>

#include "proto/base/assert.h"
#include "worker/kv/block_table.h"
#include "worker/kv/eviction.h"
#include "worker/kv/window_blocks.h"

#define WM_BLOCKS_MAX 40u
#define WM_DEPTH 10u
#define WM_SEQUENCES 4u
#define WM_PINS 3u

struct wm_block {
    bool windowed, passed, was_hit;
    uint32_t holders;
    uint64_t idle_since;
};

struct wm_sequence {
    struct block_table table;
    struct block_hash root, hashes[WM_DEPTH];
    uint32_t ids[WM_DEPTH * BLOCK_TOKENS];
    uint32_t computed; /* tokens; every full block is sealed */
};

struct wm_pin {
    struct block_hash root, last;
    uint32_t blocks[WM_DEPTH], count; /* that have their window block held; 0: no lease */
    uint64_t expires;
};

struct window_model {
    struct block_pool *pool;
    uint32_t blocks_total, total, tokens;
    struct wm_block blocks[WM_BLOCKS_MAX];
    struct wm_sequence sequences[WM_SEQUENCES];
    struct wm_pin pins[WM_PINS];
    uint64_t now, lost, clock;
    uint64_t hits, cut, moved, slid; /* what was reached */
    uint32_t (*draw)(void *user, uint32_t below);
    void *user;
};

static inline uint32_t wm_draw(struct window_model *m, uint32_t below)
{
    return m->draw(m->user, below);
}

static inline uint32_t wm_available(const struct window_model *m)
{
    uint32_t held = 0;

    for (uint32_t id = 0; id < m->blocks_total; id++)
        held += m->blocks[id].holders > 0;
    return m->total - held;
}

/* --- what the pool does, done to the model --- */

/* The block is lost, and its window block with it. */
static inline void wm_on_evict(void *user, const struct block_evicted *evicted)
{
    struct window_model *m = user;

    ASSERT(m->blocks[evicted->id].holders == 0);
    m->blocks[evicted->id] = (struct wm_block){.windowed = false};
}

/* A tail whose tokens a newer block has. */
static inline void wm_on_superseded(void *user, uint32_t id)
{
    struct window_model *m = user;

    ASSERT(m->blocks[id].holders == 0);
    m->blocks[id] = (struct wm_block){.windowed = false};
}

static inline void wm_give_up_oldest(struct window_model *m)
{
    uint32_t victim = BLOCK_NONE;

    for (uint32_t id = 0; id < m->blocks_total; id++) {
        const struct wm_block *block = &m->blocks[id], *best = &m->blocks[victim];
        if (!block->windowed || block->holders > 0)
            continue;
        if (victim == BLOCK_NONE || (block->passed && !best->passed) ||
            (block->passed == best->passed && block->idle_since < best->idle_since))
            victim = id;
    }
    ASSERT(victim != BLOCK_NONE);
    m->blocks[victim] = (struct wm_block){.windowed = false};
    m->lost++;
}

static inline void wm_take(struct window_model *m, uint32_t id)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < m->blocks_total; i++)
        used += m->blocks[i].windowed;
    if (used == m->total)
        wm_give_up_oldest(m);
    m->blocks[id] = (struct wm_block){.windowed = true, .holders = 1};
}

static inline void wm_release(struct window_model *m, uint32_t id, bool passed)
{
    struct wm_block *block = &m->blocks[id];

    ASSERT(block->holders > 0);
    if (--block->holders > 0)
        return;
    if (block_pool_tokens(m->pool, id) == 0) {
        *block = (struct wm_block){.windowed = false};
        return;
    }
    block->passed = passed && !block->was_hit;
    block->idle_since = ++m->now;
}

static inline void wm_compare(const struct window_model *m)
{
    struct window_counts counts;
    uint32_t empty = m->total, private_ = 0, shared = 0, cached = 0;

    for (uint32_t id = 0; id < m->blocks_total; id++) {
        const struct wm_block *block = &m->blocks[id];
        uint32_t window = window_of_block(m->pool, id);
        ASSERT((window != BLOCK_NONE) == block->windowed);
        ASSERT(window_is_idle(m->pool, id) == (block->windowed && block->holders == 0));
        for (uint32_t other = 0; other < id && block->windowed; other++)
            ASSERT(window_of_block(m->pool, other) != window);
        empty -= block->windowed;
        cached += block->windowed && block->holders == 0;
        bool published = block_pool_tokens(m->pool, id) > 0;
        private_ += block->holders > 0 && !published;
        shared += block->holders > 0 && published;
    }
    window_get_counts(m->pool, &counts);
    ASSERT(counts.total == m->total && counts.empty == empty && counts.cached == cached);
    ASSERT(counts.private_ == private_ && counts.shared == shared);
    ASSERT(counts.lost_total == m->lost && window_available(m->pool) == wm_available(m));
}

/* --- operations --- */

static inline struct block_hash wm_parent(const struct wm_sequence *seq, uint32_t block)
{
    return block == 0 ? seq->root : seq->hashes[block - 1];
}

static inline const uint32_t *wm_ids(const struct wm_sequence *seq, uint32_t block)
{
    return seq->ids + (size_t)block * BLOCK_TOKENS;
}

/* Take what lies ahead, up to block `end`. */
static inline void wm_cover(struct window_model *m, struct wm_sequence *seq, uint32_t end)
{
    uint32_t from = seq->table.window_end, room = wm_available(m);
    uint32_t count = end <= from ? 0 : end - from < room ? end - from : room;

    for (uint32_t i = from; i < from + count; i++) /* first: on_evict takes what is lost with it */
        wm_take(m, seq->table.ids[i]);
    int r = block_table_cover(&seq->table, m->pool, end);
    ASSERT((r == 0) == (end <= from + count));
    ASSERT(seq->table.window_end == from + count);
}

static inline void wm_slide(struct window_model *m, struct wm_sequence *seq)
{
    uint32_t first = window_first_block(m->tokens, seq->computed), from = seq->table.window_first;

    block_table_slide(&seq->table, m->pool, first);
    for (uint32_t i = first; i-- > from;) {
        wm_release(m, seq->table.ids[i], true);
        m->slid++;
    }
}

/* As sequence.c does it: a published twin without a window block gets ours. */
static inline void wm_mend(struct window_model *m, struct wm_sequence *seq, uint32_t block)
{
    uint32_t own = seq->table.ids[block], twin = block_pool_find(m->pool, seq->hashes[block]);
    uint32_t before = block > 0 ? seq->table.ids[block - 1] : BLOCK_NONE;

    if (twin == BLOCK_NONE || m->blocks[twin].windowed || !m->blocks[own].windowed ||
        !block_pool_holds(m->pool, twin, before, wm_parent(seq, block), wm_ids(seq, block)))
        return;
    block_pool_ref(m->pool, twin);
    window_move(m->pool, own, twin);
    m->blocks[twin] = m->blocks[own];
    m->blocks[own] = (struct wm_block){.windowed = false};
    block_pool_unref(m->pool, &own, 1);
    seq->table.ids[block] = twin;
    m->moved++;
}

/* A chunk is computed: as far as there are window blocks, and sealed. */
static inline void wm_op_compute(struct window_model *m, struct wm_sequence *seq)
{
    uint32_t rows = 1 + wm_draw(m, 3 * BLOCK_TOKENS), full = seq->computed / BLOCK_TOKENS;
    uint32_t end = seq->computed + rows;

    if (end > WM_DEPTH * BLOCK_TOKENS ||
        block_table_grow(&seq->table, m->pool, end) < 0) /* on_evict told of losses */
        return;
    wm_cover(m, seq, seq->table.count);
    if (end > seq->table.window_end * BLOCK_TOKENS)
        end = seq->table.window_end * BLOCK_TOKENS;
    if (end <= seq->computed)
        return;
    seq->computed = end;
    for (; full < end / BLOCK_TOKENS; full++) {
        uint32_t id = seq->table.ids[full];
        block_pool_seal(m->pool, id, wm_parent(seq, full), seq->hashes[full], wm_ids(seq, full),
                        full == 0, BLOCK_TOKENS);
        if (block_pool_state(m->pool, id) == BLOCK_PRIVATE)
            wm_mend(m, seq, full);
    }
    wm_slide(m, seq);
}

static inline void wm_op_drop(struct window_model *m, struct wm_sequence *seq)
{
    uint32_t full = seq->computed / BLOCK_TOKENS, tail = seq->computed % BLOCK_TOKENS;

    if (tail > 0 && wm_draw(m, 4) > 0)
        block_pool_seal_tail(m->pool, seq->table.ids[full], wm_parent(seq, full), wm_ids(seq, full),
                             tail, full == 0, tail);
    for (uint32_t i = seq->table.window_end; i-- > seq->table.window_first;)
        wm_release(m, seq->table.ids[i], false);
    block_table_drop(&seq->table, m->pool);
    seq->computed = 0;
}

/* The longest prefix of found blocks that has its window. */
static inline uint32_t wm_usable(const struct window_model *m, const uint32_t *found,
                                 uint32_t count)
{
    for (uint32_t blocks = count; blocks > 0; blocks--) {
        uint32_t at = window_first_block(m->tokens, blocks * BLOCK_TOKENS);
        while (at < blocks && m->blocks[found[at]].windowed)
            at++;
        if (at == blocks)
            return blocks;
    }
    return 0;
}

/* The same by runs, as admission and leases do it. */
static inline uint32_t wm_by_runs(const struct window_model *m, const uint32_t *found,
                                  uint32_t count)
{
    for (;;) {
        uint32_t run = window_run(m->pool, found, count);
        if (run <= window_first_block(m->tokens, count * BLOCK_TOKENS))
            return count;
        count = run - 1;
    }
}

static inline void wm_hold(struct window_model *m, uint32_t id)
{
    m->blocks[id].holders++;
    m->blocks[id].was_hit = true;
}

/* Drop, choose other ids, adopt what can be used. */
static inline void wm_op_restart(struct window_model *m, struct wm_sequence *seq)
{
    const struct wm_sequence *other = &m->sequences[wm_draw(m, WM_SEQUENCES)];
    uint32_t found[WM_DEPTH], keep = wm_draw(m, WM_DEPTH * BLOCK_TOKENS + 1);

    wm_op_drop(m, seq);
    memmove(seq->ids, other->ids, keep * sizeof(uint32_t));
    for (uint32_t i = keep; i < WM_DEPTH * BLOCK_TOKENS; i++)
        seq->ids[i] = i % 8 == 0 ? wm_draw(m, 2) : 0;
    (void)block_hash_chain(seq->root, seq->ids, (size_t)WM_DEPTH * BLOCK_TOKENS, seq->hashes);
    uint32_t count = block_pool_match_root(m->pool, seq->root, seq->hashes, seq->ids,
                                           wm_draw(m, WM_DEPTH), found);
    uint32_t blocks = wm_usable(m, found, count);
    ASSERT(wm_by_runs(m, found, count) == blocks);
    uint32_t first = window_first_block(m->tokens, blocks * BLOCK_TOKENS);
    block_pool_ref_all(m->pool, found, blocks);
    block_table_adopt(&seq->table, found, blocks);
    block_table_adopt_windows(&seq->table, m->pool, first);
    for (uint32_t i = first; i < blocks; i++)
        wm_hold(m, found[i]);
    seq->computed = blocks * BLOCK_TOKENS;
    m->hits += blocks > 0;
    m->cut += blocks < count;
}

/* Heads are found only where their window block is. */
static inline void wm_op_match(struct window_model *m, const struct wm_sequence *seq)
{
    uint32_t block = wm_draw(m, WM_DEPTH), tokens = 0;
    uint32_t id = block_pool_match_partial(m->pool, wm_parent(seq, block), wm_ids(seq, block),
                                           1 + wm_draw(m, BLOCK_TOKENS), &tokens);

    ASSERT(id == BLOCK_NONE || (m->blocks[id].windowed && tokens > 0));
}

static inline void wm_unpin(struct window_model *m, struct wm_pin *pin)
{
    for (uint32_t i = pin->count; i-- > 0;)
        wm_release(m, pin->blocks[i], false);
    pin->count = 0;
}

static inline void wm_op_pin(struct window_model *m, const struct wm_sequence *seq)
{
    struct block_chain chain = {seq->root, seq->hashes, seq->ids, 1 + wm_draw(m, WM_DEPTH)};
    struct wm_pin *pin = &m->pins[wm_draw(m, WM_PINS)];
    uint32_t scratch[WM_DEPTH], blocks = 0, pinned = 0;

    for (uint32_t i = 0; i < WM_PINS; i++) {
        pinned += m->pins[i].count;
        if (m->pins[i].count > 0 &&
            (pin->count > 0 || block_hash_equal(m->pins[i].last, chain.hashes[chain.count - 1])))
            return; /* replaced leases are pool_model.h's */
    }
    uint32_t found =
        block_pool_match_root(m->pool, chain.root, chain.hashes, chain.ids, chain.count, scratch);
    uint32_t usable = wm_usable(m, scratch, found);
    uint32_t first = window_first_block(m->tokens, usable * BLOCK_TOKENS);
    bool fits = pinned + usable - first <= m->total / 2;
    int r = block_pool_pin(m->pool, &chain, ++m->clock, scratch, &blocks, NULL);
    ASSERT((r == 0) == (usable > 0 && fits));
    if (r < 0)
        return;
    ASSERT(blocks == usable);
    *pin =
        (struct wm_pin){chain.root, chain.hashes[chain.count - 1], {0}, usable - first, m->clock};
    for (uint32_t i = 0; i < pin->count; i++) {
        pin->blocks[i] = scratch[first + i];
        wm_hold(m, pin->blocks[i]);
    }
}

static inline void wm_op_unpin(struct window_model *m)
{
    struct wm_pin *pin = &m->pins[wm_draw(m, WM_PINS)];

    if (pin->count == 0)
        return;
    struct wm_pin was = *pin;
    int r = block_pool_unpin(m->pool, was.root, was.last);
    ASSERT(r == 0);
    wm_unpin(m, pin);
}

static inline void wm_op(struct window_model *m)
{
    struct wm_sequence *seq = &m->sequences[wm_draw(m, WM_SEQUENCES)];
    uint32_t kind = wm_draw(m, 64);

    if (kind < 36)
        wm_op_compute(m, seq);
    else if (kind < 52)
        wm_op_restart(m, seq);
    else if (kind < 56)
        wm_op_match(m, seq);
    else if (kind < 59)
        wm_op_pin(m, seq);
    else if (kind < 62)
        wm_op_unpin(m);
    else if (kind < 63)
        block_pool_reset_cache(m->pool); /* on_evict told of each */
    else
        wm_op_drop(m, seq);
}

static inline void wm_init(struct window_model *m, const struct block_pool_settings *wanted,
                           uint32_t (*draw)(void *user, uint32_t below), void *user)
{
    struct block_pool_settings settings = *wanted;

    ASSERT(wanted->blocks_total <= WM_BLOCKS_MAX);
    memset(m, 0, sizeof(*m));
    m->blocks_total = wanted->blocks_total;
    m->total = wanted->window_blocks;
    m->tokens = wanted->window_tokens;
    m->draw = draw;
    m->user = user;
    settings.events = (struct block_events){
        .on_evict = wm_on_evict, .on_superseded = wm_on_superseded, .tier_user = m};
    for (uint32_t i = 0; i < WM_SEQUENCES; i++) {
        struct wm_sequence *seq = &m->sequences[i];
        seq->root = (struct block_hash){i == 0, 1};
        block_table_init(&seq->table, WM_DEPTH);
        (void)block_hash_chain(seq->root, seq->ids, (size_t)WM_DEPTH * BLOCK_TOKENS, seq->hashes);
    }
    int r = block_pool_new(&settings, &m->pool, NULL);
    ASSERT(r == 0);
}

/* Everybody lets go: nothing may be held then. */
static inline void wm_done(struct window_model *m)
{
    for (uint32_t i = 0; i < WM_SEQUENCES; i++) {
        wm_op_drop(m, &m->sequences[i]);
        block_table_done(&m->sequences[i].table);
    }
    block_pool_expire_pins(m->pool, UINT64_MAX);
    for (uint32_t i = 0; i < WM_PINS; i++) /* the pool ends the earliest first */
        for (uint32_t k = 0; k < WM_PINS; k++)
            m->pins[k].count = 0;
    struct window_counts counts;
    window_get_counts(m->pool, &counts);
    ASSERT(counts.private_ + counts.shared == 0 && counts.empty + counts.cached == counts.total);
    block_pool_check(m->pool);
    block_pool_free(m->pool);
}

#endif
