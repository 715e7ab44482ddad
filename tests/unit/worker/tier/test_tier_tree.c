/* test_tier_tree.c - the disk tier's books: whatever is found leads to the root, the chat that was
 * used the longest ago is lost first and from its end, and all of it agrees with a naive model. */
#include <cmocka.h>
#include <errno.h>

#include "tests/unit/worker/tier/tier_blocks.h"
#include "worker/tier/tier_tree.h"

static uint32_t put(struct tier_tree *tree, const struct tier_block *block)
{
    uint32_t node = TIER_NODE_NONE;
    assert_int_equal(tier_tree_add(tree, block, &node), 0);
    assert_int_equal(tier_tree_covers(tree, block), node);
    if (block->tokens == BLOCK_TOKENS)
        assert_int_equal(tier_tree_find(tree, block), TIER_NODE_NONE); /* not yet written */
    tier_tree_written(tree, node);
    tier_tree_check(tree);
    return node;
}

/* Evicts one; its first id. */
static uint32_t evict(struct tier_tree *tree)
{
    const struct tier_block any = tier_block_make(tier_root, 77777, BLOCK_TOKENS);
    assert_true(tier_tree_evict(tree, &any));
    uint32_t node = tier_tree_doomed(tree);
    uint32_t first = tree->nodes[node].block.ids[0];
    tier_tree_removed(tree);
    tier_tree_check(tree);
    return first;
}

static void test_chains_when_evicted_go_oldest_first_and_from_their_ends(void **state)
{
    struct tier_tree tree;
    struct tier_block a[3], b[2], tail;
    (void)state;
    assert_int_equal(tier_tree_init(&tree, 6, NULL), 0);
    tier_chain_make(a, 3, 1000);
    tier_chain_make(b, 2, 2000);
    tail = tier_block_make(b[1].hash, 9, 5);
    for (uint32_t i = 0; i < 3; i++)
        (void)put(&tree, &a[i]);
    (void)put(&tree, &b[0]);
    (void)put(&tree, &b[1]);
    (void)put(&tree, &tail);
    assert_int_equal(tree.used, 6);
    assert_int_equal(evict(&tree), 1032);
    assert_int_equal(evict(&tree), 1016);
    tier_tree_touch(&tree, tier_tree_find(&tree, &a[0]));
    assert_int_equal(evict(&tree), 9); /* now b is the older chat, its tail first */
    assert_int_equal(evict(&tree), 2016);
    assert_int_equal(evict(&tree), 2000);
    assert_int_equal(evict(&tree), 1000);
    assert_int_equal(tree.used, 0);
    assert_false(tier_tree_evict(&tree, &a[0]));
    assert_int_equal(tree.lost_total, 6);
    tier_tree_done(&tree);
}

static void test_block_when_its_parent_is_missing_is_not_taken(void **state)
{
    struct tier_tree tree;
    struct tier_block a[3], tail;
    uint32_t node;
    (void)state;
    assert_int_equal(tier_tree_init(&tree, 4, NULL), 0);
    tier_chain_make(a, 3, 1000);
    assert_int_equal(tier_tree_add(&tree, &a[1], &node), -ENOENT);
    (void)put(&tree, &a[0]);
    tail = tier_block_make(a[0].hash, 5, 3);
    (void)put(&tree, &tail);
    struct tier_block below = tier_block_make(tail.hash, 50, BLOCK_TOKENS);
    assert_int_equal(tier_tree_add(&tree, &below, &node), -ENOENT); /* a tail has no children */
    (void)put(&tree, &a[1]);
    (void)put(&tree, &a[2]);
    struct tier_block more = tier_block_make(a[2].hash, 50, BLOCK_TOKENS);
    assert_int_equal(tier_tree_add(&tree, &more, &node), -ENOSPC);
    assert_true(tier_tree_evict(&tree, &more)); /* the tail: the parent stays */
    tier_tree_removed(&tree);
    (void)put(&tree, &more);
    /* One chain fills all: what would have to go is the parent of what comes. */
    struct tier_block last = tier_block_make(more.hash, 500, BLOCK_TOKENS);
    assert_false(tier_tree_evict(&tree, &last));
    tier_tree_done(&tree);
}

