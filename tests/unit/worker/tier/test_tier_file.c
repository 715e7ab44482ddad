/* test_tier_file.c - a block's file: what is written is read back; whatever else lies there is
 * refused; whatever the system refuses leaves no half file. */
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "proto/base/mem.h"
#include "tests/unit/worker/tier/tier_blocks.h"

#define PAYLOAD 1000u
#define FILE_BYTES (TIER_FILE_HEADER_BYTES + PAYLOAD)

static char path[64];
static int folder = -1;
static struct tier_identity identity;
static unsigned char payload[PAYLOAD], got[PAYLOAD];

static int setup(void **state)
{
    (void)state;
    folder = tier_test_folder(path);
    identity = tier_identity_make("fingerprint", "format-1", 0, 2, PAYLOAD);
    for (unsigned i = 0; i < PAYLOAD; i++)
        payload[i] = (unsigned char)(i * 7 + 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tier_test_remove(folder, path);
    return 0;
}

static enum tier_io_result write_block(const struct tier_block *block)
{
    return tier_file_write(&tier_fs_system, folder, &identity, block, payload);
}

static enum tier_io_result read_block(const struct tier_block *block)
{
    memset(got, 0, sizeof(got));
    return tier_file_read(&tier_fs_system, folder, &identity, block, got);
}

static void test_block_when_written_is_read_back_and_is_private(void **state)
{
    const struct tier_block full = tier_block_make(tier_root, 100, BLOCK_TOKENS),
                            tail = tier_block_make(full.hash, 5, 3);
    struct tier_block block;
    char name[TIER_FILE_NAME_MAX];
    struct stat st;
    (void)state;
    assert_int_equal(read_block(&full), TIER_IO_GONE);
    assert_int_equal(write_block(&full), TIER_IO_OK);
    assert_int_equal(write_block(&tail), TIER_IO_OK);
    assert_int_equal(tier_test_files(folder), 2);
    assert_int_equal(read_block(&full), TIER_IO_OK);
    assert_memory_equal(got, payload, PAYLOAD);
    assert_int_equal(read_block(&tail), TIER_IO_OK);
    tier_file_name(&identity, tail.hash, name);
    assert_int_equal(fstatat(folder, name, &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, FILE_BYTES);
    assert_int_equal(tier_file_read_header(&tier_fs_system, folder, name, &identity, &block),
                     TIER_IO_OK);
    assert_true(tier_block_equal(&block, &tail));
    assert_int_equal(tier_file_remove(&tier_fs_system, folder, &identity, full.hash), TIER_IO_OK);
    assert_int_equal(tier_file_remove(&tier_fs_system, folder, &identity, full.hash), TIER_IO_OK);
    assert_int_equal(read_block(&full), TIER_IO_GONE);
    assert_int_equal(tier_test_files(folder), 1);
}

static void test_name_when_parsed_says_hash_and_family(void **state)
{
    const struct tier_block block = tier_block_make(tier_root, 100, BLOCK_TOKENS);
    const struct tier_identity other = tier_identity_make("other", "format-1", 0, 2, PAYLOAD),
                               format = tier_identity_make("fingerprint", "f", 0, 2, PAYLOAD),
                               wider = tier_identity_make("fingerprint", "format-1", 0, 3, 9),
                               rank = tier_identity_make("fingerprint", "format-1", 1, 2, 9);
    char name[TIER_FILE_NAME_MAX];
    struct block_hash hash;
    bool ours = false;
    (void)state;
    tier_file_name(&identity, block.hash, name);
    assert_true(tier_file_name_parse(&identity, name, &hash, &ours));
    assert_true(ours && block_hash_equal(hash, block.hash));
    assert_true(tier_file_name_parse(&rank, name, &hash, &ours) && ours);
    assert_true(tier_file_name_parse(&other, name, &hash, &ours) && !ours);
    assert_true(tier_file_name_parse(&format, name, &hash, &ours) && !ours);
    assert_true(tier_file_name_parse(&wider, name, &hash, &ours) && !ours);
    for (size_t i = 0; name[i] != '\0'; i++) {
        char wrong[TIER_FILE_NAME_MAX];
        memcpy(wrong, name, sizeof(wrong));
        wrong[i] = 'X';
        assert_false(tier_file_name_parse(&identity, wrong, &hash, &ours));
    }
    assert_false(tier_file_name_parse(&identity, "", &hash, &ours));
    assert_false(tier_file_name_parse(&identity, "lock", &hash, &ours));
}

static void flip(const char *name, unsigned position, unsigned char bits)
{
    unsigned char byte;
    int fd = openat(folder, name, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, position), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, position), 1);
    (void)close(fd);
}

