/* mem.h - memory with a purpose: small allocations abort when memory is out, big ones say so.
 *
 * Every allocation is counted under a purpose, so that `show memory`, the metrics and the leak
 * verdict can say who holds what: the purpose is the folder's (cmake/Refrain.cmake defines
 * MEM_PURPOSE per library) unless a file defines its own before its first include. Books kept by
 * buffers, arenas, maps and queues count for whoever made them.
 *
 * Thread: any. Everything from mem_alloc/mem_zalloc/mem_realloc/mem_strdup/mem_printf goes back
 * through mem_free(NULL is fine); everything from mem_map goes back through mem_unmap, in a file of
 * the same purpose. */
#ifndef REFRAIN_PROTO_BASE_MEM_H
#define REFRAIN_PROTO_BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_PURPOSES(X)                                                                \
    X(OTHER, "other")         /* programs, tests */                                    \
    X(WEIGHTS, "weights")     /* packed, mapped */                                     \
    X(ADAPTERS, "adapters")   /* slots of LoRA adapters, mapped */                     \
    X(KV_POOL, "kv_pool")     /* the blocks' keys and values, mapped */                \
    X(TIERS, "kv_tiers")      /* blocks that left the pool, mapped, and their books */ \
    X(KV_BOOKS, "kv_books")   /* who holds which block */                              \
    X(SCHEDULER, "scheduler") /* sequences: ids, block tables, hashes */               \
    X(ENGINE, "engine")       /* step buffers, logits, outputs on their way */         \
    X(SAMPLER, "sampler")                                                              \
    X(MODEL, "model")       /* activations, loading */                                 \
    X(GROUP, "group")       /* ranks and what they share */                            \
    X(KERNELS, "kernels")   /* scratch of threads */                                   \
    X(WORKER, "worker")     /* links, admin socket */                                  \
    X(CARDS, "model_cards") /* vocabularies, frames */                                 \
    X(GRAMMAR, "grammars")  /* compiled grammars and their masks */                    \
    X(ROUTER, "router")     /* requests, links to workers */                           \
    X(HTTP, "http")         /* clients, bodies, answers going out */                   \
    X(API, "api")                                                                      \
    X(TEXT, "text") /* tokenizers, templates, a render at work */                      \
    X(TEXT_CACHE, "text_cache")                                                        \
    X(SESSIONS, "sessions") /* records of chats, session limits */                     \
    X(ANSWERS, "answers")   /* parsers of tool calls and reasoning */                  \
    X(ROUTING, "routing")   /* prefix index, tickets */                                \
    X(JSON, "json")         /* jansson */                                              \
    X(BASE, "base")         /* settings, metrics, logs */

#define MEM_PURPOSE_ENUM(name, text) MEM_##name,
enum mem_purpose { MEM_PURPOSES(MEM_PURPOSE_ENUM) MEM_PURPOSE_COUNT };

#ifndef MEM_PURPOSE
#define MEM_PURPOSE MEM_OTHER
#endif

void *mem_alloc_as(enum mem_purpose purpose, size_t bytes);
/* count * size, overflow checked (overflow aborts), zeroed. */
void *mem_calloc_as(enum mem_purpose purpose, size_t count, size_t size);
/* NULL when memory is out, for those who are bounded and can say so. */
void *mem_try_alloc_as(enum mem_purpose purpose, size_t bytes);
void *mem_try_realloc_as(enum mem_purpose purpose, void *pointer, size_t bytes);
void *mem_realloc_as(enum mem_purpose purpose, void *pointer, size_t bytes);
char *mem_strndup_as(enum mem_purpose purpose, const char *text, size_t bytes);
char *mem_vprintf_as(enum mem_purpose purpose, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
int mem_map_as(enum mem_purpose purpose, size_t bytes, void **ret_pointer);
void mem_unmap_as(enum mem_purpose purpose, void *pointer, size_t bytes);
void mem_free(void *pointer);

static inline void *mem_alloc(size_t bytes)
{
    return mem_alloc_as(MEM_PURPOSE, bytes);
}
static inline void *mem_calloc(size_t count, size_t size)
{
    return mem_calloc_as(MEM_PURPOSE, count, size);
}
static inline void *mem_zalloc(size_t bytes)
{
    return mem_calloc_as(MEM_PURPOSE, 1, bytes);
}
static inline void *mem_realloc(void *pointer, size_t bytes)
{
    return mem_realloc_as(MEM_PURPOSE, pointer, bytes);
}
/* All `bytes`, NULs too, and a NUL. */
static inline char *mem_strndup(const char *text, size_t bytes)
{
    return mem_strndup_as(MEM_PURPOSE, text, bytes);
}
static inline char *mem_strdup(const char *text)
{
    return mem_strndup_as(MEM_PURPOSE, text, __builtin_strlen(text));
}
static inline __attribute__((format(printf, 1, 2))) char *mem_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf_as(MEM_PURPOSE, format, args);
    va_end(args);
    return text;
}
/* Big memory (weights, KV pool, tables): zeroed anonymous pages, 64-byte aligned or better, huge
 * pages advised from 2 MiB on, excluded from core dumps (they hold users' text in another form).
 * 0, or -ENOMEM. */
static inline int mem_map(size_t bytes, void **ret_pointer)
{
    return mem_map_as(MEM_PURPOSE, bytes, ret_pointer);
}
static inline void mem_unmap(void *pointer, size_t bytes)
{
    mem_unmap_as(MEM_PURPOSE, pointer, bytes);
}

/* What this process holds now. A mapped page counts before it is first touched. */
struct mem_usage {
    uint64_t bytes; /* as asked for, headers of 16 bytes not included */
    uint64_t blocks;
};
void mem_usage(enum mem_purpose purpose, struct mem_usage *ret_usage);
const char *mem_purpose_name(enum mem_purpose purpose);

#endif
