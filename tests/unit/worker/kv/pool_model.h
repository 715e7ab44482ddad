/* pool_model.h - the block pool as anybody would write it: arrays, scans, no indexes.
 *
 * A driver draws operations as a few sequences would make them (and some that no sequence makes:
 * sealing out of order, holding single blocks), runs each on the pool and on the model, and
 * compares what comes back: ids taken, states, references, matches, counts, events. Of a policy
 * other than LRU the victim may be any cached block without children. Hashes are cut
 * to a few bits where `narrow`, so that collisions are common. Draws come from a generator
 * (property test) or from a fuzzer's bytes. Compared with ASSERT, so that both can use it. */
#ifndef REFRAIN_TESTS_POOL_MODEL_H
#define REFRAIN_TESTS_POOL_MODEL_H

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "worker/kv/block_pool_internal.h"

#define MODEL_BLOCKS_MAX 24u
#define MODEL_SEQUENCES 6u
#define MODEL_DEPTH 8u
#define MODEL_HOLDS 4u
#define MODEL_PINS 3u

struct model_block {
    bool is_free;
    uint32_t refs, tokens, parent_id;
    struct block_hash hash, parent;
    uint32_t ids[BLOCK_TOKENS];
    uint64_t published; /* when: newest first among siblings */
};

struct model_sequence {
    struct block_hash root;
    uint32_t ids[MODEL_DEPTH * BLOCK_TOKENS];
    struct block_hash hashes[MODEL_DEPTH];
    uint32_t table[MODEL_DEPTH];
    uint32_t count;
};

struct model_pin {
    struct block_hash root, last;
    uint64_t expires;
    uint32_t id; /* BLOCK_NONE: no lease */
};

struct pool_model {
    struct block_pool *pool;
    bool caching, narrow, lru;
    uint32_t blocks_total;
    struct model_block blocks[MODEL_BLOCKS_MAX];
    uint32_t free_list[MODEL_BLOCKS_MAX], free_count;
    uint64_t now, evictions, resets, stored, removed, digest;
    struct block_hash told; /* by on_evict of a full block; on_removed must follow */
    uint64_t told_any;      /* tails too */
    struct model_sequence sequences[MODEL_SEQUENCES];
    uint32_t holds[MODEL_HOLDS];
    struct model_pin pins[MODEL_PINS];
    uint32_t pinned_max, pins_broken;
    uint64_t clock, pins_made;
    uint32_t (*draw)(void *user, uint32_t below);
    void *user;
};

static inline uint32_t model_draw(struct pool_model *m, uint32_t below)
{
    return m->draw(m->user, below);
}

static inline bool model_is_held(const struct pool_model *m, uint32_t id)
{
    if (m->blocks[id].refs > 0)
        return true;
    for (uint32_t child = 0; child < m->blocks_total; child++)
        if (m->blocks[child].tokens > 0 && m->blocks[child].parent_id == id &&
            model_is_held(m, child))
            return true;
    return false;
}

static inline enum block_state model_state(const struct pool_model *m, uint32_t id)
{
    if (m->blocks[id].tokens == 0)
        return m->blocks[id].refs > 0 ? BLOCK_PRIVATE : BLOCK_EMPTY;
    return model_is_held(m, id) ? BLOCK_SHARED : BLOCK_CACHED;
}

static inline uint32_t model_find(const struct pool_model *m, struct block_hash hash)
{
    for (uint32_t id = 0; id < m->blocks_total; id++)
        if (m->blocks[id].tokens == BLOCK_TOKENS && block_hash_equal(m->blocks[id].hash, hash))
            return id;
    return BLOCK_NONE;
}

static inline void model_free_remove(struct pool_model *m, uint32_t id)
{
    uint32_t at = 0;

    while (m->free_list[at] != id)
        at++;
    memmove(m->free_list + at, m->free_list + at + 1, (--m->free_count - at) * sizeof(uint32_t));
    m->blocks[id].is_free = false;
}

static inline void model_free_insert(struct pool_model *m, uint32_t id, bool head)
{
    if (head)
        memmove(m->free_list + 1, m->free_list, m->free_count * sizeof(uint32_t));
    m->free_list[head ? 0 : m->free_count] = id;
    m->free_count++;
    m->blocks[id].is_free = true;
}

/* Blocks that are held now leave the free list. */
static inline void model_settle_held(struct pool_model *m)
{
    for (uint32_t id = 0; id < m->blocks_total; id++)
        if (m->blocks[id].is_free && model_is_held(m, id))
            model_free_remove(m, id);
}