static void test_file_when_any_byte_is_changed_is_refused(void **state)
{
    const struct tier_block block = tier_block_make(tier_root, 100, 9);
    struct tier_block header;
    char name[TIER_FILE_NAME_MAX];
    (void)state;
    assert_int_equal(write_block(&block), TIER_IO_OK);
    tier_file_name(&identity, block.hash, name);
    for (unsigned at = 0; at < FILE_BYTES; at++) {
        unsigned char bits = (unsigned char)(1u << at % 8);
        flip(name, at, bits);
        assert_int_equal(read_block(&block), TIER_IO_REFUSED);
        assert_int_equal(tier_file_read_header(&tier_fs_system, folder, name, &identity, &header),
                         at < TIER_FILE_HEADER_BYTES ? TIER_IO_REFUSED : TIER_IO_OK);
        flip(name, at, bits);
    }
    assert_int_equal(read_block(&block), TIER_IO_OK);
}

static void test_file_when_of_another_length_is_refused(void **state)
{
    const struct tier_block block = tier_block_make(tier_root, 100, BLOCK_TOKENS);
    struct tier_block header;
    char name[TIER_FILE_NAME_MAX];
    (void)state;
    tier_file_name(&identity, block.hash, name);
    for (unsigned length = 0; length < FILE_BYTES + 60; length += 37) {
        assert_int_equal(write_block(&block), TIER_IO_OK);
        int fd = openat(folder, name, O_RDWR);
        assert_int_equal(ftruncate(fd, length), 0);
        (void)close(fd);
        if (length == FILE_BYTES)
            continue;
        assert_int_equal(read_block(&block), TIER_IO_REFUSED);
        assert_int_equal(tier_file_read_header(&tier_fs_system, folder, name, &identity, &header),
                         TIER_IO_REFUSED);
    }
}

static void test_file_when_a_directory_or_pipe_has_its_name_is_refused_and_stays(void **state)
{
    const struct tier_block block = tier_block_make(tier_root, 100, BLOCK_TOKENS);
    char name[TIER_FILE_NAME_MAX], temporary[TIER_FILE_NAME_MAX + sizeof(TIER_FILE_TEMPORARY)];
    (void)state;
    tier_file_name(&identity, block.hash, name);
    (void)snprintf(temporary, sizeof(temporary), "%s" TIER_FILE_TEMPORARY, name);
    assert_int_equal(mkdirat(folder, name, 0700), 0);
    assert_int_equal(read_block(&block), TIER_IO_REFUSED);
    assert_int_equal(write_block(&block), TIER_IO_REFUSED);
    assert_int_equal(tier_file_remove(&tier_fs_system, folder, &identity, block.hash), TIER_IO_OK);
    assert_int_equal(unlinkat(folder, name, AT_REMOVEDIR), 0); /* was not touched */
    assert_int_equal(mkfifoat(folder, temporary, 0600), 0);
    assert_int_equal(write_block(&block), TIER_IO_REFUSED); /* and does not wait for a reader */
    assert_int_equal(write_block(&block), TIER_IO_OK);
}

static void test_file_when_of_others_is_refused(void **state)
{
    const struct tier_block block = tier_block_make(tier_root, 100, BLOCK_TOKENS),
                            other = tier_block_make(tier_root, 200, BLOCK_TOKENS);
    struct tier_block wanted = block, header;
    char name[TIER_FILE_NAME_MAX], moved[TIER_FILE_NAME_MAX];
    (void)state;
    assert_int_equal(write_block(&block), TIER_IO_OK);
    tier_file_name(&identity, block.hash, name);
    wanted.ids[15]++; /* a collision */
    assert_int_equal(read_block(&wanted), TIER_IO_REFUSED);
    wanted = block;
    wanted.parent.low++; /* another salt */
    assert_int_equal(read_block(&wanted), TIER_IO_REFUSED);
    wanted = block;
    wanted.first = false;
    assert_int_equal(read_block(&wanted), TIER_IO_REFUSED);
    tier_file_name(&identity, other.hash, moved); /* renamed by somebody */
    assert_int_equal(renameat(folder, name, folder, moved), 0);
    assert_int_equal(read_block(&other), TIER_IO_REFUSED);
    assert_int_equal(tier_file_read_header(&tier_fs_system, folder, moved, &identity, &header),
                     TIER_IO_REFUSED);
    assert_int_equal(renameat(folder, moved, folder, name), 0);
    const struct tier_identity strangers[] = {
        tier_identity_make("fingerprinT", "format-1", 0, 2, PAYLOAD),
        tier_identity_make("fingerprint", "format-2", 0, 2, PAYLOAD),
        tier_identity_make("fingerprint", "format-1", 1, 2, PAYLOAD),
        tier_identity_make("fingerprint", "format-1", 0, 1, PAYLOAD),
        tier_identity_make("fingerprint", "format-1", 0, 2, PAYLOAD - 1)};
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++)
        assert_int_equal(
            tier_file_read_header(&tier_fs_system, folder, name, &strangers[i], &header),
            TIER_IO_REFUSED);
    assert_int_equal(unlinkat(folder, name, 0), 0);
    assert_int_equal(symlinkat("/etc/passwd", folder, name), 0);
    assert_int_equal(read_block(&block), TIER_IO_REFUSED);
    assert_int_equal(unlinkat(folder, name, 0), 0);
    assert_int_equal(mkdirat(folder, name, 0700), 0);
    assert_int_equal(read_block(&block), TIER_IO_REFUSED);
    assert_int_equal(unlinkat(folder, name, AT_REMOVEDIR), 0);
}

