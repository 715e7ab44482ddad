/* unicode.c - UTF-8, property pages, normalization forms.
 *
 * Why not utf8proc_map() for NFC: it orders combining marks by swapping neighbours, which takes
 * quadratic time on a long run of marks, and the text is a stranger's. Here each run is sorted with
 * a counting sort by combining class; decomposition and composition themselves are utf8proc's.
 *
 * CP_COMPOSES is set generously: for marks, conjoining Jamo vowels and finals, and whatever NFC
 * changes by itself. A text without such a code point is in NFC, which is all that is asked.
 *
 * Cost: a page is 256 look-ups, about 5 us; the tables of a whole multilingual text some 100 KB. */
#include "router/text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define DECOMPOSED_MAX 24 /* code points of one decomposition: 4 canonical, 18 compatible */

void unicode_init(struct unicode *unicode)
{
    memset(unicode, 0, sizeof(*unicode));
}

void unicode_done(struct unicode *unicode)
{
    for (uint32_t i = 0; i < CP_PAGES; i++)
        mem_free(unicode->pages[i]);
}

static bool is_white_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000;
}

static uint16_t category_bits(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return CP_LETTER | CP_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return CP_LETTER | CP_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CP_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return CP_MARK | CP_COMPOSES;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return CP_NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return CP_PUNCT;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return CP_SYMBOL;
    default:
        return 0;
    }
}

/* Canonical decomposition and composition of one code point: is it another one afterwards? */
static bool changes_alone(uint32_t cp)
{
    utf8proc_int32_t parts[DECOMPOSED_MAX];
    int last_class = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)cp, parts, DECOMPOSED_MAX,
                                UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last_class);
    if (count <= 0 || count > DECOMPOSED_MAX)
        return true;
    if (count == 1)
        return (uint32_t)parts[0] != cp;
    count = utf8proc_normalize_utf32(parts, count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return count != 1 || (uint32_t)parts[0] != cp;
}

static uint16_t code_point_bits(uint32_t cp)
{
    uint16_t bits = category_bits(cp);
    if (is_white_space(cp))
        bits |= CP_SPACE;
    if ((cp >= 0xfe00 && cp <= 0xfe0f) || (cp >= 0xe0100 && cp <= 0xe01ef))
        return CP_MARK; /* variation selectors: marks, but frequent (emoji) and never composed */
    if (cp < 0xc0 || (cp >= 0xd800 && cp <= 0xdfff))
        return bits;
    if ((cp >= 0x1160 && cp <= 0x11ff) ||
        utf8proc_get_property((utf8proc_int32_t)cp)->combining_class)
        bits |= CP_COMPOSES;
    if ((bits & CP_COMPOSES) == 0 && changes_alone(cp))
        bits |= CP_COMPOSES;
    return bits;
}

const uint16_t *unicode_page(struct unicode *unicode, uint32_t page)
{
    ASSERT(page < CP_PAGES && unicode->pages[page] == NULL);
    uint16_t *bits = mem_alloc(256 * sizeof(*bits));
    for (uint32_t i = 0; i < 256; i++)
        bits[i] = code_point_bits(page << 8 | i);
    unicode->pages[page] = bits;
    return bits;
}

/* --- UTF-8 ----------------------------------------------------------------------------------- */

