/* charsmap.c - a double-array trie (Aoe 1989, as darts-clone packs it) and the texts it points to.
 *
 *   u32 bytes of the array | units | texts, each ends with a NUL
 *   unit: bit 31 and low byte: label (a value has bit 31); bit 8: a value hangs below;
 *         bits 10-30: offset to the children, shifted by 8 more when bit 9 is set
 *
 * The child of node n along byte b is at n ^ offset ^ b, if that unit's label is b. Walking only
 * reads units inside the array; a value past the texts is no match. */
#include "router/text/charsmap.h"

#include <errno.h>
#include <string.h>

#include "router/text/unicode.h"

#define LABEL_MASK (1u << 31 | 0xffu)
#define VALUE_MASK ((1u << 31) - 1)

static uint32_t unit_at(const struct charsmap *map, uint32_t i)
{
    uint32_t unit;
    memcpy(&unit, map->units + (size_t)i * sizeof(unit), sizeof(unit));
    return unit;
}

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The node along `byte`, 0: none (the root is nobody's child). */
static uint32_t child(const struct charsmap *map, uint32_t node, unsigned char byte)
{
    uint32_t next = node ^ unit_offset(unit_at(map, node)) ^ byte;
    return next < map->units_count && (unit_at(map, next) & LABEL_MASK) == byte ? next : 0;
}

int charsmap_init(struct charsmap *map, const void *data, uint32_t bytes, struct errmsg *err)
{
    uint32_t array_bytes = 0;
    memset(map, 0, sizeof(*map));
    if (data == NULL)
        return 0;
    if (bytes >= sizeof(array_bytes))
        memcpy(&array_bytes, data, sizeof(array_bytes));
    if (bytes < sizeof(array_bytes) || array_bytes > bytes - sizeof(array_bytes) ||
        array_bytes < sizeof(uint32_t) || array_bytes % sizeof(uint32_t) != 0)
        return errmsg_set(err, -EINVAL, "precompiled_charsmap: an array of %u bytes in %u",
                          array_bytes, bytes);
    map->units = (const uint8_t *)data + sizeof(array_bytes);
    map->units_count = array_bytes / (uint32_t)sizeof(uint32_t);
    map->texts = (const char *)map->units + array_bytes;
    map->texts_bytes = bytes - (uint32_t)sizeof(array_bytes) - array_bytes;
    if (map->texts_bytes == 0 || map->texts[map->texts_bytes - 1] != '\0')
        return errmsg_set(err, -EINVAL, "precompiled_charsmap: its texts do not end with a NUL");
    if (utf8_valid_bytes(map->texts, map->texts_bytes) != map->texts_bytes)
        return errmsg_set(err, -EINVAL, "precompiled_charsmap: its texts are not UTF-8");
    for (unsigned byte = 1; byte < 256; byte++)
        map->begins[byte] = child(map, 0, (unsigned char)byte) != 0;
    return 0;
}

size_t charsmap_find(const struct charsmap *map, const char *text, size_t bytes, bool shortest,
                     const char **ret_text)
{
    size_t found = 0;
    uint32_t node = 0;
    if (bytes == 0 || !map->begins[(unsigned char)text[0]])
        return 0;
    for (size_t at = 0; at < bytes && text[at] != '\0'; at++) {
        node = child(map, node, (unsigned char)text[at]);
        if (node == 0)
            break;
        uint32_t unit = unit_at(map, node), leaf = node ^ unit_offset(unit);
        bool whole = at + 1 == bytes || ((unsigned char)text[at + 1] & 0xc0) != 0x80;
        if ((unit >> 8 & 1) == 0 || leaf >= map->units_count || !whole)
            continue;
        uint32_t value = unit_at(map, leaf) & VALUE_MASK;
        if (value >= map->texts_bytes)
            continue;
        /* A text that starts inside a character cannot be meant. */
        if (((unsigned char)map->texts[value] & 0xc0) == 0x80)
            continue;
        *ret_text = map->texts + value;
        found = at + 1;
        if (shortest)
            break;
    }
    return found;
}