static void test_lost_block_takes_what_hangs_under_it(void **state)
{
    struct tier_tree tree;
    struct tier_block a[4], side;
    uint32_t node, count = 0;
    (void)state;
    assert_int_equal(tier_tree_init(&tree, 8, NULL), 0);
    tier_chain_make(a, 4, 1000);
    for (uint32_t i = 0; i < 4; i++)
        (void)put(&tree, &a[i]);
    side = tier_block_make(a[1].hash, 9000, BLOCK_TOKENS);
    assert_int_equal(tier_tree_add(&tree, &side, &node), 0); /* and is still being written */
    assert_int_equal(tier_tree_lose(&tree, tier_tree_find(&tree, &a[1])), 4);
    tier_tree_check(&tree);
    assert_int_equal(tier_tree_covers(&tree, &side), TIER_NODE_NONE);
    assert_int_equal(tree.used, 5); /* their files are still there */
    for (; tier_tree_doomed(&tree) != TIER_NODE_NONE; count++)
        tier_tree_removed(&tree);
    assert_int_equal(count, 4);
    assert_int_equal(tree.used, 1);
    assert_int_equal(evict(&tree), 1000); /* a leaf again */
    tier_tree_done(&tree);
}

static void test_find_when_parent_or_ids_differ_is_a_miss(void **state)
{
    struct tier_tree tree;
    struct tier_block block = tier_block_make(tier_root, 5, BLOCK_TOKENS), other;
    uint32_t node, again;
    (void)state;
    assert_int_equal(tier_tree_init(&tree, 4, NULL), 0);
    node = put(&tree, &block);
    for (uint32_t i = 0; i < BLOCK_TOKENS; i++) {
        other = block;
        other.ids[i]++;
        assert_int_equal(tier_tree_find(&tree, &other), TIER_NODE_NONE);
    }
    other = block;
    other.parent.high++;
    assert_int_equal(tier_tree_find(&tree, &other), TIER_NODE_NONE);
    other = block;
    other.first = false;
    assert_int_equal(tier_tree_find(&tree, &other), TIER_NODE_NONE);
    other = block;
    other.ids[3]++; /* a collision takes its place, unless it is in use */
    tier_tree_pin(&tree, node);
    assert_int_equal(tier_tree_add(&tree, &other, &again), -EBUSY);
    assert_int_equal(tier_tree_find(&tree, &block), node);
    tier_tree_unpin(&tree, node);
    assert_int_equal(tier_tree_add(&tree, &other, &again), 0);
    assert_int_equal(tier_tree_find(&tree, &block), TIER_NODE_NONE);
    assert_int_equal(tree.doomed, 1);
    tier_tree_written(&tree, again);
    tier_tree_check(&tree);
    tier_tree_done(&tree);
}

static void test_tail_when_a_full_block_has_its_tokens_goes(void **state)
{
    struct tier_tree tree;
    const struct tier_block tail = tier_block_make(tier_root, 5, 9),
                            full = tier_block_make(tier_root, 5, BLOCK_TOKENS);
    uint32_t tokens = 0;
    (void)state;
    assert_int_equal(tier_tree_init(&tree, 4, NULL), 0);
    uint32_t node = put(&tree, &tail);
    assert_int_equal(tier_tree_find_tail(&tree, tier_root, full.ids, 15, &tokens), node);
    assert_int_equal(tokens, 9);
    assert_int_equal(tier_tree_find_tail(&tree, tier_root, full.ids, 3, &tokens), node);
    assert_int_equal(tokens, 3);
    assert_int_equal(tier_tree_find_tail(&tree, tier_root, full.ids + 1, 3, &tokens),
                     TIER_NODE_NONE);
    assert_int_equal(tier_tree_find_tail(&tree, tier_root, full.ids, 0, &tokens), TIER_NODE_NONE);
    (void)put(&tree, &full);
    assert_int_equal(tier_tree_find_tail(&tree, tier_root, full.ids, 15, &tokens), TIER_NODE_NONE);
    assert_int_equal(tree.doomed, 1);
    tier_tree_check(&tree);
    tier_tree_done(&tree);
}

