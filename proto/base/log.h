/* log.h - one line a fact: `time level module event=... key=value ...`.
 *
 * A file that logs has `#define LOG_MODULE "sched"` before its includes. Levels are per module and
 * may be switched while running. Values with spaces or quotes are the caller's to quote. Never a
 * prompt's text. Thread: any; a line is written with one write(2). Under systemd (JOURNAL_STREAM
 * names our stderr) the "<n>" priority prefix replaces the time. */
#ifndef REFRAIN_PROTO_BASE_LOG_H
#define REFRAIN_PROTO_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR = 0, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Identify the process in each line ("router", "worker.0.1"); at most 31 bytes. Default level info.
 */
void log_init(const char *process, enum log_level level);
/* Level of one module (at most 32 modules may differ from the default), or of all with module NULL.
 * 0, or -ENOSPC. */
int log_set_level(const char *module, enum log_level level);
bool log_enabled(enum log_level level, const char *module);
/* "error" "warn" "info" "debug" -> level; -EINVAL for anything else. */
int log_level_parse(const char *text, enum log_level *ret_level);
const char *log_level_name(enum log_level level);

void log_write(enum log_level level, const char *module, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define LOG_AT(level, event, ...) \
    (log_enabled(level, LOG_MODULE) ? log_write(level, LOG_MODULE, event, __VA_ARGS__) : (void)0)
#define log_error(event, ...) LOG_AT(LOG_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...) LOG_AT(LOG_WARN, event, __VA_ARGS__)
#define log_info(event, ...) LOG_AT(LOG_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) LOG_AT(LOG_DEBUG, event, __VA_ARGS__)

#endif
