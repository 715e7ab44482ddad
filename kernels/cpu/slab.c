/* slab.c - bump allocation of packed weights (why: slab.h).
 *
 *   current --> [weight|weight|weight|  free  ]      full slabs are known to their weights only
 *
 * The backend holds a reference on the current slab too. Room is not reused before its slab is
 * empty: weights live as long as the model. */
#include "kernels/cpu/slab.h"

#include <errno.h>
#include <stdint.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define SLAB_BYTES ((size_t)32 << 20)
#define ALIGN 64

struct slab {
    uint8_t *memory;
    size_t bytes, used;
    unsigned references;
};

static int slab_new(size_t bytes, struct slab **ret_slab)
{
    void *memory;
    if (mem_map_as(MEM_WEIGHTS, bytes, &memory) < 0)
        return -ENOMEM;
    struct slab *slab = mem_zalloc(sizeof(*slab));
    *slab = (struct slab){.memory = memory, .bytes = bytes, .references = 1};
    *ret_slab = slab;
    return 0;
}

int slab_take(struct slab **current, size_t bytes, struct slab **ret_slab, void **ret_pointer)
{
    struct slab *slab = *current;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (slab == NULL || slab->bytes - slab->used < bytes) {
        if (slab_new(bytes > SLAB_BYTES ? bytes : SLAB_BYTES, &slab) < 0)
            return -ENOMEM;
        if (*current != NULL)
            slab_unref(*current);
        *current = slab; /* takes over the reference of slab_new */
    }
    *ret_pointer = slab->memory + slab->used;
    *ret_slab = slab;
    slab->used += bytes;
    slab->references++;
    return 0;
}

void slab_unref(struct slab *slab)
{
    ASSERT(slab->references > 0);
    if (--slab->references > 0)
        return;
    mem_unmap_as(MEM_WEIGHTS, slab->memory, slab->bytes);
    mem_free(slab);
}
