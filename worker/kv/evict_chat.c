/* evict_chat.c - the block that is worth the least: hits to expect per time that it is kept.
 *
 *                  kind: abandoned  fresh  often ... rare  shared ...
 *   age slot, newest      [ ]        [ ]     [b]      [ ]    [b]     lists of CACHED blocks
 *                         [b]        [b]     [ ]      [b]    [ ]     without children
 *            oldest       [ ]        [ ]     [b]      [b]    [ ]     victim: a list of least worth
 *
 * The worth of a kind at an age is learnt from when its blocks are asked for again (reuse_age.h).
 * A block is
 *   abandoned  a prompt went on otherwise behind the beginning of an answer: an edited or repeated
 *              turn, thinking that the template dropped. Nothing is expected of it until such
 * blocks are asked for after all, as where agents fork. fresh      of a request that nobody has
 * continued: a one-shot, as far as is known. often, sometimes, seldom, rare    of a chat, by the
 * admissions between its last two turns. shared     with several continuations before any answer: a
 * system prompt. What was lost stays known by its hash for a while, so that a request that comes
 * for it teaches what would have been worth keeping: without it, nothing lost could ever prove its
 * worth.
 *
 * Why per list and not per block: blocks of one kind and age have one worth, so a victim is found
 * among at most a few hundred lists, and a choice is good until the next admission. A chat is eaten
 * from its tail: the parent of a lost block takes its place in front of its list.
 * Cost: O(1) per block; an admission counts all lists once and works one kind out anew (~3 us in
 * all); memory 20 bytes a block, 16 a ghost. Invariants: check(). */
#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/age_slots.h"
#include "worker/kv/block_pool_internal.h"
#include "worker/kv/ghosts.h"
#include "worker/kv/reuse_age.h"

#define ANSWER_SLACK 3u /* tokens of the generation prompt that a template may change */
#define SIBLINGS_MAX 64u
#define LISTS (AGE_SLOTS * REUSE_KINDS)
#define NO_LIST UINT32_MAX

struct link {
    uint32_t prev, next;
};

struct chat_block {
    uint32_t used; /* when it was let go */
    uint8_t kind;
    uint8_t answer_at; /* first token that was generated here or before; BLOCK_TOKENS: none */
    bool branches;     /* had two continuations at once */
    bool abandoned, listed;
};

struct chat {
    struct chat_block *blocks;
    struct link *links; /* of blocks, then a sentinel per list: rings, oldest first */
    uint32_t waiting[AGE_SLOTS][REUSE_KINDS]; /* CACHED blocks and ghosts */
    struct age_slots slots;
    struct reuse_ages ages;
    struct ghosts ghosts;
    uint32_t best; /* the list of least worth; NO_LIST: look */
    float best_worth;
    uint32_t blocks_total;
};

static uint32_t list_of(uint32_t slot, uint32_t kind)
{
    return slot * REUSE_KINDS + kind;
}

static uint32_t sentinel(const struct chat *chat, uint32_t list)
{
    return chat->blocks_total + list;
}

static bool is_empty(const struct chat *chat, uint32_t list)
{
    return chat->links[sentinel(chat, list)].next == sentinel(chat, list);
}

static void unlist(struct chat *chat, uint32_t id)
{
    struct link *link = &chat->links[id];

    chat->links[link->prev].next = link->next;
    chat->links[link->next].prev = link->prev;
    chat->blocks[id].listed = false;
}

/* The next chance to be asked for is one admission on. */
static float worth_of(const struct chat *chat, uint32_t kind, uint32_t time)
{
    return reuse_worth(&chat->ages, kind, reuse_bin(chat->slots.now - time + 1));
}

/* In front of its list: it follows a child that was lost, or is the newest of its age. */
static void enlist(struct chat *chat, uint32_t id, bool front)
{
    struct chat_block *block = &chat->blocks[id];
    uint32_t list = list_of(age_slot_of(&chat->slots, block->used), block->kind);
    uint32_t at = sentinel(chat, list);

    ASSERT(!block->listed);
    if (front)
        at = chat->links[at].next;
    chat->links[id] = (struct link){.prev = chat->links[at].prev, .next = at};
    chat->links[chat->links[at].prev].next = id;
    chat->links[at].prev = id;
    block->listed = true;
    if (chat->best != NO_LIST && worth_of(chat, block->kind, block->used) < chat->best_worth)
        chat->best = NO_LIST;
}

static uint32_t *waiting_of(struct chat *chat, uint32_t kind, uint32_t used)
{
    return &chat->waiting[age_slot_of(&chat->slots, used)][kind];
}

static void stop_waiting(struct chat *chat, uint32_t kind, uint32_t used)
{
    uint32_t *waiting = waiting_of(chat, kind, used);

    ASSERT(*waiting > 0);
    --*waiting;
}