static inline void model_ref(struct pool_model *m, uint32_t id)
{
    m->blocks[id].refs++;
    model_settle_held(m);
}

static inline void model_unref(struct pool_model *m, uint32_t id)
{
    m->blocks[id].refs--;
    while (id != BLOCK_NONE && !m->blocks[id].is_free && !model_is_held(m, id)) {
        model_free_insert(m, id, m->blocks[id].tokens == 0);
        id = m->blocks[id].tokens > 0 ? m->blocks[id].parent_id : BLOCK_NONE;
    }
}

static inline void model_forget(struct pool_model *m, uint32_t id)
{
    struct model_block *block = &m->blocks[id];

    for (uint32_t child = 0; child < m->blocks_total; child++)
        ASSERT(m->blocks[child].tokens == 0 || m->blocks[child].parent_id != id);
    if (block->tokens == BLOCK_TOKENS) {
        m->removed--; /* on_removed was told */
        m->digest ^= block->hash.low;
    }
    block->tokens = 0;
    block->parent_id = BLOCK_NONE;
}

static inline void model_forget_tree(struct pool_model *m, uint32_t id)
{
    for (uint32_t child = 0; child < m->blocks_total; child++)
        if (m->blocks[child].tokens > 0 && m->blocks[child].parent_id == id)
            model_forget_tree(m, child);
    model_forget(m, id);
}

static inline uint32_t model_common(const struct model_block *block, const uint32_t *ids,
                                    uint32_t count)
{
    uint32_t n = 0;

    while (n < count && n < block->tokens && block->ids[n] == ids[n])
        n++;
    return n;
}

static inline void model_supersede(struct pool_model *m, struct block_hash parent,
                                   const uint32_t *ids, uint32_t count)
{
    for (uint64_t when = m->now; when > 0; when--)
        for (uint32_t id = 0; id < m->blocks_total; id++) {
            struct model_block *block = &m->blocks[id];
            if (block->published != when || block->tokens == 0 || block->tokens == BLOCK_TOKENS ||
                model_is_held(m, id) || !block_hash_equal(block->parent, parent) ||
                model_common(block, ids, count) < block->tokens)
                continue;
            model_forget(m, id);
            model_free_remove(m, id);
            model_free_insert(m, id, true);
        }
}

static inline uint32_t model_partial(const struct pool_model *m, struct block_hash parent,
                                     const uint32_t *ids, uint32_t count, uint32_t *ret_tokens)
{
    uint32_t best = BLOCK_NONE, best_tokens = 0, parent_id = model_find(m, parent);

    for (uint32_t id = 0; id < m->blocks_total; id++) {
        const struct model_block *block = &m->blocks[id];
        if (block->tokens == 0 || !block_hash_equal(block->parent, parent) ||
            block->parent_id != parent_id)
            continue;
        uint32_t common = model_common(block, ids, count);
        if (common > best_tokens ||
            (common > 0 && common == best_tokens && block->published > m->blocks[best].published)) {
            best = id;
            best_tokens = common;
        }
    }
    *ret_tokens = best_tokens;
    return best;
}

/* Renumber publication times, so that model_supersede() stays short. */
static inline void model_renumber(struct pool_model *m)
{
    uint64_t rank[MODEL_BLOCKS_MAX];

    for (uint32_t a = 0; a < m->blocks_total; a++) {
        rank[a] = 1;
        for (uint32_t b = 0; b < m->blocks_total; b++)
            rank[a] += m->blocks[b].published < m->blocks[a].published;
    }
    for (uint32_t a = 0; a < m->blocks_total; a++)
        m->blocks[a].published = rank[a];
    m->now = m->blocks_total + 1;
}

static inline void model_publish(struct pool_model *m, uint32_t id, struct block_hash parent,
                                 struct block_hash hash, const uint32_t *ids, uint32_t tokens,
                                 bool first)
{
    struct model_block *block = &m->blocks[id];
    uint32_t parent_id = first ? BLOCK_NONE : model_find(m, parent), common;

    if (!m->caching || (!first && parent_id == BLOCK_NONE))
        return;
    if (tokens == BLOCK_TOKENS && model_find(m, hash) != BLOCK_NONE)
        return;
    if (tokens < BLOCK_TOKENS && model_partial(m, parent, ids, tokens, &common) != BLOCK_NONE &&
        common == tokens)
        return;
    model_supersede(m, parent, ids, tokens);
    model_renumber(m);
    block->published = ++m->now;
    block->tokens = tokens;
    block->parent = parent;
    block->parent_id = parent_id;
    block->hash = hash;
    memcpy(block->ids, ids, tokens * sizeof(*ids));
    if (tokens == BLOCK_TOKENS) {
        m->stored--;
        m->digest ^= hash.low;
    }
    model_settle_held(m);
}

