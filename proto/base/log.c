/* log.c - log lines to stderr.
 *
 *   2026-11-29T19:33:08.123Z info worker.0.0 sched event=admit req=c41      (terminal, file)
 *   <6>info worker.0.0 sched event=admit req=c41                           (systemd's journal)
 *
 * A line is built on the stack and leaves with one write(2), so that lines of threads and processes
 * that share a stderr never mix (pipes keep writes up to 4096 bytes whole). Longer lines are cut.
 * Control characters become spaces: a value can never fake a second line.
 *
 * Levels are the only mutable state, with the name. The common case, no module differs from the
 * default, costs two relaxed loads; else the short table is read under a lock. */
#include "proto/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/assert.h"

#define LOG_LINE_BYTES_MAX 4096
#define LOG_NAME_BYTES_MAX 32
#define LOG_MODULES_MAX 32

struct module_level {
    char module[LOG_NAME_BYTES_MAX];
    enum log_level level;
};

static struct {
    char process[LOG_NAME_BYTES_MAX];
    bool journal; /* stderr is systemd's: it adds the time and wants a priority */
    atomic_int level;
    atomic_int modules_count;
    struct module_level modules[LOG_MODULES_MAX]; /* under `lock` */
    pthread_rwlock_t lock;
} state = {.process = "-", .level = LOG_INFO, .lock = PTHREAD_RWLOCK_INITIALIZER};

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const int level_priorities[] = {3, 4, 6, 7}; /* syslog's */

/* JOURNAL_STREAM is "device:inode" of what systemd connected; it is inherited by children whose
 * stderr went elsewhere, hence the comparison. */
static bool stderr_is_journal(void)
{
    const char *text = getenv("JOURNAL_STREAM");
    unsigned long long device;
    unsigned long long inode;
    struct stat st;

    if (text == NULL || sscanf(text, "%llu:%llu", &device, &inode) != 2)
        return false;
    if (fstat(STDERR_FILENO, &st) < 0)
        return false;
    return (unsigned long long)st.st_dev == device && (unsigned long long)st.st_ino == inode;
}

void log_init(const char *process, enum log_level level)
{
    ASSERT(level >= LOG_ERROR && level <= LOG_DEBUG);
    (void)snprintf(state.process, sizeof(state.process), "%s", process);
    state.journal = stderr_is_journal();
    (void)log_set_level(NULL, level);
}

static struct module_level *find_module(const char *module)
{
    int count = atomic_load_explicit(&state.modules_count, memory_order_relaxed);

    for (int i = 0; i < count; i++) {
        if (strncmp(state.modules[i].module, module, LOG_NAME_BYTES_MAX - 1) == 0)
            return &state.modules[i];
    }
    return NULL;
}

/* Under the lock. A module at the default level needs no row: its row is given back. */
static int set_module_level(const char *module, enum log_level level)
{
    struct module_level *row = find_module(module);
    int count = atomic_load_explicit(&state.modules_count, memory_order_relaxed);

    if ((int)level == atomic_load_explicit(&state.level, memory_order_relaxed)) {
        if (row != NULL) {
            *row = state.modules[count - 1];
            atomic_store_explicit(&state.modules_count, count - 1, memory_order_relaxed);
        }
        return 0;
    }
    if (row == NULL) {
        if (count == LOG_MODULES_MAX)
            return -ENOSPC;
        row = &state.modules[count];
        (void)snprintf(row->module, sizeof(row->module), "%s", module);
        atomic_store_explicit(&state.modules_count, count + 1, memory_order_relaxed);
    }
    row->level = level;
    return 0;
}

int log_set_level(const char *module, enum log_level level)
{
    int r = 0;

    ASSERT(level >= LOG_ERROR && level <= LOG_DEBUG);
    (void)pthread_rwlock_wrlock(&state.lock);
    if (module == NULL) {
        atomic_store_explicit(&state.level, (int)level, memory_order_relaxed);
        atomic_store_explicit(&state.modules_count, 0, memory_order_relaxed);
    } else {
        r = set_module_level(module, level);
    }
    (void)pthread_rwlock_unlock(&state.lock);
    return r;
}

bool log_enabled(enum log_level level, const char *module)
{
    int limit = atomic_load_explicit(&state.level, memory_order_relaxed);

    if (atomic_load_explicit(&state.modules_count, memory_order_relaxed) > 0) {
        const struct module_level *row;

        (void)pthread_rwlock_rdlock(&state.lock);
        row = find_module(module);
        if (row != NULL)
            limit = (int)row->level;
        (void)pthread_rwlock_unlock(&state.lock);
    }
    return (int)level <= limit;
}

int log_level_parse(const char *text, enum log_level *ret_level)
{
    for (int i = LOG_ERROR; i <= LOG_DEBUG; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *log_level_name(enum log_level level)
{
    ASSERT(level >= LOG_ERROR && level <= LOG_DEBUG);
    return level_names[level];
}

/* Time or priority, level, process, module, event. Returns the length. */
static size_t write_head(char line[LOG_LINE_BYTES_MAX], enum log_level level, const char *module,
                         const char *event)
{
    size_t bytes = 0;
    int n;

    if (state.journal) {
        n = snprintf(line, 8, "<%d>", level_priorities[level]);
        bytes = (size_t)n;
    } else {
        struct timespec now;
        struct tm utc;

        (void)clock_gettime(CLOCK_REALTIME, &now);
        (void)gmtime_r(&now.tv_sec, &utc);
        bytes = strftime(line, 32, "%Y-%m-%dT%H:%M:%S", &utc);
        n = snprintf(line + bytes, 16, ".%03dZ ", (int)(now.tv_nsec / 1000000));
        bytes += (size_t)n;
    }
    n = snprintf(line + bytes, LOG_LINE_BYTES_MAX - bytes, "%s %s %s event=%s", level_names[level],
                 state.process, module, event);
    bytes += (size_t)n;
    return bytes < LOG_LINE_BYTES_MAX ? bytes : LOG_LINE_BYTES_MAX - 1;
}

void log_write(enum log_level level, const char *module, const char *event, const char *format, ...)
{
    char line[LOG_LINE_BYTES_MAX];
    size_t bytes;
    va_list args;
    int n;
    int errno_before = errno;

    ASSERT(level >= LOG_ERROR && level <= LOG_DEBUG);
    bytes = write_head(line, level, module, event);
    if (format[0] != '\0' && bytes < LOG_LINE_BYTES_MAX - 1)
        line[bytes++] = ' ';
    va_start(args, format);
    n = vsnprintf(line + bytes, LOG_LINE_BYTES_MAX - bytes, format, args);
    va_end(args);
    if (n > 0)
        bytes += (size_t)n;
    if (bytes > LOG_LINE_BYTES_MAX - 1)
        bytes = LOG_LINE_BYTES_MAX - 1;
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    }
    line[bytes++] = '\n';
    while (write(STDERR_FILENO, line, bytes) < 0 && errno == EINTR)
        ;
    errno = errno_before; /* a log line between a failed call and its errmsg_errno() is harmless */
}
