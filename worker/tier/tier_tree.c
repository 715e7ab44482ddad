/* tier_tree.c - nodes in a fixed array; an index, the tree, a list of leaves and two of the rest.
 *
 *   oldest -> ... -> newest      leaves that are READY        doomed_first -> ... -> doomed_last
 *
 * Why leaves and not plain LRU as in tier_host.c: blocks come here when they are computed, parents
 * first, so by age alone a chat would lose its beginning first and the rest would be of no use. Why
 * losing takes the whole subtree: what hangs under a lost block is found no more, but would keep
 * its file. Why a DOOMED node is not FREE: its file still counts in the budget. A new leaf is put
 * into the list by `used`: near the oldest end, because its last child was there; the search gives
 * up after LEAF_STEPS. Invariants: by_hash holds exactly WRITING and READY nodes; listed <=> READY
 * without child; a child's parent is WRITING or READY and full. */
#include "worker/tier/tier_tree.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define LEAF_STEPS 64u

int tier_tree_init(struct tier_tree *tree, uint32_t nodes_max, struct errmsg *err)
{
    void *nodes = NULL;
    int r;

    ASSERT(nodes_max > 0 && nodes_max <= TIER_NODES_MAX);
    *tree = (struct tier_tree){.oldest = TIER_NODE_NONE,
                               .newest = TIER_NODE_NONE,
                               .free = TIER_NODE_NONE,
                               .doomed_first = TIER_NODE_NONE,
                               .doomed_last = TIER_NODE_NONE};
    r = mem_map(nodes_max * sizeof(*tree->nodes), &nodes);
    if (r == 0) {
        tree->nodes = nodes;
        tree->nodes_max = nodes_max;
        r = hash_index_init(&tree->by_hash, nodes_max, &tree->nodes->block.hash,
                            sizeof(*tree->nodes));
    }
    if (r < 0) {
        tier_tree_done(tree);
        return errmsg_set(err, r, "no memory for the books of a disk tier of %u blocks", nodes_max);
    }
    return 0;
}

void tier_tree_done(struct tier_tree *tree)
{
    if (tree->by_hash.slots != NULL)
        hash_index_done(&tree->by_hash);
    if (tree->nodes != NULL)
        mem_unmap(tree->nodes, tree->nodes_max * sizeof(*tree->nodes));
    memset(tree, 0, sizeof(*tree));
}

/* ---- leaves ---- */

static void unlist(struct tier_tree *tree, uint32_t at)
{
    struct tier_node *node = &tree->nodes[at];

    ASSERT(node->listed);
    if (node->older != TIER_NODE_NONE)
        tree->nodes[node->older].newer = node->newer;
    else
        tree->oldest = node->newer;
    if (node->newer != TIER_NODE_NONE)
        tree->nodes[node->newer].older = node->older;
    else
        tree->newest = node->older;
    node->listed = false;
}

/* In front of the first one that was used later. */
static void list_leaf(struct tier_tree *tree, uint32_t at, bool newest)
{
    struct tier_node *node = &tree->nodes[at];
    uint32_t after = newest ? TIER_NODE_NONE : tree->oldest;

    ASSERT(!node->listed && node->state == TIER_NODE_READY && node->child == TIER_NODE_NONE);
    for (uint32_t i = 0; after != TIER_NODE_NONE && i < LEAF_STEPS; i++) {
        if (tree->nodes[after].used > node->used)
            break;
        after = tree->nodes[after].newer;
    }
    node->newer = after;
    node->older = after != TIER_NODE_NONE ? tree->nodes[after].older : tree->newest;
    if (node->older != TIER_NODE_NONE)
        tree->nodes[node->older].newer = at;
    else
        tree->oldest = at;
    if (after != TIER_NODE_NONE)
        tree->nodes[after].older = at;
    else
        tree->newest = at;
    node->listed = true;
}

void tier_tree_touch(struct tier_tree *tree, uint32_t at)
{
    struct tier_node *node = &tree->nodes[at];

    ASSERT(node->state == TIER_NODE_READY || node->state == TIER_NODE_WRITING);
    node->used = ++tree->clock;
    if (!node->listed)
        return;
    unlist(tree, at);
    list_leaf(tree, at, true);
}

/* ---- finding ---- */

static uint32_t common_tokens(const struct tier_block *block, const uint32_t *ids, uint32_t count)
{
    uint32_t limit = block->tokens < count ? block->tokens : count;
    uint32_t n = 0;

    while (n < limit && block->ids[n] == ids[n])
        n++;
    return n;
}

static uint32_t find_key(const struct tier_tree *tree, struct block_hash hash)
{
    uint32_t at = hash_index_find(&tree->by_hash, hash);

    return at == HASH_INDEX_NONE ? TIER_NODE_NONE : at;
}