/* --- time --- */

/* All of `from` is older: it goes in front. */
static void merge(void *user, uint32_t into, uint32_t from)
{
    struct chat *chat = user;

    for (uint32_t kind = 0; kind < REUSE_KINDS; kind++) {
        uint32_t to = sentinel(chat, list_of(into, kind));
        uint32_t of = sentinel(chat, list_of(from, kind));
        chat->waiting[into][kind] += chat->waiting[from][kind];
        chat->waiting[from][kind] = 0;
        if (chat->links[of].next == of)
            continue;
        chat->links[chat->links[of].prev].next = chat->links[to].next;
        chat->links[chat->links[to].next].prev = chat->links[of].prev;
        chat->links[chat->links[of].next].prev = to;
        chat->links[to].next = chat->links[of].next;
        chat->links[of] = (struct link){of, of};
    }
}

static void tick(struct chat *chat)
{
    age_slots_tick(&chat->slots, merge, chat);
    chat->best = NO_LIST;
    for (uint32_t level = 0; level < AGE_LEVELS; level++)
        for (uint32_t i = 0; i < chat->slots.levels[level].count; i++) {
            const uint32_t *waiting = chat->waiting[age_slot_at(&chat->slots, level, i)];
            uint32_t time = age_slot_time(&chat->slots, level, i);
            uint32_t bin = reuse_bin(chat->slots.now - time);
            for (uint32_t kind = 0; kind < REUSE_KINDS; kind++)
                reuse_expose(&chat->ages, kind, bin, waiting[kind]);
        }
    reuse_learn(&chat->ages);
}

/* --- kinds --- */

static uint8_t kind_by_age(uint32_t age)
{
    if (age <= 8)
        return REUSE_OFTEN;
    if (age <= 64)
        return REUSE_SOMETIMES;
    return age <= 512 ? REUSE_SELDOM : REUSE_RARE;
}

static bool is_chat(uint8_t kind)
{
    return kind >= REUSE_OFTEN && kind <= REUSE_RARE;
}

static bool is_private(const struct chat_block *block)
{
    return block->answer_at < BLOCK_TOKENS;
}

static void on_published(struct block_pool *pool, uint32_t id, uint32_t prompt_tokens)
{
    struct chat *chat = pool->eviction_state;
    struct chat_block *block = &chat->blocks[id];
    uint32_t parent_id = pool->blocks[id].parent_id;

    *block = (struct chat_block){
        .kind = REUSE_FRESH,
        .answer_at =
            (uint8_t)(prompt_tokens < pool->blocks[id].tokens ? prompt_tokens : BLOCK_TOKENS),
    };
    bool answer = prompt_tokens == 0;
    if (answer)
        block->kind = REUSE_FRESH_ANSWER;
    if (parent_id == BLOCK_NONE)
        return;
    struct chat_block *parent = &chat->blocks[parent_id];
    if (is_private(parent))
        block->answer_at = 0;
    else if (pool->blocks[parent_id].children > 1)
        parent->branches = true;
    if (parent->branches)
        return;
    if (parent->kind == REUSE_CHAT_ANSWER || is_chat(parent->kind))
        block->kind = answer ? REUSE_CHAT_ANSWER : parent->kind;
}

static void on_cached(struct block_pool *pool, uint32_t id)
{
    struct chat *chat = pool->eviction_state;
    struct chat_block *block = &chat->blocks[id];

    block->used = chat->slots.now;
    if (block->abandoned)
        block->kind = REUSE_ABANDONED;
    else if (block->branches)
        block->kind = REUSE_SHARED;
    ++*waiting_of(chat, block->kind, block->used);
    if (pool->blocks[id].children == 0)
        enlist(chat, id, false);
}

static void on_leaf(struct block_pool *pool, uint32_t id)
{
    enlist(pool->eviction_state, id, true);
}

static void on_held(struct block_pool *pool, uint32_t id)
{
    struct chat *chat = pool->eviction_state;
    struct chat_block *block = &chat->blocks[id];
    uint32_t age = chat->slots.now - block->used;

    if (block->listed)
        unlist(chat, id);
    stop_waiting(chat, block->kind, block->used);
    if (block->abandoned)
        return; /* its head is copied for the other way on */
    reuse_ask(&chat->ages, block->kind, age);
    block->kind = kind_by_age(age);
}

