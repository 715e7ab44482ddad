/* harness_proc.h - what the end-to-end tests see of other processes: /proc, /dev/shm and time.
 *
 * A zombie counts as gone: it runs nothing and holds nothing. Nothing here sleeps for a fixed time
 * to wait for something: poll_until asks again until a deadline. Thread: any. */
#ifndef REFRAIN_TESTS_E2E_HARNESS_PROC_H
#define REFRAIN_TESTS_E2E_HARNESS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Ask `is_so` every 5 ms; false: not so within deadline_ms. */
bool poll_until(bool (*is_so)(void *user), void *user, uint32_t deadline_ms);

bool proc_is_alive(pid_t pid);
bool proc_is_stopped(pid_t pid); /* by SIGSTOP */
/* Processes whose command line or environment holds `text`, but this one. Returns how many. */
size_t proc_with_text(const char *text, pid_t *ret_pids, size_t pids_max);
/* Command line with spaces; "" when it is gone. */
void proc_command_line(pid_t pid, char *ret_text, size_t text_max);
int proc_fds(pid_t pid); /* open file descriptors; -1: gone */
double proc_cpu_seconds(pid_t pid);
uint64_t proc_resident_bytes(pid_t pid);
bool proc_is_sanitized(pid_t pid); /* its address space has the shadow of a sanitizer */
pid_t proc_parent(pid_t pid);

/* Names in a folder, sorted, a line each; mem_free() it. */
char *folder_listing(const char *path);
/* A whole file, terminated; NULL: not there. mem_free() it. */
char *file_read(const char *path, size_t *ret_bytes);
void file_write(const char *path, const char *text);
bool file_exists(const char *path);
/* A folder tree below /tmp that this program made. */
void folder_remove(const char *path);

#endif