/* Does the one block serve whoever would look for the other one? */
static bool covers(const struct tier_block *have, const struct tier_block *wanted)
{
    return block_hash_equal(have->parent, wanted->parent) && have->first == wanted->first &&
           have->tokens >= wanted->tokens &&
           common_tokens(have, wanted->ids, wanted->tokens) == wanted->tokens &&
           (have->tokens == BLOCK_TOKENS) == (wanted->tokens == BLOCK_TOKENS);
}

uint32_t tier_tree_covers(const struct tier_tree *tree, const struct tier_block *block)
{
    uint32_t at = find_key(tree, block->hash);

    return at != TIER_NODE_NONE && covers(&tree->nodes[at].block, block) ? at : TIER_NODE_NONE;
}

uint32_t tier_tree_find(const struct tier_tree *tree, const struct tier_block *wanted)
{
    uint32_t at = tier_tree_covers(tree, wanted);

    ASSERT(wanted->tokens == BLOCK_TOKENS);
    return at != TIER_NODE_NONE && tree->nodes[at].state == TIER_NODE_READY ? at : TIER_NODE_NONE;
}

uint32_t tier_tree_find_tail(const struct tier_tree *tree, struct block_hash parent,
                             const uint32_t *ids, uint32_t count, uint32_t *ret_tokens)
{
    uint32_t at = count > 0 ? find_key(tree, tier_tail_key(parent, ids[0])) : TIER_NODE_NONE;

    if (at == TIER_NODE_NONE || tree->nodes[at].state != TIER_NODE_READY)
        return TIER_NODE_NONE;
    const struct tier_block *block = &tree->nodes[at].block;
    uint32_t tokens = common_tokens(block, ids, count);
    if (block->tokens == BLOCK_TOKENS || !block_hash_equal(block->parent, parent) || tokens == 0)
        return TIER_NODE_NONE;
    *ret_tokens = tokens;
    return at;
}

/* ---- growing ---- */

static void hang(struct tier_tree *tree, uint32_t at, uint32_t parent)
{
    struct tier_node *node = &tree->nodes[at];

    node->parent = parent;
    node->left = node->right = TIER_NODE_NONE;
    if (parent == TIER_NODE_NONE)
        return;
    struct tier_node *above = &tree->nodes[parent];
    if (above->listed)
        unlist(tree, parent);
    node->right = above->child;
    if (above->child != TIER_NODE_NONE)
        tree->nodes[above->child].left = at;
    above->child = at;
}

static uint32_t take_free(struct tier_tree *tree)
{
    uint32_t at = tree->free;

    if (at != TIER_NODE_NONE)
        tree->free = tree->nodes[at].newer;
    else if (tree->fresh < tree->nodes_max)
        at = tree->fresh++;
    tree->used += at != TIER_NODE_NONE;
    return at;
}

static void start(struct tier_tree *tree, uint32_t at, const struct tier_block *block,
                  enum tier_node_state state)
{
    tree->nodes[at] = (struct tier_node){.block = *block,
                                         .used = ++tree->clock,
                                         .parent = TIER_NODE_NONE,
                                         .child = TIER_NODE_NONE,
                                         .left = TIER_NODE_NONE,
                                         .right = TIER_NODE_NONE,
                                         .state = (uint8_t)state};
    hash_index_insert(&tree->by_hash, at);
}

/* The parent's node. false: it is not here. */
static bool find_parent(const struct tier_tree *tree, const struct tier_block *block,
                        uint32_t *ret_parent)
{
    uint32_t at = block->first ? TIER_NODE_NONE : find_key(tree, block->parent);

    if (!block->first && (at == TIER_NODE_NONE || tree->nodes[at].block.tokens != BLOCK_TOKENS))
        return false;
    *ret_parent = at;
    return true;
}

int tier_tree_add(struct tier_tree *tree, const struct tier_block *block, uint32_t *ret_node)
{
    uint32_t parent = TIER_NODE_NONE, at = find_key(tree, block->hash), tokens = 0;

    ASSERT(block->tokens > 0 && block->tokens <= BLOCK_TOKENS);
    if (at == TIER_NODE_NONE && block->tokens == BLOCK_TOKENS) {
        at = tier_tree_find_tail(tree, block->parent, block->ids, BLOCK_TOKENS, &tokens);
        if (at != TIER_NODE_NONE && tokens < tree->nodes[at].block.tokens)
            at = TIER_NODE_NONE; /* it goes on in another way */
    }
    if (at != TIER_NODE_NONE) {
        const struct tier_node *other = &tree->nodes[at];
        if (other->pins == 0 && other->listed)
            (void)tier_tree_lose(tree, at);
        else if (block_hash_equal(other->block.hash, block->hash))
            return -EBUSY;
    }
    if (!find_parent(tree, block, &parent))
        return -ENOENT;
    at = take_free(tree);
    if (at == TIER_NODE_NONE)
        return -ENOSPC;
    start(tree, at, block, TIER_NODE_WRITING);
    hang(tree, at, parent);
    *ret_node = at;
    return 0;
}