static void on_gone(struct block_pool *pool, uint32_t id, enum block_loss why)
{
    struct chat *chat = pool->eviction_state;
    struct chat_block *block = &chat->blocks[id];
    struct ghost forgotten;

    if (block->listed)
        unlist(chat, id);
    if (pool->blocks[id].tokens < BLOCK_TOKENS || why >= BLOCK_LOST_RESET) {
        stop_waiting(chat, block->kind, block->used);
        return;
    }
    const struct ghost ghost = {pool->blocks[id].hash.low, block->used, block->kind};
    if (ghosts_add(&chat->ghosts, &ghost, &forgotten))
        stop_waiting(chat, forgotten.kind, forgotten.used);
}

/* --- admissions --- */

/* Blocks that the request wants and that were lost. Those before them went later, so the first that
 * is not known ends it. */
static void ask_ghosts(struct chat *chat, const struct block_admission *admission)
{
    struct ghost ghost;

    for (uint32_t i = admission->found_count; i < admission->hashes_count; i++) {
        if (!ghosts_take(&chat->ghosts, admission->hashes[i].low, &ghost))
            return;
        stop_waiting(chat, ghost.kind, ghost.used);
        reuse_ask(&chat->ages, ghost.kind, chat->slots.now - ghost.used);
    }
}

static void abandon_one(struct chat *chat, uint32_t id)
{
    struct chat_block *block = &chat->blocks[id];
    bool listed = block->listed;

    if (block->abandoned)
        return;
    if (listed)
        unlist(chat, id);
    stop_waiting(chat, block->kind, block->used);
    block->abandoned = true;
    block->kind = REUSE_ABANDONED;
    ++*waiting_of(chat, block->kind, block->used);
    if (listed)
        enlist(chat, id, false);
}

/* The next of a list of siblings that is a child of the block; a colliding root may have others. */
static uint32_t child_from(const struct block_pool *pool, uint32_t at, uint32_t parent_id)
{
    while (at != BLOCK_NONE && pool->blocks[at].parent_id != parent_id)
        at = pool->blocks[at].older;
    return at;
}

/* The block, which is CACHED, and all that hangs under it: CACHED too. */
static void abandon(struct block_pool *pool, uint32_t top)
{
    uint32_t at = top;

    for (;;) {
        const struct block *block = &pool->blocks[at];
        uint32_t next = BLOCK_NONE;
        abandon_one(pool->eviction_state, at);
        if (block->children > 0)
            next = child_from(pool, hash_index_find(&pool->by_parent, block->hash), at);
        while (next == BLOCK_NONE && at != top) {
            next = child_from(pool, pool->blocks[at].older, pool->blocks[at].parent_id);
            if (next == BLOCK_NONE)
                at = pool->blocks[at].parent_id;
        }
        if (next == BLOCK_NONE)
            return;
        at = next;
    }
}

/* Children of the last block found with which the request does not go on, from their answers on. */
static void abandon_others(struct block_pool *pool, const struct block_admission *admission)
{
    struct chat *chat = pool->eviction_state;
    uint32_t done = admission->found_count * BLOCK_TOKENS;
    uint32_t rest = admission->tokens - done;
    uint32_t parent_id =
        admission->found_count > 0 ? admission->found[admission->found_count - 1] : BLOCK_NONE;
    struct block_hash parent =
        parent_id == BLOCK_NONE ? admission->root : pool->blocks[parent_id].hash;
    uint32_t at = hash_index_find(&pool->by_parent, parent);

    for (uint32_t n = 0; at != BLOCK_NONE && n < SIBLINGS_MAX; n++) {
        const struct block *block = &pool->blocks[at];
        uint32_t older = block->older, limit = block->tokens < rest ? block->tokens : rest;
        uint32_t common = block_common_tokens(block, admission->ids + done, rest);
        if (block->parent_id == parent_id && block->state == BLOCK_CACHED && common < limit &&
            is_private(&chat->blocks[at]) && common + ANSWER_SLACK >= chat->blocks[at].answer_at)
            abandon(pool, at);
        at = older;
    }
}

static void on_admission(struct block_pool *pool, const struct block_admission *admission)
{
    struct chat *chat = pool->eviction_state;

    tick(chat);
    for (uint32_t i = 0; i < admission->found_count; i++)
        chat->blocks[admission->found[i]].abandoned = false;
    ask_ghosts(chat, admission);
    abandon_others(pool, admission);
}

/* --- victims --- */

static void find_best(struct chat *chat)
{
    for (uint32_t level = AGE_LEVELS; level-- > 0;)
        for (uint32_t i = 0; i < chat->slots.levels[level].count; i++) {
            uint32_t slot = age_slot_at(&chat->slots, level, i);
            uint32_t time = age_slot_time(&chat->slots, level, i);
            for (uint32_t kind = 0; kind < REUSE_KINDS; kind++) {
                if (is_empty(chat, list_of(slot, kind)))
                    continue;
                float worth = worth_of(chat, kind, time);
                if (chat->best != NO_LIST && worth >= chat->best_worth)
                    continue; /* the same: the older one */
                chat->best = list_of(slot, kind);
                chat->best_worth = worth;
            }
        }
}

