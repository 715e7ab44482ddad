/* tier_blocks.h - blocks, chains and folders for the tests of the disk tier. */
#ifndef REFRAIN_TESTS_TIER_BLOCKS_H
#define REFRAIN_TESTS_TIER_BLOCKS_H

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/tier/tier_file.h"

static const struct block_hash tier_root = {.low = 7, .high = 9};

/* Ids first, first + 1, ... under `parent`; fewer than 16 tokens: a tail. */
static inline struct tier_block tier_block_make(struct block_hash parent, uint32_t first,
                                                uint32_t tokens)
{
    struct tier_block block = {
        .parent = parent, .tokens = tokens, .first = block_hash_equal(parent, tier_root)};
    for (uint32_t i = 0; i < tokens; i++)
        block.ids[i] = first + i;
    block.hash =
        tokens == BLOCK_TOKENS ? block_hash_next(parent, block.ids) : tier_tail_key(parent, first);
    return block;
}

/* blocks[0..count): each the child of the one before it, the first one's parent is the root. */
static inline void tier_chain_make(struct tier_block *blocks, uint32_t count, uint32_t first)
{
    struct block_hash parent = tier_root;
    for (uint32_t i = 0; i < count; i++) {
        blocks[i] = tier_block_make(parent, first + i * BLOCK_TOKENS, BLOCK_TOKENS);
        parent = blocks[i].hash;
    }
}

/* A new folder, opened; its path to ret_path. */
static inline int tier_test_folder(char ret_path[64])
{
    (void)snprintf(ret_path, 64, "/tmp/refrain-tier-XXXXXX");
    assert_non_null(mkdtemp(ret_path));
    int fd = open(ret_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static inline unsigned tier_test_files(int folder)
{
    unsigned count = 0;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY);
    DIR *listing = fdopendir(fd);
    const struct dirent *entry;
    assert_non_null(listing);
    while ((entry = readdir(listing)) != NULL)
        count += entry->d_name[0] != '.';
    (void)closedir(listing);
    return count;
}

/* Files and the folder itself, one level. */
static inline void tier_test_remove(int folder, const char *path)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY);
    DIR *listing = fdopendir(fd);
    const struct dirent *entry;
    assert_non_null(listing);
    while ((entry = readdir(listing)) != NULL)
        (void)unlinkat(folder, entry->d_name, 0);
    (void)closedir(listing);
    (void)close(folder);
    (void)rmdir(path);
}

#endif
