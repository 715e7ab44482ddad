/* test_block_hash.c - the hashes are part of the wire contract: fixed values, worked out with
 * Python's xxhash (xxh3_128 over struct.pack("<QQ16I", low, high, *ids)). A change here breaks
 * mixed clusters. */
#include <cmocka.h>
#include <string.h>

#include "proto/block_hash.h"

#define FINGERPRINT "0123456789abcdef0123456789abcdef"

static void assert_hash(struct block_hash hash, uint64_t low, uint64_t high)
{
    assert_int_equal(hash.low, low);
    assert_int_equal(hash.high, high);
}

static void test_root_of_nothing_is_the_tag_and_three_empty_texts(void **state)
{
    (void)state;
    assert_hash(block_hash_root("", "", ""), 0x25fc9246b8c05ca3, 0x7fdadcff87f4e195);
    assert_hash(block_hash_root(NULL, NULL, NULL), 0x25fc9246b8c05ca3, 0x7fdadcff87f4e195);
}

static void test_root_keeps_fingerprint_adapter_and_salt_apart(void **state)
{
    (void)state;
    assert_hash(block_hash_root(FINGERPRINT, "", ""), 0x3c48f6ead82bbb6e, 0x9db52fb20739d52e);
    assert_hash(block_hash_root(FINGERPRINT, "lora-7", "tenant a"), 0x9a5ec2d8a4387c6e,
                0x4b90bdb049d4b8f3);
    assert_hash(block_hash_root(FINGERPRINT, "x", ""), 0x8e05741ed155a212, 0x5f7d87457de99dd7);
    assert_hash(block_hash_root(FINGERPRINT, NULL, "x"), 0xadccb5ba8a101125, 0xafaa2b947f592b6a);
}

static void test_root_takes_a_salt_of_any_length(void **state)
{
    char salt[1001];
    (void)state;
    memset(salt, 's', 1000);
    salt[1000] = '\0';
    assert_hash(block_hash_root(FINGERPRINT, "", salt), 0x33179c838bd45555, 0x8107eec496b4aba9);
}

static void test_chain_of_three_blocks_and_a_tail_has_three_hashes(void **state)
{
    uint32_t ids[3 * BLOCK_TOKENS + 15];
    struct block_hash hashes[4];
    (void)state;
    for (uint32_t i = 0; i < 32; i++)
        ids[i] = i;
    for (uint32_t i = 32; i < 3 * BLOCK_TOKENS + 15; i++)
        ids[i] = UINT32_MAX - (i - 32);
    memset(hashes, 0x5a, sizeof(hashes));
    struct block_hash root = block_hash_root(FINGERPRINT, "", "");
    assert_int_equal(block_hash_chain(root, ids, 3 * BLOCK_TOKENS + 15, hashes), 3);
    assert_hash(hashes[0], 0x1b5ace2c27e7ed68, 0xcad121a4f1d1b2fb);
    assert_hash(hashes[1], 0xe56364422b8c5b79, 0xd6520e147c41c36a);
    assert_hash(hashes[2], 0x233664980b2395e4, 0x66fc669c5ef1bfe4);
    assert_hash(hashes[3], 0x5a5a5a5a5a5a5a5a, 0x5a5a5a5a5a5a5a5a); /* untouched */
    assert_true(block_hash_equal(hashes[1], block_hash_next(hashes[0], ids + BLOCK_TOKENS)));
    assert_false(block_hash_equal(hashes[0], hashes[1]));
}

static void test_chain_shorter_than_a_block_is_empty(void **state)
{
    uint32_t ids[BLOCK_TOKENS] = {1, 2, 3};
    struct block_hash root = block_hash_root("", "", "");
    (void)state;
    assert_int_equal(block_hash_chain(root, ids, BLOCK_TOKENS - 1, NULL), 0);
    assert_int_equal(block_hash_chain(root, ids, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root_of_nothing_is_the_tag_and_three_empty_texts),
        cmocka_unit_test(test_root_keeps_fingerprint_adapter_and_salt_apart),
        cmocka_unit_test(test_root_takes_a_salt_of_any_length),
        cmocka_unit_test(test_chain_of_three_blocks_and_a_tail_has_three_hashes),
        cmocka_unit_test(test_chain_shorter_than_a_block_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