uint32_t utf8_encode(uint32_t cp, char ret_text[4])
{
    if (cp < 0x80) {
        ret_text[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        ret_text[0] = (char)(0xc0 | cp >> 6);
        ret_text[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        ret_text[0] = (char)(0xe0 | cp >> 12);
        ret_text[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        ret_text[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    ret_text[0] = (char)(0xf0 | cp >> 18);
    ret_text[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    ret_text[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    ret_text[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

static uint32_t sequence_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The second byte's range depends on the first: no overlong forms, no surrogates, no planes past 16
 * (Unicode Standard, table 3-7). */
static bool second_fits(unsigned char first, unsigned char second)
{
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

uint32_t utf8_sequence(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    uint32_t length = bytes == 0 ? 0 : sequence_length(at[0]);
    if (length == 0 || length > bytes)
        return 0;
    if (length > 1 && !second_fits(at[0], at[1]))
        return 0;
    for (uint32_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

bool utf8_is_beginning(const unsigned char *bytes, uint32_t count)
{
    uint32_t length = sequence_length(bytes[0]);
    if (count >= length)
        return false;
    if (count > 1 && !second_fits(bytes[0], bytes[1]))
        return false;
    return count < 3 || (bytes[2] & 0xc0) == 0x80;
}

size_t utf8_valid_bytes(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight;
        if (at + sizeof(eight) <= bytes) {
            memcpy(&eight, text + at, sizeof(eight));
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof(eight);
                continue;
            }
        }
        uint32_t length = utf8_sequence(text + at, bytes - at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

/* --- forms ----------------------------------------------------------------------------------- */

static bool may_change(struct unicode *unicode, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t length = 1;
        if ((unsigned char)text[at] >= 0xc3) { /* below U+00C0 nothing composes */
            uint32_t cp = utf8_decode(text + at, &length);
            if ((unicode_bits(unicode, cp) & CP_COMPOSES) != 0)
                return true;
        }
        at += length;
    }
    return false;
}

static uint8_t combining_class(utf8proc_int32_t cp)
{
    return cp < 0x300 ? 0 : (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* Stable counting sort of a run of marks by combining class. */
static void sort_marks(utf8proc_int32_t *marks, size_t count, utf8proc_int32_t *scratch)
{
    size_t starts[257] = {0};
    for (size_t i = 0; i < count; i++)
        starts[combining_class(marks[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        starts[i] += starts[i - 1];
    for (size_t i = 0; i < count; i++)
        scratch[starts[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, scratch, count * sizeof(*marks));
}

static void order_marks(utf8proc_int32_t *cps, size_t count)
{
    utf8proc_int32_t *scratch = NULL;
    for (size_t at = 0; at < count;) {
        size_t end = at;
        bool sorted = true;
        uint8_t before = 0;
        for (; end < count; end++) {
            uint8_t class = combining_class(cps[end]);
            if (class == 0)
                break;
            sorted = sorted && class >= before;
            before = class;
        }
        if (!sorted) {
            if (scratch == NULL)
                scratch = mem_alloc(count * sizeof(*scratch));
            sort_marks(cps + at, end - at, scratch);
        }
        at = end + 1;
    }
    mem_free(scratch);
}

/* Decomposed code points of `text`; the caller frees them. */
static utf8proc_int32_t *decompose(const char *text, size_t bytes, bool compatible,
                                   size_t *ret_count)
{
    utf8proc_option_t options =
        UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    size_t max = bytes + DECOMPOSED_MAX, count = 0;
    utf8proc_int32_t *cps = mem_alloc(max * sizeof(*cps));
    for (size_t at = 0; at < bytes;) {
        uint32_t length = 0;
        int last_class = 0;
        uint32_t cp = utf8_decode(text + at, &length);
        if (count + DECOMPOSED_MAX > max) {
            max *= 2;
            cps = mem_realloc(cps, max * sizeof(*cps));
        }
        utf8proc_ssize_t parts = utf8proc_decompose_char((utf8proc_int32_t)cp, cps + count,
                                                         DECOMPOSED_MAX, options, &last_class);
        ASSERT(parts > 0 && parts <= DECOMPOSED_MAX);
        count += (size_t)parts;
        at += length;
    }
    *ret_count = count;
    return cps;
}

static bool is_ascii(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] >= 0x80)
            return false;
    }
    return true;
}

bool unicode_normalize(struct unicode *unicode, enum unicode_form form, const char *text,
                       size_t bytes, struct buffer *out)
{
    if (form == UNICODE_NFC ? !may_change(unicode, text, bytes) : is_ascii(text, bytes))
        return false;
    size_t count = 0;
    utf8proc_int32_t *cps =
        decompose(text, bytes, form == UNICODE_NFKC || form == UNICODE_NFKD, &count);
    order_marks(cps, count);
    if (form == UNICODE_NFC || form == UNICODE_NFKC) {
        utf8proc_ssize_t composed = utf8proc_normalize_utf32(cps, (utf8proc_ssize_t)count,
                                                             UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        ASSERT(composed >= 0);
        count = (size_t)composed;
    }
    for (size_t i = 0; i < count; i++) {
        char encoded[4];
        buffer_append(out, encoded, utf8_encode((uint32_t)cps[i], encoded));
    }
    mem_free(cps);
    return true;
}

bool unicode_is_word(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* joiners and circled letters */
        return cp == 0x200c || cp == 0x200d || (cp >= 0x24b6 && cp <= 0x24e9) ||
               (cp >= 0x1f130 && cp <= 0x1f149) || (cp >= 0x1f150 && cp <= 0x1f169) ||
               (cp >= 0x1f170 && cp <= 0x1f189);
    }
}
