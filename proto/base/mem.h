/* mem.h - memory: small allocations abort when memory is out, big ones say so.
 *
 * Thread: any. Everything from mem_alloc/mem_zalloc/mem_realloc/mem_strdup/mem_printf goes back
 * through mem_free(NULL is fine); everything from mem_map goes back through mem_unmap. */
#ifndef REFRAIN_PROTO_BASE_MEM_H
#define REFRAIN_PROTO_BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>

void *mem_alloc(size_t bytes);
void *mem_zalloc(size_t bytes);
/* count * size, overflow checked (overflow aborts), zeroed. */
void *mem_calloc(size_t count, size_t size);
void *mem_realloc(void *pointer, size_t bytes);
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t bytes); /* all `bytes`, NULs too, and a NUL */
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void mem_free(void *pointer);

/* Big memory (weights, KV pool, tables): zeroed anonymous pages, 64-byte aligned or better, huge
 * pages advised from 2 MiB on, excluded from core dumps (they hold users' text in another form).
 * 0, or -ENOMEM. */
int mem_map(size_t bytes, void **ret_pointer);
void mem_unmap(void *pointer, size_t bytes);

#endif
