/* test_block_pool.c - each promise of block_pool.h once, by hand. Chains are written as digits:
 * block d holds sixteen times the id d. */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "worker/kv/eviction.h"

#define CHAIN_MAX 8

struct fixture {
    struct block_pool *pool;
    char events[256]; /* "+12 -3": stored, removed, by the low digits of the content */
    struct block_hash known[16];
    uint32_t known_ids[16], known_count;
};

struct chain {
    uint32_t ids[CHAIN_MAX * BLOCK_TOKENS];
    struct block_hash hashes[CHAIN_MAX];
    uint32_t blocks;
};

static const struct block_hash root = {.low = 1, .high = 2};

static void on_stored(void *user, struct block_hash parent, struct block_hash hash,
                      const uint32_t *ids)
{
    struct fixture *f = user;
    size_t used = strlen(f->events);

    assert_true(block_hash_equal(block_hash_next(parent, ids), hash));
    f->known[f->known_count] = hash;
    f->known_ids[f->known_count++] = ids[0];
    (void)snprintf(f->events + used, sizeof(f->events) - used, "+%u ", ids[0]);
}

static void on_removed(void *user, struct block_hash hash)
{
    struct fixture *f = user;
    size_t used = strlen(f->events);

    for (uint32_t i = f->known_count; i-- > 0;) {
        if (!block_hash_equal(f->known[i], hash))
            continue;
        (void)snprintf(f->events + used, sizeof(f->events) - used, "-%u ", f->known_ids[i]);
        return;
    }
    fail_msg("removed a hash that was never stored");
}

static void begin(struct fixture *f, uint32_t blocks_total, bool caching)
{
    const struct block_pool_settings settings = {
        .blocks_total = blocks_total,
        .prefix_caching = caching,
        .eviction = &eviction_lru,
        .events = {.on_stored = on_stored, .on_removed = on_removed, .user = f},
    };

    memset(f, 0, sizeof(*f));
    assert_int_equal(block_pool_new(&settings, &f->pool, NULL), 0);
}

static void end(struct fixture *f)
{
    block_pool_check(f->pool);
    block_pool_free(f->pool);
}

static struct chain chain_of(const char *digits)
{
    struct chain chain = {.blocks = (uint32_t)strlen(digits)};

    assert_true(chain.blocks <= CHAIN_MAX);
    for (uint32_t i = 0; i < chain.blocks * BLOCK_TOKENS; i++)
        chain.ids[i] = (uint32_t)(digits[i / BLOCK_TOKENS] - '0');
    (void)block_hash_chain(root, chain.ids, chain.blocks * BLOCK_TOKENS, chain.hashes);
    return chain;
}

static void seal(struct fixture *f, const struct chain *chain, uint32_t block, uint32_t id)
{
    block_pool_seal(f->pool, id, block == 0 ? root : chain->hashes[block - 1], chain->hashes[block],
                    chain->ids + block * BLOCK_TOKENS, block == 0, BLOCK_TOKENS);
}

/* Take and seal the whole chain. */
static struct chain compute(struct fixture *f, const char *digits, uint32_t *ret_ids)
{
    struct chain chain = chain_of(digits);

    assert_int_equal(block_pool_take(f->pool, chain.blocks, ret_ids), 0);
    for (uint32_t i = 0; i < chain.blocks; i++)
        seal(f, &chain, i, ret_ids[i]);
    return chain;
}

static uint32_t match(struct fixture *f, const char *digits, uint32_t *ret_ids)
{
    struct chain chain = chain_of(digits);

    return block_pool_match_root(f->pool, root, chain.hashes, chain.ids, chain.blocks, ret_ids);
}

static void test_new_without_blocks_is_refused(void **state)
{
    struct block_pool *pool = NULL;
    struct errmsg err = {""};
    (void)state;
    struct block_pool_settings settings = {.blocks_total = 0};
    assert_int_equal(block_pool_new(&settings, &pool, &err), -EINVAL);
    assert_non_null(strstr(err.text, "0 blocks"));
    settings.blocks_total = UINT32_MAX;
    assert_int_equal(block_pool_new(&settings, &pool, &err), -EINVAL);
    assert_null(pool);
}

