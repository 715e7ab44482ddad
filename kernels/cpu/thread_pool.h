/* thread_pool.h - the CPU backend's threads: one job at a time, cut into small numbered pieces.
 *
 * Thread: one caller. The caller works too, as thread 0; workers are threads 1 .. threads - 1.
 * Order:  which thread runs which piece is chance, so a piece's result may not depend on it.
 * Idle:   after some 30 us without a job workers park and take no processor time. */
#ifndef REFRAIN_KERNELS_CPU_THREAD_POOL_H
#define REFRAIN_KERNELS_CPU_THREAD_POOL_H

#include <stdint.h>

#include "proto/base/errmsg.h"

struct thread_pool; /* opaque */

/* Piece `piece` (0 .. pieces - 1) of a job; thread says whose scratch may be used. */
typedef void (*thread_pool_fn)(void *context, uint32_t piece, unsigned thread);

/* threads >= 1, the caller included. 0, or -ENOMEM: the system gives no more threads. */
int thread_pool_new(unsigned threads, struct thread_pool **ret_pool, struct errmsg *err);
void thread_pool_free(struct thread_pool *pool); /* NULL is fine */
/* Run fn for every piece and return when all are done; low numbers start first. */
void thread_pool_run(struct thread_pool *pool, thread_pool_fn fn, void *context, uint32_t pieces);
unsigned thread_pool_threads(const struct thread_pool *pool);

#endif
