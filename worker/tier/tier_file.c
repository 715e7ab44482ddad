/* tier_file.c - bytes of a header, and the few calls that write, read and remove a file.
 *
 * Why two sums: a scan at start reads headers only and must not believe a damaged one; the payload
 * is summed when it is wanted. Why no fsync: a file that a power cut left half written does not
 * have its sum, and a block that is lost is computed again. Why the whole identity is in the header
 * though a hash of it is in the name: a renamed file is refused for what it is. */
#include "worker/tier/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "proto/base/assert.h"

#define MAGIC "refrnKV\n"
#define VERSION 1u
#define FLAG_FIRST 1u
#define FAMILY_TAG "refrain.tier.1"

struct wire_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t payload_bytes;
    char fingerprint[TIER_FILE_TEXT_MAX], kv_format[TIER_FILE_TEXT_MAX];
    uint32_t rank, ranks, tokens, flags;
    uint64_t hash[2], parent[2];
    uint32_t ids[BLOCK_TOKENS]; /* 0 behind a tail's tokens */
    uint64_t payload_sum[2];
    unsigned char zero[216];
    uint64_t header_sum[2]; /* of all before */
};
_Static_assert(sizeof(struct wire_header) == TIER_FILE_HEADER_BYTES, "no padding is written");

const struct tier_fs tier_fs_system = {
    .openat = openat,
    .writev = writev,
    .readv = readv,
    .close = close,
    .renameat = renameat,
    .unlinkat = unlinkat,
};

struct tier_identity tier_identity_make(const char *fingerprint, const char *kv_format,
                                        uint32_t rank, uint32_t ranks, uint64_t payload_bytes)
{
    struct tier_identity identity = {.rank = rank, .ranks = ranks, .payload_bytes = payload_bytes};

    (void)snprintf(identity.fingerprint, sizeof(identity.fingerprint), "%s", fingerprint);
    (void)snprintf(identity.kv_format, sizeof(identity.kv_format), "%s", kv_format);
    return identity;
}

/* ---- names ---- */

static uint64_t family_of(const struct tier_identity *identity)
{
    struct {
        char tag[16], fingerprint[TIER_FILE_TEXT_MAX], kv_format[TIER_FILE_TEXT_MAX];
        uint64_t ranks;
    } input;

    memset(&input, 0, sizeof(input));
    memcpy(input.tag, FAMILY_TAG, sizeof(FAMILY_TAG));
    memcpy(input.fingerprint, identity->fingerprint, sizeof(input.fingerprint));
    memcpy(input.kv_format, identity->kv_format, sizeof(input.kv_format));
    input.ranks = identity->ranks;
    return XXH3_64bits(&input, sizeof(input));
}

void tier_file_name(const struct tier_identity *identity, struct block_hash hash,
                    char ret_name[TIER_FILE_NAME_MAX])
{
    int length = snprintf(ret_name, TIER_FILE_NAME_MAX, "%016llx%016llx-%016llx.kv",
                          (unsigned long long)hash.high, (unsigned long long)hash.low,
                          (unsigned long long)family_of(identity));
    ASSERT(length == 52);
}

/* 16 digits of lower case. */
static bool parse_hex(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 16; i++) {
        char c = text[i];
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    *ret_value = value;
    return true;
}

bool tier_file_name_parse(const struct tier_identity *identity, const char *name,
                          struct block_hash *ret_hash, bool *ret_ours)
{
    struct block_hash hash;
    uint64_t family;

    if (strlen(name) != 52 || name[32] != '-' || strcmp(name + 49, ".kv") != 0 ||
        !parse_hex(name, &hash.high) || !parse_hex(name + 16, &hash.low) ||
        !parse_hex(name + 33, &family))
        return false;
    *ret_hash = hash;
    *ret_ours = family == family_of(identity);
    return true;
}

/* ---- headers ---- */

static void sum_of(const void *bytes, size_t count, uint64_t ret_sum[2])
{
    XXH128_hash_t hash = XXH3_128bits(bytes, count);

    ret_sum[0] = hash.low64;
    ret_sum[1] = hash.high64;
}

void tier_file_encode(const struct tier_identity *identity, const struct tier_block *block,
                      const void *payload, unsigned char ret_header[TIER_FILE_HEADER_BYTES])
{
    struct wire_header wire;

    ASSERT(block->tokens > 0 && block->tokens <= BLOCK_TOKENS);
    memset(&wire, 0, sizeof(wire));
    memcpy(wire.magic, MAGIC, sizeof(wire.magic));
    wire.version = VERSION;
    wire.header_bytes = TIER_FILE_HEADER_BYTES;
    wire.payload_bytes = identity->payload_bytes;
    memcpy(wire.fingerprint, identity->fingerprint, sizeof(wire.fingerprint));
    memcpy(wire.kv_format, identity->kv_format, sizeof(wire.kv_format));
    wire.rank = identity->rank;
    wire.ranks = identity->ranks;
    wire.tokens = block->tokens;
    wire.flags = block->first ? FLAG_FIRST : 0;
    wire.hash[0] = block->hash.low;
    wire.hash[1] = block->hash.high;
    wire.parent[0] = block->parent.low;
    wire.parent[1] = block->parent.high;
    memcpy(wire.ids, block->ids, block->tokens * sizeof(*wire.ids));
    sum_of(payload, identity->payload_bytes, wire.payload_sum);
    sum_of(&wire, offsetof(struct wire_header, header_sum), wire.header_sum);
    memcpy(ret_header, &wire, sizeof(wire));
}

