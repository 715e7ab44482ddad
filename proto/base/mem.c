/* mem.c - malloc that cannot fail, and pages that can.
 *
 * A small allocation that fails means the machine is out of memory already: going on in an error
 * path that allocates again would only hide where. Big memory is asked for at start, where -ENOMEM
 * becomes a sentence for the operator. */
#include "proto/base/mem.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/assert.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static _Noreturn void out_of_memory(size_t bytes)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "out of memory: %zu bytes\n", bytes);

    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        abort();
    abort();
}

void *mem_alloc(size_t bytes)
{
    void *pointer = malloc(bytes > 0 ? bytes : 1); /* never NULL, so that NULL means absent */

    if (pointer == NULL)
        out_of_memory(bytes);
    return pointer;
}

void *mem_zalloc(size_t bytes)
{
    return mem_calloc(1, bytes);
}

void *mem_calloc(size_t count, size_t size)
{
    size_t bytes;
    void *pointer;

    if (__builtin_mul_overflow(count, size, &bytes))
        out_of_memory(SIZE_MAX);
    pointer = calloc(1, bytes > 0 ? bytes : 1);
    if (pointer == NULL)
        out_of_memory(bytes);
    return pointer;
}

void *mem_realloc(void *pointer, size_t bytes)
{
    void *moved = realloc(pointer, bytes > 0 ? bytes : 1);

    if (moved == NULL)
        out_of_memory(bytes);
    return moved;
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

char *mem_strndup(const char *text, size_t bytes)
{
    char *copy = mem_alloc(bytes + 1);

    if (bytes > 0)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

char *mem_printf(const char *format, ...)
{
    va_list args;
    char *text = NULL;
    int bytes;

    va_start(args, format);
    bytes = vasprintf(&text, format, args);
    va_end(args);
    if (bytes < 0)
        out_of_memory(strlen(format));
    return text;
}

void mem_free(void *pointer)
{
    free(pointer);
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Huge pages need a 2 MiB border: map 2 MiB more and give head and tail back. */
static void *map_aligned(size_t bytes)
{
    char *base = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t head;

    if (base == MAP_FAILED)
        return MAP_FAILED;
    head = round_up((uintptr_t)base, HUGE_PAGE_BYTES) - (uintptr_t)base;
    if (head > 0)
        (void)munmap(base, head);
    if (head < HUGE_PAGE_BYTES)
        (void)munmap(base + head + bytes, HUGE_PAGE_BYTES - head);
    return base + head;
}

int mem_map(size_t bytes, void **ret_pointer)
{
    size_t mapped;
    void *pointer;

    if (bytes > SIZE_MAX / 2)
        return -ENOMEM;
    mapped = round_up(bytes > 0 ? bytes : 1, page_bytes());
    if (mapped >= HUGE_PAGE_BYTES)
        pointer = map_aligned(mapped);
    else
        pointer = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointer == MAP_FAILED)
        return -ENOMEM;
    if (mapped >= HUGE_PAGE_BYTES)
        (void)madvise(pointer, mapped, MADV_HUGEPAGE); /* advice: a kernel without is fine */
    (void)madvise(pointer, mapped, MADV_DONTDUMP);
    *ret_pointer = pointer;
    return 0;
}

void mem_unmap(void *pointer, size_t bytes)
{
    int r;

    if (pointer == NULL)
        return;
    r = munmap(pointer, round_up(bytes > 0 ? bytes : 1, page_bytes()));
    ASSERT(r == 0);
}