void tier_tree_written(struct tier_tree *tree, uint32_t at)
{
    struct tier_node *node = &tree->nodes[at];

    ASSERT(node->state == TIER_NODE_WRITING && node->pins == 0);
    node->state = TIER_NODE_READY;
    node->used = ++tree->clock;
    if (node->child == TIER_NODE_NONE)
        list_leaf(tree, at, true);
}

int tier_tree_restore(struct tier_tree *tree, const struct tier_block *block)
{
    uint32_t at;

    if (find_key(tree, block->hash) != TIER_NODE_NONE)
        return -EEXIST;
    at = take_free(tree);
    if (at == TIER_NODE_NONE)
        return -ENOSPC;
    start(tree, at, block, TIER_NODE_READY);
    tree->nodes[at].used = tree->nodes_max - at; /* falls from one to the next */
    tree->clock = tree->nodes_max;
    return 0;
}

void tier_tree_link(struct tier_tree *tree)
{
    for (uint32_t at = 0; at < tree->fresh; at++) {
        uint32_t parent = TIER_NODE_NONE;
        if (tree->nodes[at].state == TIER_NODE_READY &&
            find_parent(tree, &tree->nodes[at].block, &parent))
            hang(tree, at, parent);
    }
    for (uint32_t at = 0; at < tree->fresh; at++) {
        const struct tier_node *node = &tree->nodes[at];
        if (node->state == TIER_NODE_READY && node->parent == TIER_NODE_NONE && !node->block.first)
            (void)tier_tree_lose(tree, at);
    }
    for (uint32_t at = tree->fresh; at-- > 0;) { /* the latest was restored first */
        const struct tier_node *node = &tree->nodes[at];
        if (node->state != TIER_NODE_READY || node->child != TIER_NODE_NONE)
            continue;
        if (node->listed)
            unlist(tree, at);
        list_leaf(tree, at, true);
    }
}

/* ---- losing ---- */

void tier_tree_pin(struct tier_tree *tree, uint32_t at)
{
    ASSERT(at < tree->fresh && tree->nodes[at].state == TIER_NODE_READY);
    tree->nodes[at].pins++;
}

void tier_tree_unpin(struct tier_tree *tree, uint32_t at)
{
    ASSERT(at < tree->fresh && tree->nodes[at].pins > 0);
    tree->nodes[at].pins--;
}

/* A node without children leaves the tree, and waits for its file to be removed. */
static void doom(struct tier_tree *tree, uint32_t at)
{
    struct tier_node *node = &tree->nodes[at];

    ASSERT(node->child == TIER_NODE_NONE);
    if (node->listed)
        unlist(tree, at);
    if (node->right != TIER_NODE_NONE)
        tree->nodes[node->right].left = node->left;
    if (node->left != TIER_NODE_NONE)
        tree->nodes[node->left].right = node->right;
    else if (node->parent != TIER_NODE_NONE)
        tree->nodes[node->parent].child = node->right;
    hash_index_remove(&tree->by_hash, at);
    node->state = TIER_NODE_DOOMED;
    node->pins = 0;
    node->newer = TIER_NODE_NONE;
    if (tree->doomed_last != TIER_NODE_NONE)
        tree->nodes[tree->doomed_last].newer = at;
    else
        tree->doomed_first = at;
    tree->doomed_last = at;
    tree->doomed++;
}

static void list_new_leaf(struct tier_tree *tree, uint32_t at)
{
    if (at != TIER_NODE_NONE && tree->nodes[at].state == TIER_NODE_READY &&
        tree->nodes[at].child == TIER_NODE_NONE)
        list_leaf(tree, at, false);
}

uint32_t tier_tree_lose(struct tier_tree *tree, uint32_t top)
{
    uint32_t parent = tree->nodes[top].parent, at = top, count = 0;

    ASSERT(tree->nodes[top].state == TIER_NODE_WRITING ||
           tree->nodes[top].state == TIER_NODE_READY);
    for (;;) { /* down to a leaf, doom it, up again */
        while (tree->nodes[at].child != TIER_NODE_NONE)
            at = tree->nodes[at].child;
        uint32_t above = tree->nodes[at].parent;
        doom(tree, at);
        count++;
        if (at == top)
            break;
        at = above;
    }
    list_new_leaf(tree, parent);
    return count;
}