static bool is_ours(const struct tier_identity *identity, const struct wire_header *wire)
{
    return memcmp(wire->magic, MAGIC, sizeof(wire->magic)) == 0 && wire->version == VERSION &&
           wire->header_bytes == TIER_FILE_HEADER_BYTES &&
           wire->payload_bytes == identity->payload_bytes &&
           memcmp(wire->fingerprint, identity->fingerprint, sizeof(wire->fingerprint)) == 0 &&
           memcmp(wire->kv_format, identity->kv_format, sizeof(wire->kv_format)) == 0 &&
           wire->rank == identity->rank && wire->ranks == identity->ranks;
}

/* The key that follows from parent and ids is the one that it says. */
static bool is_consistent(const struct tier_block *block)
{
    struct block_hash hash = block->tokens == BLOCK_TOKENS
                                 ? block_hash_next(block->parent, block->ids)
                                 : tier_tail_key(block->parent, block->ids[0]);

    return block_hash_equal(hash, block->hash);
}

bool tier_file_decode(const struct tier_identity *identity, const void *header, size_t bytes,
                      struct tier_block *ret_block, uint64_t ret_payload_sum[2])
{
    struct tier_block block = {.tokens = 0};
    struct wire_header wire;
    uint64_t sum[2];

    if (bytes != sizeof(wire))
        return false;
    memcpy(&wire, header, sizeof(wire));
    sum_of(&wire, offsetof(struct wire_header, header_sum), sum);
    if (memcmp(sum, wire.header_sum, sizeof(sum)) != 0 || !is_ours(identity, &wire) ||
        wire.tokens == 0 || wire.tokens > BLOCK_TOKENS || (wire.flags & ~FLAG_FIRST) != 0)
        return false;
    block.hash = (struct block_hash){.low = wire.hash[0], .high = wire.hash[1]};
    block.parent = (struct block_hash){.low = wire.parent[0], .high = wire.parent[1]};
    block.first = (wire.flags & FLAG_FIRST) != 0;
    block.tokens = wire.tokens;
    memcpy(block.ids, wire.ids, wire.tokens * sizeof(*block.ids));
    if (!is_consistent(&block))
        return false;
    *ret_block = block;
    memcpy(ret_payload_sum, wire.payload_sum, sizeof(wire.payload_sum));
    return true;
}

bool tier_block_equal(const struct tier_block *a, const struct tier_block *b)
{
    return a->tokens == b->tokens && a->first == b->first && block_hash_equal(a->hash, b->hash) &&
           block_hash_equal(a->parent, b->parent) &&
           memcmp(a->ids, b->ids, a->tokens * sizeof(*a->ids)) == 0;
}

/* ---- files ---- */

static enum tier_io_result result_of(int error, bool reading)
{
    errno = error; /* for who tells of it: a close may have come between */
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return TIER_IO_FULL;
    case ENOENT:
        return reading ? TIER_IO_GONE : TIER_IO_FOLDER;
    case EISDIR: /* something of others in the place of one file: the disk is well */
    case ENXIO:  /* a socket, a pipe that nobody reads */
        return TIER_IO_REFUSED;
    case ELOOP: /* a link in the place of a file */
        return reading ? TIER_IO_REFUSED : TIER_IO_FOLDER;
    case EROFS:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case ESTALE:
        return TIER_IO_FOLDER;
    default:
        return TIER_IO_FAILED;
    }
}

typedef ssize_t (*transfer_fn)(int fd, const struct iovec *parts, int count);

/* All of the parts: their bytes; less at the end of the file; or -errno. */
static ssize_t transfer_all(transfer_fn transfer, int fd, struct iovec *parts, int count)
{
    ssize_t done = 0;

    while (count > 0) {
        ssize_t bytes = parts[0].iov_len == 0 ? 0 : transfer(fd, parts, count);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0)
            return -errno;
        if (bytes == 0 && parts[0].iov_len > 0)
            return done;
        done += bytes;
        while (count > 0 && (size_t)bytes >= parts[0].iov_len) {
            bytes -= (ssize_t)parts[0].iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts[0].iov_base = (char *)parts[0].iov_base + bytes;
            parts[0].iov_len -= (size_t)bytes;
        }
    }
    return done;
}

static enum tier_io_result write_all(const struct tier_fs *fs, int folder, const char *name,
                                     struct iovec parts[2])
{
    size_t wanted = parts[0].iov_len + parts[1].iov_len;
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = fs->openat(folder, name, flags, 0600);

