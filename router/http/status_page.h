/* status_page.h - the page at `/`: a chat box and the workers' blocks. status_page.html is built in
 * as bytes; nothing is loaded from anywhere else. */
#ifndef REFRAIN_ROUTER_HTTP_STATUS_PAGE_H
#define REFRAIN_ROUTER_HTTP_STATUS_PAGE_H

struct http_exchange;

void status_page_handler(struct http_exchange *exchange, void *user);

#endif