/* Blocks that leases hold: up from each one's last block. */
static inline uint32_t model_pinned(const struct pool_model *m)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < MODEL_PINS; i++)
        for (uint32_t at = m->pins[i].id; at != BLOCK_NONE; at = m->blocks[at].parent_id)
            mask |= 1u << at;
    return (uint32_t)__builtin_popcount(mask);
}

static inline void model_compare(struct pool_model *m)
{
    struct block_counts counts;
    uint32_t states[4] = {0};

    for (uint32_t id = 0; id < m->blocks_total; id++) {
        ASSERT(block_pool_state(m->pool, id) == model_state(m, id));
        ASSERT(block_pool_refs(m->pool, id) == m->blocks[id].refs);
        ASSERT(block_pool_tokens(m->pool, id) == m->blocks[id].tokens);
        states[model_state(m, id)]++;
    }
    block_pool_counts(m->pool, &counts);
    ASSERT(counts.empty == states[BLOCK_EMPTY] && counts.private_ == states[BLOCK_PRIVATE]);
    ASSERT(counts.shared == states[BLOCK_SHARED] && counts.cached == states[BLOCK_CACHED]);
    ASSERT(counts.pinned == model_pinned(m) && counts.pins_broken_total == m->pins_broken);
    ASSERT(counts.evictions_total == m->evictions && counts.lost[BLOCK_LOST_RESET] == m->resets);
    ASSERT(m->told_any == m->evictions + m->resets);
    ASSERT(block_pool_available(m->pool) == m->free_count);
    ASSERT(block_pool_digest(m->pool) == m->digest);
    ASSERT(m->stored == 0 && m->removed == 0); /* each event was expected */
}

/* --- the driver --- */

static inline struct block_hash model_hash(const struct pool_model *m, struct block_hash parent,
                                           const uint32_t *ids)
{
    struct block_hash hash = block_hash_next(parent, ids);

    if (m->narrow)
        hash = (struct block_hash){.low = hash.low % 7, .high = 1};
    return hash;
}

static inline void model_rehash(struct pool_model *m, struct model_sequence *seq)
{
    struct block_hash parent = seq->root;

    for (uint32_t i = 0; i < MODEL_DEPTH; i++)
        seq->hashes[i] = parent = model_hash(m, parent, seq->ids + i * BLOCK_TOKENS);
}

static inline struct block_hash model_parent(const struct model_sequence *seq, uint32_t i)
{
    return i == 0 ? seq->root : seq->hashes[i - 1];
}

static inline void model_op_seal(struct pool_model *m, struct model_sequence *seq)
{
    if (seq->count == 0)
        return;
    uint32_t i = model_draw(m, seq->count), id = seq->table[i];
    const uint32_t *ids = seq->ids + i * BLOCK_TOKENS;
    if (model_state(m, id) != BLOCK_PRIVATE)
        return;
    struct block_hash parent = model_parent(seq, i);
    if (model_draw(m, 4) == 0) {
        uint32_t tokens = 1 + model_draw(m, BLOCK_TOKENS - 1);
        block_pool_seal_tail(m->pool, id, parent, ids, tokens, i == 0, model_draw(m, tokens + 1));
        model_publish(m, id, parent, parent, ids, tokens, i == 0);
        return;
    }
    block_pool_seal(m->pool, id, parent, seq->hashes[i], ids, i == 0,
                    model_draw(m, 2) * model_draw(m, BLOCK_TOKENS + 1));
    model_publish(m, id, parent, seq->hashes[i], ids, BLOCK_TOKENS, i == 0);
}