static void test_block_passes_through_its_states(void **state)
{
    struct fixture f;
    uint32_t id;
    (void)state;
    begin(&f, 4, true);
    struct chain chain = chain_of("1");
    assert_int_equal(block_pool_state(f.pool, 0), BLOCK_EMPTY);
    assert_int_equal(block_pool_take(f.pool, 1, &id), 0);
    assert_int_equal(id, 0); /* the list starts in order */
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_PRIVATE);
    assert_int_equal(block_pool_refs(f.pool, id), 1);
    seal(&f, &chain, 0, id);
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_SHARED);
    block_pool_ref(f.pool, id);
    block_pool_unref(f.pool, &id, 1);
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_SHARED);
    block_pool_unref(f.pool, &id, 1);
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_CACHED);
    assert_int_equal(block_pool_available(f.pool), 4);
    block_pool_ref(f.pool, id);
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_SHARED);
    block_pool_unref(f.pool, &id, 1);
    block_pool_reset_cache(f.pool);
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_EMPTY);
    assert_int_equal(match(&f, "1", &id), 0);
    end(&f);
}

static void test_take_of_too_many_takes_none(void **state)
{
    struct fixture f;
    uint32_t ids[4] = {9, 9, 9, 9};
    struct block_counts counts;
    (void)state;
    begin(&f, 3, true);
    assert_int_equal(block_pool_take(f.pool, 4, ids), -ENOSPC);
    assert_int_equal(ids[0], 9);
    block_pool_counts(f.pool, &counts);
    assert_int_equal(counts.empty, 3);
    assert_int_equal(block_pool_take(f.pool, 3, ids), 0);
    block_pool_unref(f.pool, ids, 3);
    end(&f);
}

static void test_unhashed_blocks_are_taken_before_cached_ones_are_evicted(void **state)
{
    struct fixture f;
    uint32_t kept[2], ids[3], found[2];
    (void)state;
    begin(&f, 4, true);
    (void)compute(&f, "12", kept);
    block_pool_unref(f.pool, kept, 2);
    assert_int_equal(block_pool_take(f.pool, 2, ids), 0);
    block_pool_unref(f.pool, ids, 2);
    assert_int_equal(block_pool_take(f.pool, 2, ids), 0); /* the same two again */
    assert_int_equal(match(&f, "12", found), 2);
    assert_string_equal(f.events, "+1 +2 ");
    block_pool_unref(f.pool, ids, 2);
    end(&f);
}

static void test_eviction_takes_the_oldest_chain_first_and_its_tail_first(void **state)
{
    struct fixture f;
    uint32_t a[3], b[2], ids[4], found[3];
    struct block_counts counts;
    (void)state;
    begin(&f, 5, true);
    (void)compute(&f, "123", a);
    (void)compute(&f, "45", b);
    block_pool_unref(f.pool, a, 3);
    block_pool_unref(f.pool, b, 2);
    assert_int_equal(block_pool_take(f.pool, 4, ids), 0);
    assert_string_equal(f.events, "+1 +2 +3 +4 +5 -3 -2 -1 -5 ");
    assert_int_equal(match(&f, "123", found), 0);
    assert_int_equal(match(&f, "45", found), 1);
    block_pool_counts(f.pool, &counts);
    assert_int_equal(counts.evictions_total, 4);
    struct chain chain = chain_of("123");
    assert_true(block_pool_evicted(f.pool, chain.hashes[2]));
    assert_false(block_pool_evicted(f.pool, chain_of("45").hashes[0]));
    block_pool_unref(f.pool, ids, 4);
    end(&f);
}

static void test_hit_makes_a_chain_the_youngest(void **state)
{
    struct fixture f;
    uint32_t a[2], b[2], ids[2], found[2];
    (void)state;
    begin(&f, 4, true);
    (void)compute(&f, "12", a);
    (void)compute(&f, "45", b);
    block_pool_unref(f.pool, a, 2);
    block_pool_unref(f.pool, b, 2);
    assert_int_equal(match(&f, "12", found), 2);
    block_pool_ref_all(f.pool, found, 2);
    block_pool_unref(f.pool, found, 2);
    assert_int_equal(block_pool_take(f.pool, 2, ids), 0);
    assert_int_equal(match(&f, "12", found), 2);
    assert_int_equal(match(&f, "45", found), 0);
    block_pool_unref(f.pool, ids, 2);
    end(&f);
}

