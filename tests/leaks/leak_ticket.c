/* leak_ticket.c - a router that forgets a ticket now and then (linked with --wrap). */
#include <stdatomic.h>

#include "router/route/ticket.h"

void __real_ticket_release(struct ticket *ticket);
void __wrap_ticket_release(struct ticket *ticket);

void __wrap_ticket_release(struct ticket *ticket)
{
    static atomic_uint calls;
    if (atomic_fetch_add(&calls, 1) % 8 != 7)
        __real_ticket_release(ticket);
}
