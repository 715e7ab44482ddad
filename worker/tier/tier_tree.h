/* tier_tree.h - which blocks have a file in the disk tier, and which of them is lost next.
 *
 *   FREE --add--> WRITING --written--> READY --lose, evict--> DOOMED --removed--> FREE
 *                    +---------------------- lose ---------------^
 *
 * A tree per root: a block is added only under its parent, and goes with all that is below it, so
 * whatever is found leads to the root. What is lost first is the leaf that was used the longest
 * ago; a parent becomes a leaf when its last child is lost. A pinned block stays. DOOMED: its file
 * is still to be removed, it is found no more. Found as in tier_host.h: by hash (a tail by parent
 * and first token), parent and ids compared.
 *
 * Books only (rank 0). Cost: O(1) per block. Memory: fixed at init, touched when first used.
 * Thread: engine only. */
#ifndef REFRAIN_WORKER_TIER_TIER_TREE_H
#define REFRAIN_WORKER_TIER_TIER_TREE_H

#include "worker/tier/tier_host.h"

#define TIER_NODE_NONE UINT32_MAX
#define TIER_NODES_MAX (1u << 20) /* some 150 bytes each */

enum tier_node_state { TIER_NODE_FREE = 0, TIER_NODE_WRITING, TIER_NODE_READY, TIER_NODE_DOOMED };

struct tier_node {
    struct tier_block block;
    uint64_t used;          /* the tree's clock when it was */
    uint32_t parent, child; /* child: the newest one */
    uint32_t left, right;   /* siblings */
    uint32_t older, newer;  /* of a listed leaf; FREE and DOOMED: newer is the next one */
    uint32_t pins;
    uint8_t state;
    bool listed; /* READY, and no child */
};

struct tier_tree {
    struct tier_node *nodes;
    struct hash_index by_hash; /* WRITING and READY */
    uint32_t nodes_max, fresh; /* nodes [fresh, nodes_max) were never used */
    uint32_t used, doomed;     /* not FREE; of these DOOMED */
    uint32_t oldest, newest;   /* leaves */
    uint32_t free, doomed_first, doomed_last;
    uint64_t clock;
    uint64_t lost_total; /* by tier_tree_evict */
};

/* 0, or -ENOMEM. */
int tier_tree_init(struct tier_tree *tree, uint32_t nodes_max, struct errmsg *err);
void tier_tree_done(struct tier_tree *tree);

/* READY, as tier_host_find and tier_host_find_tail; or TIER_NODE_NONE. */
uint32_t tier_tree_find(const struct tier_tree *tree, const struct tier_block *wanted);
uint32_t tier_tree_find_tail(const struct tier_tree *tree, struct block_hash parent,
                             const uint32_t *ids, uint32_t count, uint32_t *ret_tokens);
/* Whoever looks for `block` finds it, or will: its node (WRITING or READY), or TIER_NODE_NONE. */
uint32_t tier_tree_covers(const struct tier_tree *tree, const struct tier_block *block);
/* A place for a block that is not covered. 0: WRITING. -ENOENT: its parent is not here; -ENOSPC: no
 * FREE node; -EBUSY: other content is under its key and in use. Else that is DOOMED, as is a tail
 * that the block makes needless. */
int tier_tree_add(struct tier_tree *tree, const struct tier_block *block, uint32_t *ret_node);
void tier_tree_written(struct tier_tree *tree, uint32_t at);
/* From a scan, the latest used first: READY at once, wherever its parent is. -EEXIST, -ENOSPC. */
int tier_tree_restore(struct tier_tree *tree, const struct tier_block *block);
/* After the last restore: hang each under its parent; those without one are DOOMED. */
void tier_tree_link(struct tier_tree *tree);
void tier_tree_touch(struct tier_tree *tree, uint32_t at);
void tier_tree_pin(struct tier_tree *tree, uint32_t at);
void tier_tree_unpin(struct tier_tree *tree, uint32_t at);
/* Doom a block (WRITING, READY) and all below it, pinned or not. Returns how many. */
uint32_t tier_tree_lose(struct tier_tree *tree, uint32_t top);
/* Doom the leaf that was used the longest ago, for a place for `block`, whose parent stays. false:
 * none, all are pinned, being written or doomed. */
bool tier_tree_evict(struct tier_tree *tree, const struct tier_block *block);
/* The block that has been DOOMED the longest, for its file to be removed; or TIER_NODE_NONE. */
uint32_t tier_tree_doomed(const struct tier_tree *tree);
/* Its file is gone, or will be before another one is written: FREE. Of tier_tree_doomed() only. */
void tier_tree_removed(struct tier_tree *tree);
/* Forget all at once, files too: returns how many could be found. */
uint32_t tier_tree_clear(struct tier_tree *tree);
/* Assert every invariant; O(nodes). */
void tier_tree_check(const struct tier_tree *tree);

#endif