static void test_restored_blocks_in_any_order_are_a_tree_without_orphans(void **state)
{
    struct tier_tree tree;
    struct tier_block a[4], b[3];
    (void)state;
    assert_int_equal(tier_tree_init(&tree, 6, NULL), 0);
    tier_chain_make(a, 4, 1000);
    tier_chain_make(b, 3, 2000);
    assert_int_equal(tier_tree_restore(&tree, &b[2]), 0); /* used last; b[1] is not there */
    assert_int_equal(tier_tree_restore(&tree, &a[2]), 0);
    assert_int_equal(tier_tree_restore(&tree, &a[0]), 0);
    assert_int_equal(tier_tree_restore(&tree, &a[1]), 0);
    assert_int_equal(tier_tree_restore(&tree, &a[1]), -EEXIST);
    assert_int_equal(tier_tree_restore(&tree, &b[0]), 0);
    assert_int_equal(tier_tree_restore(&tree, &a[3]), 0);
    assert_int_equal(tier_tree_restore(&tree, &b[1]), -ENOSPC);
    tier_tree_link(&tree);
    tier_tree_check(&tree);
    assert_int_equal(tree.doomed, 1);
    assert_int_equal(tree.nodes[tier_tree_doomed(&tree)].block.ids[0], 2032);
    tier_tree_removed(&tree);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_not_equal(tier_tree_find(&tree, &a[i]), TIER_NODE_NONE);
    assert_int_equal(evict(&tree), 1048); /* a[3] was used the longest ago, then b[0] */
    assert_int_equal(evict(&tree), 2000);
    assert_int_equal(evict(&tree), 1032);
    assert_int_equal(tier_tree_clear(&tree), 2);
    tier_tree_check(&tree);
    assert_int_equal(tree.used, 0);
    tier_tree_done(&tree);
}

/* ---- random operations against a plain array ---- */

#define MODEL_MAX 400u
#define TREE_MAX 24u

enum { GONE, WRITING, READY, DOOMED };

struct model_block {
    struct tier_block block;
    uint32_t parent; /* in the array; MODEL_MAX: the root */
    uint32_t node, pins;
    int state;
    uint64_t used;
};

static struct model_block model[MODEL_MAX];

static void model_make(void)
{
    for (uint32_t i = 0; i < MODEL_MAX; i++) {
        bool tail = random() % 5 == 0;
        uint32_t parent = i < 3 ? MODEL_MAX : (uint32_t)random() % (i / 3 + 1);
        if (parent < MODEL_MAX && model[parent].block.tokens < BLOCK_TOKENS)
            parent = MODEL_MAX;
        model[i] = (struct model_block){.parent = parent, .state = GONE};
        model[i].block = tier_block_make(parent == MODEL_MAX ? tier_root : model[parent].block.hash,
                                         i * 20, tail ? 1 + (uint32_t)random() % 15 : BLOCK_TOKENS);
    }
}

static bool is_below(uint32_t at, uint32_t top)
{
    while (at != MODEL_MAX && at != top)
        at = model[at].parent;
    return at == top;
}

static uint32_t model_count(int a, int b)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_MAX; i++)
        count += model[i].state == a || model[i].state == b;
    return count;
}

static bool has_child(uint32_t at)
{
    for (uint32_t i = at + 1; i < MODEL_MAX; i++) {
        if (model[i].parent == at && (model[i].state == WRITING || model[i].state == READY))
            return true;
    }
    return false;
}

static void model_lose(uint32_t top)
{
    for (uint32_t i = top; i < MODEL_MAX; i++) {
        if ((model[i].state == WRITING || model[i].state == READY) && is_below(i, top))
            model[i] = (struct model_block){
                .block = model[i].block, .parent = model[i].parent, .state = DOOMED};
    }
}

static uint32_t model_of(const struct tier_block *block)
{
    for (uint32_t i = 0; i < MODEL_MAX; i++) {
        if (tier_block_equal(&model[i].block, block))
            return i;
    }
    fail_msg("a block that nobody made");
    return MODEL_MAX;
}