static uint32_t victim(struct block_pool *pool, enum block_loss *ret_why)
{
    struct chat *chat = pool->eviction_state;

    if (chat->best == NO_LIST || is_empty(chat, chat->best)) {
        chat->best = NO_LIST;
        find_best(chat);
    }
    ASSERT(chat->best != NO_LIST);
    uint32_t id = chat->links[sentinel(chat, chat->best)].next;
    if (chat->blocks[id].kind == REUSE_ABANDONED)
        *ret_why = BLOCK_LOST_ABANDONED;
    else if (chat->blocks[id].kind == REUSE_FRESH || chat->blocks[id].kind == REUSE_FRESH_ANSWER)
        *ret_why = BLOCK_LOST_ONE_SHOT;
    return id;
}

/* --- memory, checks --- */

static int init(struct block_pool *pool)
{
    struct chat *chat = mem_zalloc(sizeof(*chat));
    void *blocks, *links;

    pool->eviction_state = chat;
    chat->blocks_total = pool->blocks_total;
    chat->best = NO_LIST;
    age_slots_init(&chat->slots);
    reuse_ages_init(&chat->ages);
    if (mem_map(pool->blocks_total * sizeof(*chat->blocks), &blocks) < 0)
        return -ENOMEM;
    chat->blocks = blocks;
    if (mem_map((pool->blocks_total + LISTS) * sizeof(*chat->links), &links) < 0)
        return -ENOMEM;
    chat->links = links;
    for (uint32_t list = 0; list < LISTS; list++) {
        uint32_t at = sentinel(chat, list);
        chat->links[at] = (struct link){at, at};
    }
    return ghosts_init(&chat->ghosts, pool->blocks_total);
}

static void done(struct block_pool *pool)
{
    struct chat *chat = pool->eviction_state;

    ghosts_done(&chat->ghosts);
    if (chat->links != NULL)
        mem_unmap(chat->links, (chat->blocks_total + LISTS) * sizeof(*chat->links));
    if (chat->blocks != NULL)
        mem_unmap(chat->blocks, chat->blocks_total * sizeof(*chat->blocks));
    mem_free(chat);
}

static uint32_t check_list(const struct block_pool *pool, uint32_t list)
{
    const struct chat *chat = pool->eviction_state;
    uint32_t end = sentinel(chat, list), count = 0;

    for (uint32_t id = chat->links[end].next; id != end; id = chat->links[id].next) {
        const struct chat_block *block = &chat->blocks[id];
        ASSERT(pool->blocks[id].state == BLOCK_CACHED && pool->blocks[id].children == 0);
        ASSERT(block->listed && chat->links[chat->links[id].next].prev == id);
        ASSERT(list == list_of(age_slot_of(&chat->slots, block->used), block->kind));
        count++;
    }
    return count;
}

/* Every CACHED block without children is in the list of its slot and kind, and nothing else is; the
 * waiting ones are the CACHED ones and the ghosts. */
static void check(const struct block_pool *pool)
{
    const struct chat *chat = pool->eviction_state;
    uint32_t listed = 0, leaves = 0;
    uint64_t waiting = 0;

    for (uint32_t level = 0; level < AGE_LEVELS; level++)
        for (uint32_t i = 0; i < chat->slots.levels[level].count; i++)
            for (uint32_t kind = 0; kind < REUSE_KINDS; kind++) {
                uint32_t slot = age_slot_at(&chat->slots, level, i);
                waiting += chat->waiting[slot][kind];
                listed += check_list(pool, list_of(slot, kind));
            }
    for (uint32_t id = 0; id < pool->blocks_total; id++) {
        const struct block *block = &pool->blocks[id];
        leaves += block->state == BLOCK_CACHED && block->children == 0;
        ASSERT(block->state == BLOCK_CACHED || !chat->blocks[id].listed);
        if (block->parent_id != BLOCK_NONE && block->state == BLOCK_CACHED)
            ASSERT(chat->blocks[id].used <= chat->blocks[block->parent_id].used ||
                   pool->blocks[block->parent_id].state == BLOCK_SHARED);
    }
    ASSERT(listed == leaves);
    ASSERT(waiting == pool->counts.cached + ghosts_count(&chat->ghosts));
}

const struct eviction_policy eviction_chat = {
    .name = "chat",
    .init = init,
    .done = done,
    .on_published = on_published,
    .on_cached = on_cached,
    .on_held = on_held,
    .on_gone = on_gone,
    .on_leaf = on_leaf,
    .on_admission = on_admission,
    .victim = victim,
    .check = check,
};
