/* status_page.c - the bytes of status_page.html (made by router/CMakeLists.txt) and their headers.
 */
#include "router/http/status_page.h"

#include "router/http/server.h"

static const unsigned char page[] = {
#include "router/http/status_page.inc"
};

void status_page_handler(struct http_exchange *exchange, void *user)
{
    (void)user;
    http_exchange_add_header(exchange, "Content-Security-Policy",
                             "default-src 'none'; style-src 'unsafe-inline'; script-src "
                             "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'");
    http_exchange_add_header(exchange, "X-Content-Type-Options", "nosniff");
    http_exchange_add_header(exchange, "Referrer-Policy", "no-referrer");
    http_exchange_add_header(exchange, "Cache-Control", "no-cache");
    http_exchange_reply(exchange, 200, "text/html; charset=utf-8", page, sizeof(page));
}