static void test_second_block_of_the_same_content_stays_private(void **state)
{
    struct fixture f;
    uint32_t a[2], b[2], found[2];
    (void)state;
    begin(&f, 4, true);
    (void)compute(&f, "12", a);
    (void)compute(&f, "12", b);
    assert_int_equal(block_pool_state(f.pool, b[0]), BLOCK_PRIVATE);
    assert_int_equal(match(&f, "12", found), 2);
    assert_memory_equal(found, a, sizeof(a));
    block_pool_unref(f.pool, b, 2);
    assert_int_equal(block_pool_state(f.pool, b[1]), BLOCK_EMPTY);
    assert_string_equal(f.events, "+1 +2 ");
    block_pool_unref(f.pool, a, 2);
    end(&f);
}

/* B computed block 1 twice; its block 2 hangs under A's block 1, which nobody refers to. */
static void test_parent_of_a_held_block_is_not_evicted(void **state)
{
    struct fixture f;
    uint32_t a[1], b[2], ids[2], found[2];
    (void)state;
    begin(&f, 4, true);
    (void)compute(&f, "1", a);
    (void)compute(&f, "12", b);
    block_pool_unref(f.pool, a, 1);
    assert_int_equal(block_pool_state(f.pool, a[0]), BLOCK_SHARED);
    assert_int_equal(block_pool_refs(f.pool, a[0]), 0);
    assert_int_equal(block_pool_available(f.pool), 1);
    assert_int_equal(block_pool_take(f.pool, 2, ids), -ENOSPC);
    assert_int_equal(match(&f, "12", found), 2);
    assert_int_equal(found[0], a[0]);
    assert_int_equal(found[1], b[1]);
    block_pool_unref(f.pool, b, 2);
    assert_int_equal(block_pool_state(f.pool, a[0]), BLOCK_CACHED);
    assert_int_equal(block_pool_available(f.pool), 4);
    end(&f);
}

static void test_seal_without_a_findable_parent_stays_private(void **state)
{
    struct fixture f;
    uint32_t ids[2], found[2];
    (void)state;
    begin(&f, 2, true);
    struct chain chain = chain_of("12");
    assert_int_equal(block_pool_take(f.pool, 2, ids), 0);
    seal(&f, &chain, 1, ids[1]);
    assert_int_equal(block_pool_state(f.pool, ids[1]), BLOCK_PRIVATE);
    seal(&f, &chain, 0, ids[0]);
    seal(&f, &chain, 1, ids[1]); /* now it can */
    assert_int_equal(match(&f, "12", found), 2);
    block_pool_unref(f.pool, ids, 2);
    end(&f);
}

static void test_hash_collision_is_a_miss(void **state)
{
    struct fixture f;
    uint32_t ids[1], found[1];
    (void)state;
    begin(&f, 2, true);
    struct chain stored = compute(&f, "1", ids);
    struct chain other = chain_of("2");
    other.hashes[0] = stored.hashes[0];
    assert_int_equal(block_pool_match(f.pool, other.hashes, other.ids, 1, found), 0);
    assert_int_equal(block_pool_match(f.pool, stored.hashes, stored.ids, 1, found), 1);
    const struct block_hash salted = {.low = 3, .high = 4}; /* made to give the same hash */
    assert_int_equal(block_pool_match_root(f.pool, salted, stored.hashes, stored.ids, 1, found), 0);
    block_pool_unref(f.pool, ids, 1);
    end(&f);
}

