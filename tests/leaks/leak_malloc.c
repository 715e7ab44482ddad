/* leak_malloc.c - a router that forgets a request's arena now and then (linked with --wrap). */
#include <stdatomic.h>

#include "proto/base/arena.h"

void __real_arena_done(struct arena *arena);
void __wrap_arena_done(struct arena *arena);

void __wrap_arena_done(struct arena *arena)
{
    static atomic_uint calls;
    if (atomic_fetch_add(&calls, 1) % 4 != 3)
        __real_arena_done(arena);
}