/* ---- a system that fails at a chosen call ---- */

static struct {
    unsigned calls, fail_at;
    int error; /* 0: a short write or read of one byte */
} fault;

static bool fails_now(void)
{
    bool now = ++fault.calls == fault.fail_at;
    if (now)
        errno = fault.error;
    return now;
}

static int faulty_openat(int at, const char *name, int flags, ...)
{
    return fails_now() ? -1 : openat(at, name, flags, 0600);
}
static ssize_t faulty_writev(int fd, const struct iovec *parts, int count)
{
    if (!fails_now())
        return writev(fd, parts, count);
    return fault.error != 0 ? -1 : write(fd, parts[0].iov_base, 1);
}
static ssize_t faulty_readv(int fd, const struct iovec *parts, int count)
{
    if (!fails_now())
        return readv(fd, parts, count);
    return fault.error != 0 ? -1 : read(fd, parts[0].iov_base, 1);
}
static int faulty_close(int fd)
{
    int r = close(fd);
    return fails_now() && fault.error != 0 ? -1 : r;
}
static int faulty_renameat(int from, const char *a, int to, const char *b)
{
    return fails_now() && fault.error != 0 ? -1 : renameat(from, a, to, b);
}
static int faulty_unlinkat(int at, const char *name, int flags)
{
    return unlinkat(at, name, flags);
}

static const struct tier_fs faulty = {faulty_openat, faulty_writev,   faulty_readv,
                                      faulty_close,  faulty_renameat, faulty_unlinkat};

static void test_write_when_any_call_fails_leaves_no_file_and_says_why(void **state)
{
    static const struct {
        int error;
        enum tier_io_result result;
    } kinds[] = {{ENOSPC, TIER_IO_FULL},   {EDQUOT, TIER_IO_FULL},   {EFBIG, TIER_IO_FULL},
                 {EIO, TIER_IO_FAILED},    {EROFS, TIER_IO_FOLDER},  {EACCES, TIER_IO_FOLDER},
                 {ENOENT, TIER_IO_FOLDER}, {ESTALE, TIER_IO_FOLDER}, {ENOMEM, TIER_IO_FAILED}};
    const struct tier_block block = tier_block_make(tier_root, 100, BLOCK_TOKENS);
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (unsigned at = 1; at <= 4; at++) { /* open, write, close, rename */
            fault.calls = 0;
            fault.fail_at = at;
            fault.error = kinds[k].error;
            assert_int_equal(tier_file_write(&faulty, folder, &identity, &block, payload),
                             kinds[k].result);
            assert_int_equal(errno, kinds[k].error); /* not that of the unlink behind it */
            assert_int_equal(tier_test_files(folder), 0);
        }
    }
    fault.calls = 0;
    fault.fail_at = 2;
    fault.error = 0; /* a short write goes on where it stopped */
    assert_int_equal(tier_file_write(&faulty, folder, &identity, &block, payload), TIER_IO_OK);
    fault.calls = 0;
    assert_int_equal(tier_file_read(&faulty, folder, &identity, &block, got), TIER_IO_OK);
    assert_memory_equal(got, payload, PAYLOAD);
    for (unsigned at = 1; at <= 2; at++) {
        fault.calls = 0;
        fault.fail_at = at;
        fault.error = EIO;
        assert_int_equal(tier_file_read(&faulty, folder, &identity, &block, got), TIER_IO_FAILED);
        assert_int_equal(errno, EIO);
    }
    fault.calls = 0;
    fault.fail_at = 2;
    fault.error = EINTR;
    assert_int_equal(tier_file_read(&faulty, folder, &identity, &block, got), TIER_IO_OK);
}

static void test_write_when_files_may_not_be_so_large_is_full(void **state)
{
    const struct tier_block block = tier_block_make(tier_root, 100, BLOCK_TOKENS);
    struct rlimit before, small;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = FILE_BYTES - 100;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum tier_io_result result = write_block(&block);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(result, TIER_IO_FULL);
    assert_int_equal(tier_test_files(folder), 0);
}

static void test_block_when_a_rank_has_no_heads_is_a_header(void **state)
{
    const struct tier_identity empty = tier_identity_make("fingerprint", "format-1", 1, 2, 0);
    const struct tier_block block = tier_block_make(tier_root, 100, BLOCK_TOKENS);
    (void)state;
    assert_int_equal(tier_file_write(&tier_fs_system, folder, &empty, &block, NULL), TIER_IO_OK);
    assert_int_equal(tier_file_read(&tier_fs_system, folder, &empty, &block, NULL), TIER_IO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_block_when_written_is_read_back_and_is_private, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_name_when_parsed_says_hash_and_family, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_file_when_any_byte_is_changed_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_file_when_of_another_length_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_file_when_a_directory_or_pipe_has_its_name_is_refused_and_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_when_of_others_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_when_any_call_fails_leaves_no_file_and_says_why,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_when_files_may_not_be_so_large_is_full, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_block_when_a_rank_has_no_heads_is_a_header, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
