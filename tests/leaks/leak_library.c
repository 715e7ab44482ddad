/* leak_library.c - a router in which somebody's malloc is lost with each request: not counted by
 * proto/base/mem.h, as in a library (linked with --wrap). */
#include <stdlib.h>
#include <string.h>

#include "router/route/ticket.h"

#define LOST_BYTES ((size_t)1 << 20)

struct ticket *__real_ticket_new(struct ticket_load *load, double own_seconds, uint32_t blocks);
struct ticket *__wrap_ticket_new(struct ticket_load *load, double own_seconds, uint32_t blocks);

struct ticket *__wrap_ticket_new(struct ticket_load *load, double own_seconds, uint32_t blocks)
{
    static void *volatile lost;
    lost = malloc(LOST_BYTES);
    if (lost)
        memset(lost, 1, LOST_BYTES);
    return __real_ticket_new(load, own_seconds, blocks);
}