static void do_add(struct tier_tree *tree, uint32_t at)
{
    struct model_block *m = &model[at];
    const struct model_block *parent = m->parent < MODEL_MAX ? &model[m->parent] : NULL;
    bool has_parent = parent == NULL || parent->state == WRITING || parent->state == READY;
    uint32_t used = MODEL_MAX - model_count(GONE, GONE), node = TIER_NODE_NONE;
    bool known = m->state == WRITING || m->state == READY;
    assert_int_equal(tier_tree_covers(tree, &m->block) != TIER_NODE_NONE, known);
    if (known || m->state == DOOMED)
        return;
    int expected = !has_parent ? -ENOENT : used == TREE_MAX ? -ENOSPC : 0;
    assert_int_equal(tier_tree_add(tree, &m->block, &node), expected);
    if (expected == 0) {
        m->state = WRITING;
        m->node = node;
    }
}

static void do_evict(struct tier_tree *tree)
{
    const struct tier_block any = tier_block_make(tier_root, 99999, BLOCK_TOKENS);
    bool possible = false;
    for (uint32_t i = 0; i < MODEL_MAX; i++)
        possible |= model[i].state == READY && model[i].pins == 0 && !has_child(i);
    uint32_t last = tree->doomed_last;
    assert_int_equal(tier_tree_evict(tree, &any), possible);
    if (!possible)
        return;
    assert_int_not_equal(tree->doomed_last, last);
    uint32_t at = model_of(&tree->nodes[tree->doomed_last].block);
    assert_true(model[at].state == READY && model[at].pins == 0 && !has_child(at));
    model_lose(at);
}

static void do_one(struct tier_tree *tree)
{
    uint32_t at = (uint32_t)random() % MODEL_MAX;
    struct model_block *m = &model[at];
    switch (random() % 8) {
    case 0:
    case 1:
    case 2:
        do_add(tree, at);
        break;
    case 3:
        for (at = 0; at < MODEL_MAX && model[at].state != WRITING; at++)
            ;
        if (at < MODEL_MAX) {
            tier_tree_written(tree, model[at].node);
            model[at].state = READY;
        }
        break;
    case 4:
        if (m->state == READY && m->pins == 0 && random() % 2 == 0) {
            tier_tree_pin(tree, m->node);
            m->pins++;
        } else if (m->pins > 0) {
            tier_tree_unpin(tree, m->node);
            m->pins--;
        }
        break;
    case 5:
        if ((m->state == READY || m->state == WRITING) && random() % 8 == 0) {
            (void)tier_tree_lose(tree, m->node);
            model_lose(at);
        } else if (m->state == READY) {
            tier_tree_touch(tree, m->node);
        }
        break;
    case 6:
        do_evict(tree);
        break;
    default:
        if (tier_tree_doomed(tree) == TIER_NODE_NONE)
            break;
        at = model_of(&tree->nodes[tier_tree_doomed(tree)].block);
        assert_int_equal(model[at].state, DOOMED);
        model[at].state = GONE;
        tier_tree_removed(tree);
        break;
    }
}

static void test_random_operations_agree_with_a_naive_model(void **state)
{
    struct tier_tree tree;
    uint64_t evictions = 0;
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        srandom(seed);
        model_make();
        assert_int_equal(tier_tree_init(&tree, TREE_MAX, NULL), 0);
        for (unsigned i = 0; i < 5000; i++) {
            do_one(&tree);
            if (i % 16 != 0)
                continue;
            tier_tree_check(&tree);
            assert_int_equal(tree.used, MODEL_MAX - model_count(GONE, GONE));
            assert_int_equal(tree.doomed, model_count(DOOMED, DOOMED));
        }
        evictions += tree.lost_total;
        tier_tree_done(&tree);
    }
    assert_true(evictions > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_when_evicted_go_oldest_first_and_from_their_ends),
        cmocka_unit_test(test_block_when_its_parent_is_missing_is_not_taken),
        cmocka_unit_test(test_lost_block_takes_what_hangs_under_it),
        cmocka_unit_test(test_find_when_parent_or_ids_differ_is_a_miss),
        cmocka_unit_test(test_tail_when_a_full_block_has_its_tokens_goes),
        cmocka_unit_test(test_restored_blocks_in_any_order_are_a_tree_without_orphans),
        cmocka_unit_test(test_random_operations_agree_with_a_naive_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