static inline void model_op_take(struct pool_model *m, struct model_sequence *seq)
{
    uint32_t ids[MODEL_DEPTH], count = 1 + model_draw(m, 3);

    if (count > MODEL_DEPTH - seq->count)
        return;
    int r = block_pool_take(m->pool, count, ids);
    ASSERT(r == (count <= m->free_count ? 0 : -ENOSPC));
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        uint32_t id = ids[i];
        ASSERT(id == m->free_list[0] || (!m->lru && m->blocks[m->free_list[0]].tokens > 0));
        if (m->blocks[id].tokens > 0) {
            ASSERT(m->blocks[id].is_free);
            m->evictions++;
            model_forget(m, id);
        }
        model_free_remove(m, id);
        m->blocks[id].refs = 1;
        seq->table[seq->count++] = id;
    }
}

static inline void model_op_drop(struct pool_model *m, struct model_sequence *seq)
{
    block_pool_unref(m->pool, seq->table, seq->count);
    while (seq->count > 0)
        model_unref(m, seq->table[--seq->count]);
}

static inline uint32_t model_match(const struct pool_model *m, const struct model_sequence *seq,
                                   uint32_t *ret_ids)
{
    uint32_t before = BLOCK_NONE;

    for (uint32_t i = 0; i < MODEL_DEPTH; i++) {
        uint32_t id = model_find(m, seq->hashes[i]);
        if (id == BLOCK_NONE || m->blocks[id].parent_id != before ||
            model_common(&m->blocks[id], seq->ids + i * BLOCK_TOKENS, BLOCK_TOKENS) < BLOCK_TOKENS)
            return i;
        ret_ids[i] = before = id;
    }
    return MODEL_DEPTH;
}

/* Drop, choose other ids, adopt what is found. */
static inline void model_op_restart(struct pool_model *m, struct model_sequence *seq)
{
    const struct model_sequence *other = &m->sequences[model_draw(m, MODEL_SEQUENCES)];
    uint32_t found[MODEL_DEPTH], expected[MODEL_DEPTH], tokens = 0, expected_tokens;
    uint32_t keep = model_draw(m, MODEL_DEPTH * BLOCK_TOKENS);

    model_op_drop(m, seq);
    seq->root = model_draw(m, 4) ? other->root : (struct block_hash){model_draw(m, 2), 1};
    memmove(seq->ids, other->ids, keep * sizeof(uint32_t));
    for (uint32_t i = keep; i < MODEL_DEPTH * BLOCK_TOKENS; i++)
        seq->ids[i] = i % 5 == 0 ? model_draw(m, 2) : 0;
    model_rehash(m, seq);
    uint32_t count = block_pool_match(m->pool, seq->hashes, seq->ids, MODEL_DEPTH, found);
    ASSERT(count == model_match(m, seq, expected));
    ASSERT(memcmp(found, expected, count * sizeof(uint32_t)) == 0);
    uint32_t rooted =
        block_pool_match_root(m->pool, seq->root, seq->hashes, seq->ids, MODEL_DEPTH, found);
    ASSERT(rooted == 0 || rooted == count);
    if (count > 0)
        ASSERT((rooted > 0) == block_hash_equal(m->blocks[expected[0]].parent, seq->root));
    if (count < MODEL_DEPTH) {
        const uint32_t *ids = seq->ids + count * BLOCK_TOKENS;
        uint32_t id = block_pool_match_partial(m->pool, model_parent(seq, count), ids,
                                               BLOCK_TOKENS - count % 2, &tokens);
        ASSERT(id == model_partial(m, model_parent(seq, count), ids, BLOCK_TOKENS - count % 2,
                                   &expected_tokens));
        ASSERT(tokens == expected_tokens);
    }
    const struct block_admission admission = {.root = seq->root,
                                              .hashes = seq->hashes,
                                              .ids = seq->ids,
                                              .found = found,
                                              .hashes_count = MODEL_DEPTH,
                                              .tokens = MODEL_DEPTH * BLOCK_TOKENS,
                                              .found_count = rooted};
    block_pool_note_admission(m->pool, &admission);
    count = model_draw(m, count + 1);
    block_pool_ref_all(m->pool, found, count);
    for (uint32_t i = 0; i < count; i++)
        model_ref(m, seq->table[seq->count++] = found[i]);
}

static inline void model_op_hold(struct pool_model *m)
{
    uint32_t slot = model_draw(m, MODEL_HOLDS), id = model_draw(m, m->blocks_total);

    if (m->holds[slot] != BLOCK_NONE) {
        block_pool_unref(m->pool, &m->holds[slot], 1);
        model_unref(m, m->holds[slot]);
        m->holds[slot] = BLOCK_NONE;
    } else if (model_state(m, id) != BLOCK_EMPTY) {
        block_pool_ref(m->pool, id);
        model_ref(m, id);
        m->holds[slot] = id;
    }
}