static void test_partial_match_finds_the_longest_head(void **state)
{
    struct fixture f;
    uint32_t a[2], b[2], tokens = 77;
    (void)state;
    begin(&f, 8, true);
    struct chain chain = compute(&f, "12", a);
    struct chain other = chain_of("12");
    other.ids[BLOCK_TOKENS + 10] = 7; /* agrees for ten tokens */
    other.hashes[1] = block_hash_next(other.hashes[0], other.ids + BLOCK_TOKENS);
    assert_int_equal(block_pool_take(f.pool, 1, b), 0);
    seal(&f, &other, 1, b[0]);
    uint32_t wanted[BLOCK_TOKENS];
    memcpy(wanted, other.ids + BLOCK_TOKENS, sizeof(wanted));
    wanted[14] = 9;
    assert_int_equal(block_pool_match_partial(f.pool, chain.hashes[0], wanted, 16, &tokens), b[0]);
    assert_int_equal(tokens, 14);
    wanted[10] = 2; /* the first one's again, as far as it goes */
    assert_int_equal(block_pool_match_partial(f.pool, chain.hashes[0], wanted, 16, &tokens), a[1]);
    assert_int_equal(tokens, 14);
    assert_int_equal(block_pool_match_partial(f.pool, chain.hashes[0], wanted, 5, &tokens), b[0]);
    assert_int_equal(tokens, 5); /* a tie: the newest */
    wanted[0] = 9;
    tokens = 77;
    assert_int_equal(block_pool_match_partial(f.pool, chain.hashes[0], wanted, 16, &tokens),
                     BLOCK_NONE);
    assert_int_equal(tokens, 77);
    assert_int_equal(block_pool_match_partial(f.pool, root, chain.ids, 3, &tokens), a[0]);
    assert_int_equal(tokens, 3);
    block_pool_unref(f.pool, b, 1);
    block_pool_unref(f.pool, a, 2);
    end(&f);
}

static void test_tail_is_found_by_its_tokens_and_makes_room_for_the_full_block(void **state)
{
    struct fixture f;
    uint32_t a[2], ids[1], tokens = 0, found[2];
    struct block_hash hash;
    (void)state;
    begin(&f, 8, true);
    struct chain chain = chain_of("12");
    assert_int_equal(block_pool_take(f.pool, 2, a), 0);
    seal(&f, &chain, 0, a[0]);
    block_pool_seal_tail(f.pool, a[1], chain.hashes[0], chain.ids + BLOCK_TOKENS, 9, false, 9);
    block_pool_unref(f.pool, a, 2);
    assert_int_equal(block_pool_state(f.pool, a[1]), BLOCK_CACHED);
    assert_int_equal(block_pool_tokens(f.pool, a[1]), 9);
    assert_false(block_pool_hash(f.pool, a[1], &hash));
    assert_int_equal(match(&f, "12", found), 1);
    assert_int_equal(
        block_pool_match_partial(f.pool, chain.hashes[0], chain.ids + BLOCK_TOKENS, 16, &tokens),
        a[1]);
    assert_int_equal(tokens, 9);
    assert_int_equal(block_pool_take(f.pool, 1, ids), 0);
    seal(&f, &chain, 1, ids[0]); /* holds the nine and seven more */
    assert_int_equal(block_pool_state(f.pool, a[1]), BLOCK_EMPTY);
    assert_int_equal(match(&f, "12", found), 2);
    block_pool_unref(f.pool, ids, 1);
    assert_string_equal(f.events, "+1 +2 "); /* tails are nobody's event */
    end(&f);
}

static void test_tail_that_another_block_contains_is_not_kept(void **state)
{
    struct fixture f;
    uint32_t a[2], id;
    (void)state;
    begin(&f, 8, true);
    struct chain chain = compute(&f, "12", a);
    assert_int_equal(block_pool_take(f.pool, 1, &id), 0);
    block_pool_seal_tail(f.pool, id, chain.hashes[0], chain.ids + BLOCK_TOKENS, 9, false, 9);
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_PRIVATE);
    block_pool_unref(f.pool, &id, 1);
    assert_int_equal(block_pool_state(f.pool, id), BLOCK_EMPTY);
    block_pool_unref(f.pool, a, 2);
    end(&f);
}

static void test_evicted_tail_is_remembered_under_its_parent(void **state)
{
    struct fixture f;
    uint32_t a[1], ids[2];
    (void)state;
    begin(&f, 2, true);
    struct chain chain = chain_of("1");
    assert_int_equal(block_pool_take(f.pool, 1, a), 0);
    block_pool_seal_tail(f.pool, a[0], root, chain.ids, 5, true, 5);
    block_pool_unref(f.pool, a, 1);
    assert_false(block_pool_evicted_tail(f.pool, root));
    assert_int_equal(block_pool_take(f.pool, 2, ids), 0);
    assert_true(block_pool_evicted_tail(f.pool, root));
    assert_string_equal(f.events, "");
    block_pool_unref(f.pool, ids, 2);
    end(&f);
}

