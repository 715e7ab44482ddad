/* target.h - the request target: which path, which query (RFC 9112 3.2, RFC 3986). Thread: any. */
#ifndef REFRAIN_ROUTER_HTTP_TARGET_H
#define REFRAIN_ROUTER_HTTP_TARGET_H

#include <stdbool.h>
#include <stdint.h>

struct http_target {  /* offsets into the text given */
    uint32_t path;    /* percent-decoded, begins with '/'; or "*" */
    uint32_t segment; /* behind the last '/' that was not percent-encoded */
    uint32_t query;   /* raw, when has_query */
    bool has_query;
};

/* Split and decode in place: origin-form, absolute-form (its authority is checked and dropped) or
 * "*". A '#fragment' is dropped. NULL, or a constant sentence that says what is wrong; then the
 * text may be half changed. Refused: characters outside RFC 3986, bad or cut percent-encodings,
 * encoded control characters, and paths that do not decode to UTF-8. */
const char *http_target_split(char *text, struct http_target *ret_target);

#endif
