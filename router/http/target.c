/* target.c - split first, decode after: an encoded '/', '?' or '#' never acts as a real one.
 *
 *   http://host:80/v1/models/a%2Fb?x=1#f      path "/v1/models/a/b", segment "a/b", query "x=1"
 *
 * Why in place: decoding only shrinks, and the text lives in the parser's head buffer already. */
#include "router/http/target.h"

#include <string.h>
#include <strings.h>

#include "proto/base/utf8.h"
#include "router/http/token.h"

/* Where the path of an absolute-form begins; NULL: no absolute-form. An empty path means "/". */
static char *skip_authority(char *text)
{
    size_t scheme = strncasecmp(text, "http://", 7) == 0    ? 7
                    : strncasecmp(text, "https://", 8) == 0 ? 8
                                                            : 0;
    size_t authority;

    if (scheme == 0)
        return NULL;
    authority = strcspn(text + scheme, "/?#");
    return authority > 0 ? text + scheme + authority : NULL;
}

/* Decode `path` in place. Returns a sentence, or NULL and the offset of the last segment. */
static const char *decode_path(char *path, uint32_t *ret_segment)
{
    char *out = path;

    for (const char *in = path; *in != '\0'; in++) {
        char c = *in;

        if (c == '%') {
            int high = token_hex(in[1]);
            int low = high < 0 ? -1 : token_hex(in[2]);

            if (low < 0)
                return "The path has a malformed percent-encoding.";
            c = (char)(16 * high + low);
            in += 2;
            if ((unsigned char)c < 0x20 || c == 0x7f)
                return "The path encodes a control character.";
        } else if (c == '/') {
            *ret_segment = (uint32_t)(out + 1 - path);
        }
        *out++ = c;
    }
    *out = '\0';
    if (utf8_span(path, (size_t)(out - path)) != (size_t)(out - path))
        return "The path is not UTF-8.";
    return NULL;
}

const char *http_target_split(char *text, struct http_target *ret_target)
{
    struct http_target target = {0};
    char *path = text;
    char *query;
    const char *why;

    text[strcspn(text, "#")] = '\0';
    if (token_span(text, strlen(text), TOKEN_URI) != strlen(text))
        return "The target has a character that must be percent-encoded.";
    if (strcmp(text, "*") == 0) {
        *ret_target = target;
        return NULL;
    }
    if (*text != '/')
        path = skip_authority(text);
    if (path == NULL)
        return "The target must be a path that begins with '/', or an http URL.";
    query = strchr(path, '?');
    if (query != NULL) {
        *query = '\0';
        target.has_query = true;
        target.query = (uint32_t)(query + 1 - text);
    }
    if (*path == '\0') { /* only from an absolute-form, whose scheme leaves room */
        path = text;
        memcpy(path, "/", 2);
    }
    target.path = (uint32_t)(path - text);
    why = decode_path(path, &target.segment);
    if (why != NULL)
        return why;
    target.segment += target.path;
    *ret_target = target;
    return NULL;
}