static void test_without_caching_nothing_is_ever_found(void **state)
{
    struct fixture f;
    uint32_t a[2], found[2], tokens;
    struct block_counts counts;
    (void)state;
    begin(&f, 4, false);
    struct chain chain = compute(&f, "12", a);
    assert_int_equal(block_pool_state(f.pool, a[0]), BLOCK_PRIVATE);
    assert_int_equal(match(&f, "12", found), 0);
    assert_int_equal(block_pool_match_partial(f.pool, root, chain.ids, 16, &tokens), BLOCK_NONE);
    block_pool_unref(f.pool, a, 2);
    block_pool_counts(f.pool, &counts);
    assert_int_equal(counts.empty, 4);
    end(&f);
}

static void test_digest_is_the_xor_of_what_is_stored(void **state)
{
    struct fixture f;
    uint32_t a[2], ids[3];
    struct block_hash hash;
    (void)state;
    begin(&f, 3, true);
    assert_true(block_pool_digest(f.pool) == 0);
    struct chain chain = compute(&f, "12", a);
    assert_true(block_pool_digest(f.pool) == (chain.hashes[0].low ^ chain.hashes[1].low));
    assert_true(block_pool_hash(f.pool, a[1], &hash));
    assert_true(block_hash_equal(hash, chain.hashes[1]));
    block_pool_unref(f.pool, a, 2);
    assert_int_equal(block_pool_take(f.pool, 2, ids), 0);
    assert_true(block_pool_digest(f.pool) == chain.hashes[0].low);
    block_pool_unref(f.pool, ids, 2);
    block_pool_reset_cache(f.pool);
    assert_true(block_pool_digest(f.pool) == 0);
    assert_string_equal(f.events, "+1 +2 -2 -1 ");
    end(&f);
}

static void test_lookups_are_counted_when_noted(void **state)
{
    struct fixture f;
    struct block_counts counts;
    uint32_t found[2];
    (void)state;
    begin(&f, 3, true);
    (void)match(&f, "12", found);
    const struct chain chain = chain_of("12345");
    const uint32_t there[3] = {0};
    const struct block_admission admission = {.root = root,
                                              .hashes = chain.hashes,
                                              .ids = chain.ids,
                                              .found = there,
                                              .hashes_count = 5,
                                              .tokens = 80,
                                              .found_count = 3};
    block_pool_note_admission(f.pool, &admission);
    block_pool_counts(f.pool, &counts);
    assert_int_equal(counts.lookups_total, 5);
    assert_int_equal(counts.hits_total, 3);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_without_blocks_is_refused),
        cmocka_unit_test(test_block_passes_through_its_states),
        cmocka_unit_test(test_take_of_too_many_takes_none),
        cmocka_unit_test(test_unhashed_blocks_are_taken_before_cached_ones_are_evicted),
        cmocka_unit_test(test_eviction_takes_the_oldest_chain_first_and_its_tail_first),
        cmocka_unit_test(test_hit_makes_a_chain_the_youngest),
        cmocka_unit_test(test_second_block_of_the_same_content_stays_private),
        cmocka_unit_test(test_parent_of_a_held_block_is_not_evicted),
        cmocka_unit_test(test_seal_without_a_findable_parent_stays_private),
        cmocka_unit_test(test_hash_collision_is_a_miss),
        cmocka_unit_test(test_partial_match_finds_the_longest_head),
        cmocka_unit_test(test_tail_is_found_by_its_tokens_and_makes_room_for_the_full_block),
        cmocka_unit_test(test_tail_that_another_block_contains_is_not_kept),
        cmocka_unit_test(test_evicted_tail_is_remembered_under_its_parent),
        cmocka_unit_test(test_without_caching_nothing_is_ever_found),
        cmocka_unit_test(test_digest_is_the_xor_of_what_is_stored),
        cmocka_unit_test(test_lookups_are_counted_when_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