    if (fd < 0)
        return result_of(errno, false);
    ssize_t done = transfer_all(fs->writev, fd, parts, 2);
    int closed = fs->close(fd) == 0 ? 0 : -errno;
    if (done < 0)
        return result_of((int)-done, false);
    if ((size_t)done != wanted)
        return result_of(ENOSPC, false);
    return closed < 0 ? result_of(-closed, false) : TIER_IO_OK;
}

enum tier_io_result tier_file_write(const struct tier_fs *fs, int folder,
                                    const struct tier_identity *identity,
                                    const struct tier_block *block, const void *payload)
{
    unsigned char header[TIER_FILE_HEADER_BYTES];
    char name[TIER_FILE_NAME_MAX], temporary[TIER_FILE_NAME_MAX + sizeof(TIER_FILE_TEMPORARY)];

    tier_file_name(identity, block->hash, name);
    (void)snprintf(temporary, sizeof(temporary), "%s" TIER_FILE_TEMPORARY, name);
    tier_file_encode(identity, block, payload, header);
    struct iovec parts[2] = {{header, sizeof(header)},
                             {(void *)(uintptr_t)payload, identity->payload_bytes}};
    enum tier_io_result result = write_all(fs, folder, temporary, parts);
    if (result == TIER_IO_OK && fs->renameat(folder, temporary, folder, name) < 0)
        result = result_of(errno, false);
    if (result != TIER_IO_OK) {
        int error = errno;
        (void)fs->unlinkat(folder, temporary, 0);
        errno = error;
    }
    return result;
}

/* Header and payload (NULL: none), and is that all? fstat, so that a scan reads no payload. */
static enum tier_io_result read_all(const struct tier_fs *fs, int folder, const char *name,
                                    const struct tier_identity *identity,
                                    unsigned char header[TIER_FILE_HEADER_BYTES], void *payload)
{
    enum tier_io_result result = TIER_IO_OK;
    struct iovec parts[2] = {{header, TIER_FILE_HEADER_BYTES}, {payload, identity->payload_bytes}};
    size_t wanted = TIER_FILE_HEADER_BYTES + (payload != NULL ? identity->payload_bytes : 0);
    struct stat st;
    int fd = fs->openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return result_of(errno, true);
    ssize_t done = transfer_all(fs->readv, fd, parts, payload != NULL ? 2 : 1);
    if (done != (ssize_t)wanted || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != TIER_FILE_HEADER_BYTES + identity->payload_bytes)
        result = TIER_IO_REFUSED;
    else if (payload != NULL)
        (void)futimens(fd, NULL); /* when it was used: the order of a later scan */
    (void)fs->close(fd);
    return done < 0 ? result_of((int)-done, true) : result;
}

enum tier_io_result tier_file_read(const struct tier_fs *fs, int folder,
                                   const struct tier_identity *identity,
                                   const struct tier_block *wanted, void *ret_payload)
{
    unsigned char header[TIER_FILE_HEADER_BYTES];
    char name[TIER_FILE_NAME_MAX];
    struct tier_block block;
    uint64_t expected[2], sum[2];

    tier_file_name(identity, wanted->hash, name);
    enum tier_io_result result = read_all(fs, folder, name, identity, header, ret_payload);
    if (result != TIER_IO_OK)
        return result;
    if (!tier_file_decode(identity, header, sizeof(header), &block, expected) ||
        !tier_block_equal(&block, wanted))
        return TIER_IO_REFUSED;
    sum_of(ret_payload, identity->payload_bytes, sum);
    return memcmp(sum, expected, sizeof(sum)) == 0 ? TIER_IO_OK : TIER_IO_REFUSED;
}

enum tier_io_result tier_file_read_header(const struct tier_fs *fs, int folder, const char *name,
                                          const struct tier_identity *identity,
                                          struct tier_block *ret_block)
{
    unsigned char header[TIER_FILE_HEADER_BYTES];
    uint64_t ignored[2];
    char own_name[TIER_FILE_NAME_MAX];
    struct tier_block block;

    enum tier_io_result result = read_all(fs, folder, name, identity, header, NULL);
    if (result != TIER_IO_OK)
        return result;
    if (!tier_file_decode(identity, header, sizeof(header), &block, ignored))
        return TIER_IO_REFUSED;
    tier_file_name(identity, block.hash, own_name);
    if (strcmp(name, own_name) != 0)
        return TIER_IO_REFUSED;
    *ret_block = block;
    return TIER_IO_OK;
}

enum tier_io_result tier_file_remove(const struct tier_fs *fs, int folder,
                                     const struct tier_identity *identity, struct block_hash hash)
{
    char name[TIER_FILE_NAME_MAX];

    tier_file_name(identity, hash, name);
    if (fs->unlinkat(folder, name, 0) == 0 || errno == ENOENT || errno == EISDIR)
        return TIER_IO_OK; /* a directory is none of ours: it stays */
    return result_of(errno, false);
}
