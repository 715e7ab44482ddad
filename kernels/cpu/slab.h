/* slab.h - memory for packed weights, in big pieces.
 *
 * A weight of a small model is less than a huge page; mapped one by one, weights would stream
 * through 4 KiB pages, 30 % slower than 2 MiB ones where decode is bound by memory. So weights are
 * placed one behind the other in slabs of 32 MiB.
 *
 * Thread: the one that loads and frees weights. */
#ifndef REFRAIN_KERNELS_CPU_SLAB_H
#define REFRAIN_KERNELS_CPU_SLAB_H

#include <stddef.h>

struct slab; /* opaque; counted: one reference per weight in it */

/* 64-byte aligned, zeroed. *current is the slab being filled (NULL at first). 0 or -ENOMEM. */
int slab_take(struct slab **current, size_t bytes, struct slab **ret_slab, void **ret_pointer);
/* Give one weight's reference back; the last one unmaps. */
void slab_unref(struct slab *slab);

#endif