bool tier_tree_evict(struct tier_tree *tree, const struct tier_block *block)
{
    uint32_t at = tree->oldest, keep = TIER_NODE_NONE;

    (void)find_parent(tree, block, &keep);
    while (at != TIER_NODE_NONE && (tree->nodes[at].pins > 0 || at == keep))
        at = tree->nodes[at].newer;
    if (at == TIER_NODE_NONE)
        return false;
    (void)tier_tree_lose(tree, at);
    tree->lost_total++;
    return true;
}

uint32_t tier_tree_doomed(const struct tier_tree *tree)
{
    return tree->doomed_first;
}

void tier_tree_removed(struct tier_tree *tree)
{
    uint32_t at = tree->doomed_first;

    ASSERT(at != TIER_NODE_NONE && tree->nodes[at].state == TIER_NODE_DOOMED);
    tree->doomed_first = tree->nodes[at].newer;
    if (tree->doomed_first == TIER_NODE_NONE)
        tree->doomed_last = TIER_NODE_NONE;
    tree->doomed--;
    tree->used--;
    tree->nodes[at].state = TIER_NODE_FREE;
    tree->nodes[at].newer = tree->free;
    tree->free = at;
}

uint32_t tier_tree_clear(struct tier_tree *tree)
{
    uint32_t count = tree->used - tree->doomed;

    for (uint32_t at = 0; at < tree->fresh; at++) {
        if (tree->nodes[at].state == TIER_NODE_WRITING || tree->nodes[at].state == TIER_NODE_READY)
            hash_index_remove(&tree->by_hash, at);
        tree->nodes[at].state = TIER_NODE_FREE;
    }
    tree->fresh = tree->used = tree->doomed = 0;
    tree->oldest = tree->newest = tree->free = TIER_NODE_NONE;
    tree->doomed_first = tree->doomed_last = TIER_NODE_NONE;
    return count;
}

/* ---- checking ---- */

static void check_node(const struct tier_tree *tree, uint32_t at)
{
    const struct tier_node *node = &tree->nodes[at];
    uint32_t before = TIER_NODE_NONE, count = 0;

    ASSERT(node->block.tokens > 0 && node->block.tokens <= BLOCK_TOKENS);
    ASSERT(hash_index_find(&tree->by_hash, node->block.hash) == at);
    ASSERT(node->listed == (node->state == TIER_NODE_READY && node->child == TIER_NODE_NONE));
    ASSERT((node->parent == TIER_NODE_NONE) == node->block.first);
    ASSERT(node->child == TIER_NODE_NONE || node->block.tokens == BLOCK_TOKENS);
    for (uint32_t child = node->child; child != TIER_NODE_NONE; child = tree->nodes[child].right) {
        ASSERT(tree->nodes[child].parent == at && tree->nodes[child].left == before);
        ASSERT(block_hash_equal(tree->nodes[child].block.parent, node->block.hash));
        before = child;
        ASSERT(++count <= tree->used);
    }
}

void tier_tree_check(const struct tier_tree *tree)
{
    uint32_t states[4] = {0}, listed = 0, doomed = 0, free = 0, before = TIER_NODE_NONE;

    for (uint32_t at = 0; at < tree->fresh; at++) {
        const struct tier_node *node = &tree->nodes[at];
        states[node->state]++;
        if (node->state == TIER_NODE_WRITING || node->state == TIER_NODE_READY)
            check_node(tree, at);
        listed += node->state == TIER_NODE_READY && node->listed;
    }
    for (uint32_t at = tree->oldest; at != TIER_NODE_NONE; at = tree->nodes[at].newer) {
        ASSERT(tree->nodes[at].listed && tree->nodes[at].older == before);
        before = at;
        ASSERT(listed-- > 0);
    }
    ASSERT(listed == 0 && before == tree->newest);
    for (uint32_t at = tree->doomed_first; at != TIER_NODE_NONE; at = tree->nodes[at].newer)
        doomed += tree->nodes[at].state == TIER_NODE_DOOMED;
    for (uint32_t at = tree->free; at != TIER_NODE_NONE; at = tree->nodes[at].newer)
        free += tree->nodes[at].state == TIER_NODE_FREE;
    ASSERT(doomed == tree->doomed && doomed == states[TIER_NODE_DOOMED]);
    ASSERT(free == states[TIER_NODE_FREE]);
    ASSERT(tree->used == states[TIER_NODE_WRITING] + states[TIER_NODE_READY] + doomed);
    ASSERT(tree->by_hash.count == tree->used - doomed);
    ASSERT(tree->used <= tree->nodes_max);
}
