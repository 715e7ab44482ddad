/* ticket.c - charges on a worker (ticket.h has the picture). */
#include "router/route/ticket.h"

#include "proto/base/assert.h"
#include "proto/base/mem.h"

void ticket_load_init(struct ticket_load *load)
{
    *load = (struct ticket_load){0};
    list_init(&load->tickets);
}

struct ticket *ticket_new(struct ticket_load *load, double own_seconds, uint32_t blocks)
{
    struct ticket *ticket = mem_zalloc(sizeof(*ticket));
    ASSERT(own_seconds >= 0 && own_seconds < 1e9);
    ticket->load = load;
    ticket->own_ns = (uint64_t)(own_seconds * 1e9);
    ticket->blocks = blocks;
    list_push_back(&load->tickets, &ticket->link);
    load->count++;
    load->queued_ns += ticket->own_ns;
    load->queued_blocks += ticket->blocks;
    return ticket;
}

void ticket_first_token(struct ticket *ticket)
{
    if (ticket->state != TICKET_DISPATCHED)
        return;
    ASSERT(ticket->load->queued_ns >= ticket->own_ns);
    ASSERT(ticket->load->queued_blocks >= ticket->blocks);
    ticket->load->queued_ns -= ticket->own_ns;
    ticket->load->queued_blocks -= ticket->blocks;
    ticket->state = TICKET_STREAMING;
}

void ticket_release(struct ticket *ticket)
{
    struct ticket_load *load = ticket->load;
    ticket_first_token(ticket);
    ASSERT(load->count > 0);
    list_remove(&ticket->link);
    load->count--;
    mem_free(ticket);
}

void ticket_load_check(const struct ticket_load *load)
{
    uint32_t count = 0;
    uint64_t queued_ns = 0, queued_blocks = 0;
    LIST_FOR(item, &load->tickets)
    {
        const struct ticket *ticket = LIST_ENTRY(item, struct ticket, link);
        count++;
        if (ticket->state == TICKET_DISPATCHED) {
            queued_ns += ticket->own_ns;
            queued_blocks += ticket->blocks;
        }
    }
    ASSERT(count == load->count);
    ASSERT(queued_ns == load->queued_ns);
    ASSERT(queued_blocks == load->queued_blocks);
}
