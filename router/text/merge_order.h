/* merge_order.h - merge.c's way through long words. */
#ifndef REFRAIN_ROUTER_TEXT_MERGE_ORDER_H
#define REFRAIN_ROUTER_TEXT_MERGE_ORDER_H

#include "router/text/merge.h"

/* Links and ranks of symbols[0..count) are set. O(n log n). */
void merge_run_in_order(struct merge *merge, const char *text, uint32_t count);

#endif
