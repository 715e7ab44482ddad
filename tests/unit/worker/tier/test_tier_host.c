/* test_tier_host.c - the host tier's books: order of loss, budget, pins, tails, collisions. */
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/tier/tier_host.h"

static const struct block_hash root = {.low = 7, .high = 9};

/* Block of ids first, first + 1, ... under `parent`; fewer than 16 tokens: a tail. */
static struct tier_block block_of(struct block_hash parent, uint32_t first, uint32_t tokens)
{
    struct tier_block block = {.parent = parent, .tokens = tokens};
    for (uint32_t i = 0; i < tokens; i++)
        block.ids[i] = first + i;
    block.hash =
        tokens == BLOCK_TOKENS ? block_hash_next(parent, block.ids) : tier_tail_key(parent, first);
    return block;
}

static uint32_t put(struct tier_host *host, const struct tier_block *block)
{
    uint32_t slot = TIER_SLOT_NONE;
    assert_int_equal(tier_host_take(host, block, false, &slot, NULL), 0);
    tier_host_check(host);
    return slot;
}

static uint32_t find(const struct tier_host *host, const struct tier_block *block)
{
    return tier_host_find(host, block->hash, block->parent, block->ids);
}

static void test_take_when_full_loses_the_least_recently_used(void **state)
{
    struct tier_host host;
    struct tier_block blocks[5], lost = {.tokens = 9};
    uint32_t slot;
    (void)state;
    assert_int_equal(tier_host_init(&host, 3, NULL), 0);
    for (uint32_t i = 0; i < 5; i++)
        blocks[i] = block_of(root, 100 * i, BLOCK_TOKENS);
    assert_int_equal(tier_host_take(&host, &blocks[0], false, &slot, &lost), 0);
    assert_int_equal(lost.tokens, 0);
    (void)put(&host, &blocks[1]);
    (void)put(&host, &blocks[2]);
    assert_int_equal(host.used, 3);
    tier_host_touch(&host, find(&host, &blocks[0]));
    assert_int_equal(tier_host_take(&host, &blocks[3], false, &slot, &lost), 0);
    assert_int_equal(lost.ids[0], 100); /* block 1: 0 was used since */
    assert_int_equal(find(&host, &blocks[1]), TIER_SLOT_NONE);
    assert_int_equal(find(&host, &blocks[3]), slot);
    assert_int_equal(tier_host_take(&host, &blocks[2], false, &slot, &lost), -EEXIST);
    assert_int_equal(tier_host_take(&host, &blocks[4], false, &slot, &lost), 0);
    assert_int_equal(lost.ids[0], 0); /* 2 was offered again, so it is newer */
    assert_int_equal(host.used, 3);
    assert_int_equal(host.lost_total, 2);
    assert_int_equal(tier_host_take(&host, &blocks[1], true, &slot, &lost), -ENOSPC);
    tier_host_check(&host);
    tier_host_done(&host);
}

static void test_find_when_parent_or_ids_differ_under_one_hash_is_a_miss(void **state)
{
    struct tier_host host;
    struct tier_block block = block_of(root, 5, BLOCK_TOKENS), other;
    uint32_t slot, again;
    (void)state;
    assert_int_equal(tier_host_init(&host, 4, NULL), 0);
    slot = put(&host, &block);
    assert_int_equal(find(&host, &block), slot);
    for (uint32_t i = 0; i < BLOCK_TOKENS; i++) {
        other = block;
        other.ids[i]++;
        assert_int_equal(find(&host, &other), TIER_SLOT_NONE);
    }
    other = block;
    other.parent.high++;
    assert_int_equal(find(&host, &other), TIER_SLOT_NONE);
    /* The collision takes the place of what it collides with. */
    assert_int_equal(tier_host_take(&host, &other, false, &again, NULL), 0);
    assert_int_equal(again, slot);
    assert_int_equal(find(&host, &block), TIER_SLOT_NONE);
    assert_int_equal(find(&host, &other), slot);
    assert_int_equal(host.used, 1);
    tier_host_check(&host);
    tier_host_done(&host);
}