static inline void model_unpin(struct pool_model *m, struct model_pin *pin)
{
    uint32_t id = pin->id;

    pin->id = BLOCK_NONE;
    model_unref(m, id);
}

static inline struct model_pin *model_find_pin(struct pool_model *m, struct block_hash root,
                                               struct block_hash last)
{
    for (uint32_t i = 0; i < MODEL_PINS; i++)
        if (m->pins[i].id != BLOCK_NONE && block_hash_equal(m->pins[i].root, root) &&
            block_hash_equal(m->pins[i].last, last))
            return &m->pins[i];
    return NULL;
}

static inline void model_op_pin(struct pool_model *m, const struct model_sequence *seq)
{
    struct block_chain chain = {seq->root, seq->hashes, seq->ids, 1 + model_draw(m, MODEL_DEPTH)};
    struct model_pin *pin = model_find_pin(m, chain.root, chain.hashes[chain.count - 1]);
    uint32_t scratch[MODEL_DEPTH], expected[MODEL_DEPTH], blocks = 0;
    uint64_t expires = (m->clock + model_draw(m, 8)) * 1024 + m->pins_made % 1024; /* unique */

    for (uint32_t i = 0; i < MODEL_PINS && pin == NULL; i++)
        if (m->pins[i].id == BLOCK_NONE)
            pin = &m->pins[i];
    if (pin == NULL)
        return; /* PINS_MAX has a test of its own */
    uint32_t found = model_match(m, seq, expected);
    if (found > chain.count)
        found = chain.count;
    if (found > 0 && !block_hash_equal(m->blocks[expected[0]].parent, seq->root))
        found = 0;
    struct model_pin before = *pin;
    if (found > 0)
        pin->id = expected[found - 1];
    bool fits = model_pinned(m) <= m->pinned_max;
    *pin = before;
    int r = block_pool_pin(m->pool, &chain, expires, scratch, &blocks, NULL);
    ASSERT(r == (found == 0 ? -ENOENT : fits ? 0 : -ENOSPC));
    if (r < 0)
        return;
    m->pins_made++;
    ASSERT(blocks == found);
    *pin =
        (struct model_pin){chain.root, chain.hashes[chain.count - 1], expires, expected[found - 1]};
    model_ref(m, pin->id);
    if (before.id != BLOCK_NONE)
        model_unref(m, before.id);
}

static inline struct model_pin *model_first_pin(struct pool_model *m)
{
    struct model_pin *first = NULL;

    for (uint32_t i = 0; i < MODEL_PINS; i++)
        if (m->pins[i].id != BLOCK_NONE && (first == NULL || m->pins[i].expires < first->expires))
            first = &m->pins[i];
    return first;
}

/* Time passes, a lease is given back, or one is broken. */
static inline void model_op_unpin(struct pool_model *m)
{
    struct model_pin *pin = &m->pins[model_draw(m, MODEL_PINS)];
    uint32_t kind = model_draw(m, 8);

    struct model_pin *first = model_first_pin(m);
    if (kind < 4) {
        m->clock++;
        block_pool_expire_pins(m->pool, m->clock * 1024);
        for (; first != NULL && first->expires <= m->clock * 1024; first = model_first_pin(m))
            model_unpin(m, first);
    } else if (kind < 7) {
        const struct model_pin wanted = *pin; /* perhaps over by now */
        pin = model_find_pin(m, wanted.root, wanted.last);
        int r = block_pool_unpin(m->pool, wanted.root, wanted.last);
        ASSERT(r == (pin == NULL ? -ENOENT : 0));
        if (r == 0)
            model_unpin(m, pin);
    } else {
        ASSERT(block_pool_break_pin(m->pool) == (first != NULL));
        if (first == NULL)
            return;
        m->pins_broken++;
        model_unpin(m, first);
    }
}

static inline void model_op_reset(struct pool_model *m)
{
    block_pool_reset_cache(m->pool);
    for (uint32_t i = 0; i < m->free_count; i++)
        if (m->blocks[m->free_list[i]].tokens > 0)
            m->resets++;
    for (uint32_t id = 0; id < m->blocks_total; id++)
        if (m->blocks[id].is_free && m->blocks[id].tokens > 0)
            model_forget_tree(m, id);
    m->free_count = 0; /* in which order they are empty now is nobody's business */
    for (uint32_t id = m->pool->empty.head; id != BLOCK_NONE; id = m->pool->blocks[id].next) {
        ASSERT(m->blocks[id].is_free);
        model_free_insert(m, id, false);
    }
}

