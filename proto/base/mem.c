/* mem.c - malloc that cannot fail, and pages that can.
 *
 * A small allocation that fails means the machine is out of memory already: going on in an error
 * path that allocates again would only hide where. Big memory is asked for at start, where -ENOMEM
 * becomes a sentence for the operator. */
#include "proto/base/mem.h"

#include <errno.h>
#include <stdatomic.h>
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

/* Before every allocation. Counting at free needs size and purpose; the mark tells a pointer that
 * is not ours, or was freed before, from one that is. */
struct header {
    uint64_t bytes;
    uint32_t purpose;
    uint32_t mark;
};

#define MARK_LIVE 0x5245464cu
#define MARK_DEAD 0x44454144u

_Static_assert(sizeof(struct header) == 16, "what follows stays aligned for anything");

/* The one thing that is global by nature: one process has one memory. */
static struct {
    _Atomic uint64_t bytes, blocks;
} used[MEM_PURPOSE_COUNT];

static void note(enum mem_purpose purpose, int64_t bytes, int64_t blocks)
{
    ASSERT((unsigned)purpose < MEM_PURPOSE_COUNT);
    (void)atomic_fetch_add_explicit(&used[purpose].bytes, (uint64_t)bytes, memory_order_relaxed);
    if (blocks != 0)
        (void)atomic_fetch_add_explicit(&used[purpose].blocks, (uint64_t)blocks,
                                        memory_order_relaxed);
}

void mem_usage(enum mem_purpose purpose, struct mem_usage *ret_usage)
{
    ASSERT((unsigned)purpose < MEM_PURPOSE_COUNT);
    ret_usage->bytes = atomic_load_explicit(&used[purpose].bytes, memory_order_relaxed);
    ret_usage->blocks = atomic_load_explicit(&used[purpose].blocks, memory_order_relaxed);
}

#define PURPOSE_NAME(name, text) text,
static const char *const purpose_names[MEM_PURPOSE_COUNT] = {MEM_PURPOSES(PURPOSE_NAME)};

const char *mem_purpose_name(enum mem_purpose purpose)
{
    ASSERT((unsigned)purpose < MEM_PURPOSE_COUNT);
    return purpose_names[purpose];
}

static void *begin(struct header *header, enum mem_purpose purpose, size_t bytes)
{
    *header = (struct header){.bytes = bytes, .purpose = (uint32_t)purpose, .mark = MARK_LIVE};
    note(purpose, (int64_t)bytes, 1);
    return header + 1; /* never NULL, so that NULL means absent */
}

void *mem_try_alloc_as(enum mem_purpose purpose, size_t bytes)
{
    struct header *header = bytes < SIZE_MAX / 2 ? malloc(sizeof(struct header) + bytes) : NULL;
    return header != NULL ? begin(header, purpose, bytes) : NULL;
}

void *mem_alloc_as(enum mem_purpose purpose, size_t bytes)
{
    void *pointer = mem_try_alloc_as(purpose, bytes);

    if (pointer == NULL)
        out_of_memory(bytes);
    return pointer;
}

void *mem_calloc_as(enum mem_purpose purpose, size_t count, size_t size)
{
    struct header *header;
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes) || bytes >= SIZE_MAX / 2)
        out_of_memory(SIZE_MAX);
    header = calloc(1, sizeof(*header) + bytes);
    if (header == NULL)
        out_of_memory(bytes);
    return begin(header, purpose, bytes);
}

/* The header of a pointer that is ours. */
static struct header *header_of(void *pointer)
{
    struct header *header = (struct header *)pointer - 1;
    ASSERT(header->mark == MARK_LIVE);
    return header;
}

void *mem_try_realloc_as(enum mem_purpose purpose, void *pointer, size_t bytes)
{
    struct header *header;
    uint64_t before;

    if (pointer == NULL)
        return mem_try_alloc_as(purpose, bytes);
    header = header_of(pointer);
    before = header->bytes;
    header = bytes < SIZE_MAX / 2 ? realloc(header, sizeof(*header) + bytes) : NULL;
    if (header == NULL)
        return NULL;
    header->bytes = bytes;
    note(header->purpose, (int64_t)bytes - (int64_t)before, 0);
    return header + 1;
}

void *mem_realloc_as(enum mem_purpose purpose, void *pointer, size_t bytes)
{
    void *moved = mem_try_realloc_as(purpose, pointer, bytes);

    if (moved == NULL)
        out_of_memory(bytes);
    return moved;
}

char *mem_strndup_as(enum mem_purpose purpose, const char *text, size_t bytes)
{
    char *copy = mem_alloc_as(purpose, bytes + 1);

    if (bytes > 0)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

char *mem_vprintf_as(enum mem_purpose purpose, const char *format, va_list args)
{
    va_list again;
    char *text;
    int bytes;

    va_copy(again, args);
    bytes = vsnprintf(NULL, 0, format, args);
    ASSERT(bytes >= 0);
    text = mem_alloc_as(purpose, (size_t)bytes + 1);
    (void)vsnprintf(text, (size_t)bytes + 1, format, again);
    va_end(again);
    return text;
}

void mem_free(void *pointer)
{
    struct header *header;

    if (pointer == NULL)
        return;
    header = header_of(pointer);
    note(header->purpose, -(int64_t)header->bytes, -1);
    header->mark = MARK_DEAD;
    free(header);
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

int mem_map_as(enum mem_purpose purpose, size_t bytes, void **ret_pointer)
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
    note(purpose, (int64_t)mapped, 1);
    *ret_pointer = pointer;
    return 0;
}

void mem_unmap_as(enum mem_purpose purpose, void *pointer, size_t bytes)
{
    size_t mapped = round_up(bytes > 0 ? bytes : 1, page_bytes());
    int r;

    if (pointer == NULL)
        return;
    note(purpose, -(int64_t)mapped, -1);
    r = munmap(pointer, mapped);
    ASSERT(r == 0);
}
