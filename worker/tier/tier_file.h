/* tier_file.h - one rank's slice of one KV block as a file.
 *
 *   name     KEY-FAMILY.kv: the block's hash, and a hash of model, KV format and number of ranks
 *   header   512 bytes, little-endian: magic, version, whose block it is, parent, token ids, the
 *            payload's XXH3-128, and an XXH3-128 of all of the header before it
 *   payload  the block as the backend keeps it (op_kv_block_read)
 *
 * Written to a temporary name and renamed, mode 0600 (token ids are a prompt's text). Nothing of a
 * file is believed before its sums agree. Thread: any; two must not write one name. */
#ifndef REFRAIN_WORKER_TIER_TIER_FILE_H
#define REFRAIN_WORKER_TIER_TIER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "worker/tier/tier_host.h"

#define TIER_FILE_HEADER_BYTES 512u
#define TIER_FILE_NAME_MAX 56u /* with the NUL */
#define TIER_FILE_TEXT_MAX 64u /* with the NUL */
#define TIER_FILE_TEMPORARY ".tmp"

/* How a file operation ended: what the tier does about it, and the metric's label. */
enum tier_io_result {
    TIER_IO_OK = 0,
    TIER_IO_GONE,    /* no such file */
    TIER_IO_REFUSED, /* foreign, truncated, damaged, another block or another format */
    TIER_IO_FULL,    /* no space, or a limit of files' size */
    TIER_IO_FAILED,  /* the device says no */
    TIER_IO_FOLDER,  /* the folder is gone, read-only or another's */
    TIER_IO_RESULTS
};

/* Whose blocks the files of a folder are. */
struct tier_identity {
    char fingerprint[TIER_FILE_TEXT_MAX], kv_format[TIER_FILE_TEXT_MAX]; /* NULs behind */
    uint32_t rank, ranks;
    uint64_t payload_bytes;
};

/* The calls of the system, so that tests can make each of them fail. */
struct tier_fs {
    int (*openat)(int folder, const char *name, int flags, ...);
    ssize_t (*writev)(int fd, const struct iovec *parts, int count);
    ssize_t (*readv)(int fd, const struct iovec *parts, int count);
    int (*close)(int fd);
    int (*renameat)(int from_folder, const char *from, int to_folder, const char *to);
    int (*unlinkat)(int folder, const char *name, int flags);
};
extern const struct tier_fs tier_fs_system;

/* Texts that are too long are cut. */
struct tier_identity tier_identity_make(const char *fingerprint, const char *kv_format,
                                        uint32_t rank, uint32_t ranks, uint64_t payload_bytes);

void tier_file_name(const struct tier_identity *identity, struct block_hash hash,
                    char ret_name[TIER_FILE_NAME_MAX]);
/* false: not a name that we give. *ret_ours: of this model, format and number of ranks. */
bool tier_file_name_parse(const struct tier_identity *identity, const char *name,
                          struct block_hash *ret_hash, bool *ret_ours);

void tier_file_encode(const struct tier_identity *identity, const struct tier_block *block,
                      const void *payload, unsigned char ret_header[TIER_FILE_HEADER_BYTES]);
/* Is it the header of a block of this identity? Fills the block and the payload's sum. */
bool tier_file_decode(const struct tier_identity *identity, const void *header, size_t bytes,
                      struct tier_block *ret_block, uint64_t ret_payload_sum[2]);

/* Of the three below: after FULL, FAILED and FOLDER errno is that of the call that failed.
 *
 * payload: identity->payload_bytes. On failure nothing of the block is left but what was there. */
enum tier_io_result tier_file_write(const struct tier_fs *fs, int folder,
                                    const struct tier_identity *identity,
                                    const struct tier_block *block, const void *payload);
/* The file must hold exactly `wanted`: hash, parent, first, ids. */
enum tier_io_result tier_file_read(const struct tier_fs *fs, int folder,
                                   const struct tier_identity *identity,
                                   const struct tier_block *wanted, void *ret_payload);
/* The header alone, for a scan: GONE, REFUSED (the size of the file too) or a failure. */
enum tier_io_result tier_file_read_header(const struct tier_fs *fs, int folder, const char *name,
                                          const struct tier_identity *identity,
                                          struct tier_block *ret_block);
/* A file that is not there is as good. */
enum tier_io_result tier_file_remove(const struct tier_fs *fs, int folder,
                                     const struct tier_identity *identity, struct block_hash hash);
/* Is a block with the same content under the same parent? */
bool tier_block_equal(const struct tier_block *a, const struct tier_block *b);

#endif
