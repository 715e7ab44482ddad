/* tier_io.c - one thread, one ring, one lock that is never held while a file is touched.
 *
 * Why one thread: a block file is a few hundred KiB to a few MiB, written and read whole; one
 * thread keeps order without locks on names. Cost: the engine copies an operation of 116 bytes. */
#include "worker/tier/tier_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/assert.h"
#define LOG_MODULE "tier"
#include "proto/base/log.h"
#include "proto/base/mem.h"

#define STOP_S 3

struct tier_io {
    struct tier_io_settings settings;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct step_disk_op *ring; /* [ring_max] */
    uint32_t ring_max, first, count;
    bool stopping;
    enum tier_io_result told; /* the trouble that a line of the log tells of; OK: none */
};

static struct block_hash hash_of(const uint32_t words[4])
{
    return (struct block_hash){.low = words[0] | (uint64_t)words[1] << 32,
                               .high = words[2] | (uint64_t)words[3] << 32};
}

static struct tier_block block_of(const struct step_disk_op *op)
{
    struct tier_block block = {.hash = hash_of(op->hash),
                               .parent = hash_of(op->parent),
                               .tokens = op->tokens,
                               .first = op->first != 0};

    memcpy(block.ids, op->ids, op->tokens * sizeof(*block.ids));
    return block;
}

/* Every file with a name of ours, whatever its family. */
static enum tier_io_result clear(const struct tier_io_settings *settings)
{
    enum tier_io_result result = TIER_IO_OK;
    int fd = settings->fs->openat(settings->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    int error = errno;

    if (listing == NULL) {
        if (fd >= 0)
            (void)settings->fs->close(fd);
        errno = error;
        return TIER_IO_FOLDER;
    }
    while ((entry = readdir(listing)) != NULL) {
        struct block_hash hash;
        bool ours;
        if (tier_file_name_parse(&settings->identity, entry->d_name, &hash, &ours) &&
            settings->fs->unlinkat(settings->folder, entry->d_name, 0) < 0 && errno != ENOENT &&
            errno != EISDIR) {
            error = errno;
            result = TIER_IO_FOLDER;
        }
    }
    (void)closedir(listing);
    errno = error;
    return result;
}

static enum tier_io_result run(const struct tier_io_settings *settings,
                               const struct step_disk_op *op)
{
    const struct tier_block block = block_of(op);
    const struct tier_identity *identity = &settings->identity;
    char *buffer = identity->payload_bytes > 0 && op->token < settings->buffers_count
                       ? settings->buffers + (size_t)op->token * identity->payload_bytes
                       : NULL;

    switch (op->kind) {
    case STEP_DISK_WRITE:
        return tier_file_write(settings->fs, settings->folder, identity, &block, buffer);
    case STEP_DISK_READ:
        return tier_file_read(settings->fs, settings->folder, identity, &block, buffer);
    case STEP_DISK_REMOVE:
        return tier_file_remove(settings->fs, settings->folder, identity, block.hash);
    default:
        ASSERT(op->kind == STEP_DISK_CLEAR);
        return clear(settings);
    }
}

/* The next operation, when there is one. false: stop. */
static bool take(struct tier_io *io, struct step_disk_op *ret_op)
{
    (void)pthread_mutex_lock(&io->lock);
    while (io->count == 0 && !io->stopping)
        (void)pthread_cond_wait(&io->wake, &io->lock);
    bool go_on = !io->stopping;
    if (go_on) {
        *ret_op = io->ring[io->first];
        io->first = (io->first + 1) % io->ring_max;
        io->count--;
    }
    (void)pthread_mutex_unlock(&io->lock);
    return go_on;
}

/* Rank 0 learns the result and says what becomes of the tier; which file and which errno is known
 * here alone. Once per kind of trouble, until a write has gone well again. */
static void tell_trouble(struct tier_io *io, const struct step_disk_op *op,
                         enum tier_io_result result, int error)
{
    static const char *const verbs[] = {[STEP_DISK_WRITE] = "write",
                                        [STEP_DISK_READ] = "read",
                                        [STEP_DISK_REMOVE] = "remove",
                                        [STEP_DISK_CLEAR] = "clear"};
    char name[TIER_FILE_NAME_MAX] = ".";

    if (result == TIER_IO_OK && op->kind == STEP_DISK_WRITE)
        io->told = TIER_IO_OK;
    if (result < TIER_IO_FULL || result == io->told)
        return;
    io->told = result;
    if (op->kind != STEP_DISK_CLEAR)
        tier_file_name(&io->settings.identity, hash_of(op->hash), name);
    log_error("disk_tier_file", "rank=%u %s=rank-%u/%s errno=%d error=\"%s\"",
              io->settings.identity.rank, verbs[op->kind], io->settings.identity.rank, name, error,
              strerror(error));
}

static void *io_main(void *user)
{
    struct tier_io *io = user;
    struct step_disk_op op;

    while (take(io, &op)) {
        enum tier_io_result result = run(&io->settings, &op);
        tell_trouble(io, &op, result, errno);
        __atomic_store_n(&io->settings.done[op.token], tier_io_word(op.ticket, result),
                         __ATOMIC_RELEASE);
    }
    return NULL;
}

int tier_io_new(const struct tier_io_settings *settings, struct tier_io **ret_io,
                struct errmsg *err)
{
    struct tier_io *io = mem_zalloc(sizeof(*io));

    io->settings = *settings;
    io->ring_max = settings->buffers_count + 1;
    io->ring = mem_calloc(io->ring_max, sizeof(*io->ring));
    (void)pthread_mutex_init(&io->lock, NULL);
    (void)pthread_cond_init(&io->wake, NULL);
    int r = pthread_create(&io->thread, NULL, io_main, io);
    if (r != 0) {
        (void)pthread_cond_destroy(&io->wake);
        (void)pthread_mutex_destroy(&io->lock);
        mem_free(io->ring);
        mem_free(io);
        return errmsg_set(err, -r, "start the thread of the disk tier: %s", strerror(r));
    }
    (void)pthread_setname_np(io->thread, "disk_tier");
    *ret_io = io;
    return 0;
}

int tier_io_free(struct tier_io *io)
{
    struct timespec deadline;

    if (io == NULL)
        return 0;
    (void)pthread_mutex_lock(&io->lock);
    io->stopping = true;
    (void)pthread_cond_signal(&io->wake);
    (void)pthread_mutex_unlock(&io->lock);
    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += STOP_S;
    if (pthread_timedjoin_np(io->thread, NULL, &deadline) != 0)
        return -ETIMEDOUT;
    (void)close(io->settings.folder);
    (void)pthread_cond_destroy(&io->wake);
    (void)pthread_mutex_destroy(&io->lock);
    mem_free(io->ring);
    mem_free(io);
    return 0;
}

void tier_io_submit(struct tier_io *io, const struct step_disk_op *ops, uint32_t count)
{
    if (count == 0)
        return;
    (void)pthread_mutex_lock(&io->lock);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(io->count < io->ring_max && ops[i].token <= io->settings.buffers_count);
        io->ring[(io->first + io->count++) % io->ring_max] = ops[i];
    }
    (void)pthread_cond_signal(&io->wake);
    (void)pthread_mutex_unlock(&io->lock);
}

bool tier_io_is_done(const uint32_t *word, uint32_t ticket, enum tier_io_result *ret_result)
{
    uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE), result = value & 15;

    if (value >> 4 != ticket)
        return false;
    *ret_result = result < TIER_IO_RESULTS ? (enum tier_io_result)result : TIER_IO_FAILED;
    return true;
}
