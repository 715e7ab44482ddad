/* fuzz_tier_file.c - any bytes in the place of a block's file: after a first byte, header and
 * payload. With that byte odd the header's sum is made right, with its second bit the payload's,
 * and with its third the fixed fields, so that the fuzzer gets behind each. What is accepted must
 * be what its own encoding says, and nothing is believed of a file whose sums are wrong. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "worker/tier/tier_file.h"

#define PAYLOAD 64u
#define PAYLOAD_SUM_AT 264u
#define HEADER_SUM_AT (TIER_FILE_HEADER_BYTES - 16u)
#define FIXED_BYTES 160u /* magic to ranks */

static int memory = -1; /* the file: opened again by its name */

static int open_memory(int folder, const char *name, int flags, ...)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
    return open(path, O_RDONLY);
}

static void put_sum(unsigned char *at, const void *bytes, size_t count)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, count);
    memcpy(at, &hash.low64, 8);
    memcpy(at + 8, &hash.high64, 8);
}

static void check_accepted(const struct tier_identity *identity, const struct tier_block *block,
                           const unsigned char *file)
{
    unsigned char header[TIER_FILE_HEADER_BYTES], again[TIER_FILE_HEADER_BYTES];
    uint64_t sum[2];
    struct tier_block twin;
    tier_file_encode(identity, block, file + TIER_FILE_HEADER_BYTES, header);
    ASSERT(tier_file_decode(identity, header, sizeof(header), &twin, sum));
    ASSERT(tier_block_equal(block, &twin));
    tier_file_encode(identity, &twin, file + TIER_FILE_HEADER_BYTES, again);
    ASSERT(memcmp(header, again, sizeof(header)) == 0);
}

static void try_names(const struct tier_identity *identity, const uint8_t *data, size_t bytes)
{
    char name[TIER_FILE_NAME_MAX + 8] = "";
    struct block_hash hash;
    bool ours;
    memcpy(name, data, bytes < sizeof(name) - 1 ? bytes : sizeof(name) - 1);
    if (tier_file_name_parse(identity, name, &hash, &ours) && ours) {
        char own[TIER_FILE_NAME_MAX];
        tier_file_name(identity, hash, own);
        ASSERT(strcmp(own, name) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct tier_identity identity =
        tier_identity_make("fingerprint", "format", 1, 2, PAYLOAD);
    unsigned char file[TIER_FILE_HEADER_BYTES + PAYLOAD + 8] = {0}, got[PAYLOAD];
    struct tier_fs fs = tier_fs_system;
    struct tier_block block = {.tokens = 0};
    char name[TIER_FILE_NAME_MAX];
    uint64_t sum[2];
    if (bytes < 1)
        return 0;
    try_names(&identity, data, bytes);
    size_t length = bytes - 1 < sizeof(file) ? bytes - 1 : sizeof(file);
    memcpy(file, data + 1, length);
    if ((data[0] & 4) != 0) {
        unsigned char right[TIER_FILE_HEADER_BYTES];
        const struct tier_block any = {.tokens = 1};
        tier_file_encode(&identity, &any, got, right);
        memcpy(file, right, FIXED_BYTES);
    }
    if ((data[0] & 2) != 0)
        put_sum(file + PAYLOAD_SUM_AT, file + TIER_FILE_HEADER_BYTES, PAYLOAD);
    if ((data[0] & 1) != 0)
        put_sum(file + HEADER_SUM_AT, file, HEADER_SUM_AT);
    bool decoded = tier_file_decode(&identity, file, TIER_FILE_HEADER_BYTES, &block, sum);
    if (decoded)
        check_accepted(&identity, &block, file);
    else
        block = (struct tier_block){.tokens = 1};
    memory = memfd_create("fuzz", MFD_CLOEXEC);
    ASSERT(memory >= 0 && write(memory, file, length) == (ssize_t)length);
    fs.openat = open_memory;
    enum tier_io_result result = tier_file_read(&fs, -1, &identity, &block, got);
    if (result == TIER_IO_OK) {
        ASSERT(decoded && length == TIER_FILE_HEADER_BYTES + PAYLOAD);
        ASSERT(memcmp(got, file + TIER_FILE_HEADER_BYTES, PAYLOAD) == 0);
    }
    tier_file_name(&identity, block.hash, name);
    result = tier_file_read_header(&fs, -1, name, &identity, &block);
    ASSERT(result != TIER_IO_OK || decoded);
    (void)close(memory);
    return 0;
}
