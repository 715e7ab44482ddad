/* charsmap.h - SentencePiece's precompiled character map: text -> its normalized form, by prefix.
 *
 * The bytes come from a model file and belong to its card; every offset is checked. Immutable. */
#ifndef REFRAIN_ROUTER_TEXT_CHARSMAP_H
#define REFRAIN_ROUTER_TEXT_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

struct charsmap {
    const uint8_t *units; /* double array, 4 bytes each, not aligned; NULL: no map */
    uint32_t units_count;
    const char *texts; /* replacements, each ends with a NUL */
    uint32_t texts_bytes;
    bool begins[256]; /* bytes that some key begins with */
};

/* data NULL: an empty map. -EINVAL: sizes that do not fit each other, or a replacement that is not
 * UTF-8. */
int charsmap_init(struct charsmap *map, const void *data, uint32_t bytes, struct errmsg *err);
/* Length of a key that `text` begins with, 0: none; *ret_text is what it becomes. The longest one,
 * or with `shortest` the shortest. */
size_t charsmap_find(const struct charsmap *map, const char *text, size_t bytes, bool shortest,
                     const char **ret_text);

#endif