static void test_tail_when_asked_by_the_next_ids_gives_the_common_tokens(void **state)
{
    struct tier_host host;
    const struct tier_block tail = block_of(root, 5, 9), shorter = block_of(root, 5, 4);
    struct tier_block newer = block_of(root, 5, 7);
    uint32_t ids[BLOCK_TOKENS], tokens = 77, slot;
    (void)state;
    assert_int_equal(tier_host_init(&host, 4, NULL), 0);
    slot = put(&host, &tail);
    for (uint32_t i = 0; i < BLOCK_TOKENS; i++)
        ids[i] = 5 + i;
    assert_int_equal(tier_host_find_tail(&host, root, ids, 15, &tokens), slot);
    assert_int_equal(tokens, 9);
    assert_int_equal(tier_host_find_tail(&host, root, ids, 3, &tokens), slot);
    assert_int_equal(tokens, 3);
    ids[6] = 999;
    assert_int_equal(tier_host_find_tail(&host, root, ids, 15, &tokens), slot);
    assert_int_equal(tokens, 6);
    ids[0] = 999;
    assert_int_equal(tier_host_find_tail(&host, root, ids, 15, &tokens), TIER_SLOT_NONE);
    assert_int_equal(tier_host_find_tail(&host, root, ids, 0, &tokens), TIER_SLOT_NONE);
    const struct block_hash elsewhere = {.low = 8, .high = 9};
    assert_int_equal(tier_host_find_tail(&host, elsewhere, tail.ids, 9, &tokens), TIER_SLOT_NONE);
    assert_int_equal(tokens, 6); /* untouched */
    uint32_t again;
    assert_int_equal(tier_host_take(&host, &shorter, false, &again, NULL), -EEXIST);
    newer.ids[3] = 1234; /* goes on in another way: the newest wins */
    assert_int_equal(tier_host_take(&host, &newer, false, &again, NULL), 0);
    assert_int_equal(again, slot);
    assert_int_equal(tier_host_find_tail(&host, root, newer.ids, 15, &tokens), slot);
    assert_int_equal(tokens, 7);
    tier_host_check(&host);
    tier_host_done(&host);
}

static void test_take_when_all_are_pinned_is_refused(void **state)
{
    struct tier_host host;
    struct tier_block a = block_of(root, 1, BLOCK_TOKENS), b = block_of(root, 2, BLOCK_TOKENS),
                      c = block_of(root, 3, BLOCK_TOKENS);
    uint32_t slot;
    (void)state;
    assert_int_equal(tier_host_init(&host, 2, NULL), 0);
    tier_host_pin(&host, put(&host, &a));
    uint32_t slot_b = put(&host, &b);
    tier_host_pin(&host, slot_b);
    assert_int_equal(tier_host_take(&host, &c, false, &slot, NULL), -ENOSPC);
    tier_host_unpin(&host, slot_b);
    assert_int_equal(tier_host_take(&host, &c, false, &slot, NULL), 0);
    assert_int_equal(slot, slot_b); /* newer than a, but a is pinned */
    assert_int_equal(tier_host_forget_all(&host), 1);
    assert_int_equal(host.used, 1);
    tier_host_unpin(&host, find(&host, &a));
    assert_int_equal(tier_host_forget_all(&host), 1);
    tier_host_check(&host);
    tier_host_done(&host);
}

static void test_empty_tier_when_asked_finds_and_takes_nothing(void **state)
{
    struct tier_host host;
    struct tier_block block = block_of(root, 1, BLOCK_TOKENS);
    uint32_t slot, tokens;
    (void)state;
    assert_int_equal(tier_host_init(&host, 0, NULL), 0);
    assert_int_equal(tier_host_take(&host, &block, false, &slot, NULL), -ENOSPC);
    assert_int_equal(find(&host, &block), TIER_SLOT_NONE);
    assert_int_equal(tier_host_find_tail(&host, root, block.ids, 3, &tokens), TIER_SLOT_NONE);
    tier_host_check(&host);
    tier_host_done(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_when_full_loses_the_least_recently_used),
        cmocka_unit_test(test_find_when_parent_or_ids_differ_under_one_hash_is_a_miss),
        cmocka_unit_test(test_tail_when_asked_by_the_next_ids_gives_the_common_tokens),
        cmocka_unit_test(test_take_when_all_are_pinned_is_refused),
        cmocka_unit_test(test_empty_tier_when_asked_finds_and_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
