/* heap_trim.h - freed memory goes back to the kernel.
 *
 * glibc gives back what lies at the end of a heap; a large body, template or grammar leaves a
 * hundred MiB of free pages in the middle, which stay resident below whatever was allocated after
 * it. So the loop looks every few seconds, and trims when much more is resident than is in use.
 * Thread: the loop's. */
#ifndef REFRAIN_ROUTER_HEAP_TRIM_H
#define REFRAIN_ROUTER_HEAP_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#define HEAP_TRIM_LOOK_MS 2000u
#define HEAP_TRIM_PAUSE_MS 30000u /* after one that was done: it takes some 0.2 ms per MiB */

struct heap_trim { /* all zeroes: nothing was looked at */
    uint64_t next_ms;
};

/* Is `resident` so far above `used` (both bytes) that it is worth it? A quarter for fragments, and
 * 64 MiB for code, stacks and what libraries hold; while requests are open, who would wait for it,
 * 512 MiB. */
bool heap_trim_due(uint64_t resident, uint64_t used, bool idle);
/* Called often. idle: no request is open. True: a trim was done. */
bool heap_trim_tick(struct heap_trim *trim, uint64_t now_ms, bool idle);

#endif