static inline void model_op(struct pool_model *m)
{
    struct model_sequence *seq = &m->sequences[model_draw(m, MODEL_SEQUENCES)];
    uint32_t kind = model_draw(m, 256);

    if (kind < 110)
        model_op_seal(m, seq);
    else if (kind < 180)
        model_op_take(m, seq);
    else if (kind < 225)
        model_op_restart(m, seq);
    else if (kind < 240)
        model_op_hold(m);
    else if (kind < 248)
        model_op_pin(m, seq);
    else if (kind < 255)
        model_op_unpin(m);
    else
        model_op_reset(m);
}

static inline void model_on_stored(void *user, struct block_hash parent, struct block_hash hash,
                                   const uint32_t *ids)
{
    struct pool_model *m = user;
    ASSERT(block_hash_equal(hash, model_hash(m, parent, ids)));
    m->stored++;
}

static inline void model_on_removed(void *user, struct block_hash hash)
{
    struct pool_model *m = user;
    ASSERT(model_find(m, hash) != BLOCK_NONE);
    ASSERT(block_hash_equal(hash, m->told));
    m->removed++;
}

static inline void model_on_evict(void *user, const struct block_evicted *evicted)
{
    struct pool_model *m = user;
    const struct model_block *block = &m->blocks[evicted->id];

    ASSERT(block->tokens == evicted->tokens && block->refs == 0);
    ASSERT(block_hash_equal(evicted->parent, block->parent));
    ASSERT(evicted->first == (block->parent_id == BLOCK_NONE));
    ASSERT(memcmp(evicted->ids, block->ids, evicted->tokens * sizeof(*block->ids)) == 0);
    m->told_any++;
    if (evicted->tokens < BLOCK_TOKENS)
        return;
    ASSERT(block_hash_equal(evicted->hash, block->hash));
    m->told = evicted->hash;
}

static inline void model_init(struct pool_model *m, const struct block_pool_settings *wanted,
                              bool narrow, uint32_t (*draw)(void *user, uint32_t below), void *user)
{
    struct block_pool_settings settings = *wanted;
    uint32_t blocks_total = wanted->blocks_total;

    ASSERT(blocks_total <= MODEL_BLOCKS_MAX);
    memset(m, 0, sizeof(*m));
    m->caching = wanted->prefix_caching;
    m->narrow = narrow;
    m->lru = wanted->eviction == &eviction_lru;
    m->blocks_total = blocks_total;
    settings.events = (struct block_events){.on_stored = model_on_stored,
                                            .on_removed = model_on_removed,
                                            .on_evict = model_on_evict,
                                            .user = m,
                                            .tier_user = m};
    m->draw = draw;
    m->user = user;
    for (uint32_t id = 0; id < blocks_total; id++) {
        m->blocks[id].parent_id = BLOCK_NONE;
        model_free_insert(m, id, false);
    }
    for (uint32_t i = 0; i < MODEL_HOLDS; i++)
        m->holds[i] = BLOCK_NONE;
    for (uint32_t i = 0; i < MODEL_PINS; i++)
        m->pins[i].id = BLOCK_NONE;
    m->pinned_max = wanted->pinned_blocks_max;
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++)
        model_rehash(m, &m->sequences[i]);
    int r = block_pool_new(&settings, &m->pool, NULL);
    ASSERT(r == 0);
}

/* Everybody lets go: nothing may be referenced then. */
static inline void model_done(struct pool_model *m)
{
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++)
        model_op_drop(m, &m->sequences[i]);
    for (uint32_t i = 0; i < MODEL_HOLDS; i++) {
        if (m->holds[i] == BLOCK_NONE)
            continue;
        block_pool_unref(m->pool, &m->holds[i], 1);
        model_unref(m, m->holds[i]);
    }
    block_pool_expire_pins(m->pool, UINT64_MAX);
    for (struct model_pin *pin = model_first_pin(m); pin != NULL; pin = model_first_pin(m))
        model_unpin(m, pin);
    model_compare(m);
    ASSERT(block_pool_available(m->pool) == m->blocks_total);
    block_pool_check(m->pool);
    block_pool_free(m->pool);
}

#endif
