/* charset.c - ranges of code points -> ranges of bytes.
 *
 * A range is cut where the number of UTF-8 bytes changes, then into pieces in which all last bytes
 * are free: U+0800..U+0FFF is E0 [A0-BF] [80-BF]. Pieces end in the same free bytes again and
 * again, so the nodes behind them are shared: "any character" needs 8 nodes, not 30. */
#include "proto/grammar/charset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"

#define SURROGATES_LO 0xd800u
#define SURROGATES_HI 0xdfffu
#define CONTINUATION_LO 0x80u
#define CONTINUATION_HI 0xbfu

void charset_init(struct charset *set)
{
    *set = (struct charset){0};
}

void charset_done(struct charset *set)
{
    mem_free(set->ranges);
    charset_init(set);
}

void charset_add(struct charset *set, uint32_t lo, uint32_t hi)
{
    if (set->count == set->max) {
        set->max = set->max == 0 ? 4 : set->max * 2;
        set->ranges = mem_realloc(set->ranges, set->max * sizeof(*set->ranges));
    }
    set->ranges[set->count++] = (struct charset_range){lo, hi};
}

void charset_add_set(struct charset *set, const struct charset *other)
{
    for (uint32_t i = 0; i < other->count; i++)
        charset_add(set, other->ranges[i].lo, other->ranges[i].hi);
}

static int by_lo(const void *a, const void *b)
{
    const struct charset_range *x = a, *y = b;

    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Sorted and joined ranges without [lo, hi]: appended to *out. */
static void add_without_surrogates(struct charset *out, uint32_t lo, uint32_t hi)
{
    if (lo < SURROGATES_LO && hi >= SURROGATES_LO)
        charset_add(out, lo, SURROGATES_LO - 1);
    if (hi > SURROGATES_HI && lo <= SURROGATES_HI)
        charset_add(out, SURROGATES_HI + 1, hi);
    if (hi < SURROGATES_LO || lo > SURROGATES_HI)
        charset_add(out, lo, hi);
}

void charset_normalize(struct charset *set)
{
    struct charset out;

    charset_init(&out);
    if (set->count > 0)
        qsort(set->ranges, set->count, sizeof(*set->ranges), by_lo);
    for (uint32_t i = 0; i < set->count;) {
        uint32_t lo = set->ranges[i].lo, hi = set->ranges[i].hi;
        for (i++; i < set->count && set->ranges[i].lo <= hi + 1; i++)
            hi = set->ranges[i].hi > hi ? set->ranges[i].hi : hi;
        add_without_surrogates(&out, lo, hi);
    }
    charset_done(set);
    *set = out;
}

void charset_negate(struct charset *set)
{
    struct charset out;
    uint32_t next = 0;

    charset_init(&out);
    charset_normalize(set);
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->ranges[i].lo > next)
            charset_add(&out, next, set->ranges[i].lo - 1);
        next = set->ranges[i].hi + 1;
    }
    if (next <= CHAR_MAX_CODE)
        charset_add(&out, next, CHAR_MAX_CODE);
    charset_done(set);
    *set = out;
    charset_normalize(set);
}

/* ---- UTF-8 ---- */

struct writer {
    struct graph *graph;
    uint32_t to;
    uint32_t tails[4]; /* [n]: node from which n free bytes lead to `to`; GRAPH_NONE: not made */
};

static uint32_t tail(struct writer *writer, unsigned bytes)
{
    if (writer->tails[bytes] != GRAPH_NONE)
        return writer->tails[bytes];
    uint32_t next = tail(writer, bytes - 1);
    writer->tails[bytes] = graph_node(writer->graph);
    graph_add_bytes(writer->graph, writer->tails[bytes], CONTINUATION_LO, CONTINUATION_HI, next);
    return writer->tails[bytes];
}

static unsigned utf8_bytes(uint32_t code)
{
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/* Byte i of a code point that is written in `bytes` bytes. */
static uint8_t utf8_byte(uint32_t code, unsigned bytes, unsigned i)
{
    static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};

    if (i > 0)
        return (uint8_t)(0x80 | (code >> (6 * (bytes - 1 - i)) & 0x3f));
    return (uint8_t)(bytes == 1 ? code : leads[bytes] | code >> (6 * (bytes - 1)));
}

/* lo..hi share byte count; bytes before i are equal and were written. */
static void write_from(struct writer *writer, uint32_t from, uint32_t lo, uint32_t hi,
                       unsigned bytes, unsigned i)
{
    unsigned after = bytes - 1 - i;
    uint32_t low_bits = after == 0 ? 0 : (1u << (6 * after)) - 1;
    uint8_t first = utf8_byte(lo, bytes, i), last = utf8_byte(hi, bytes, i);

    if (after == 0 || ((lo & low_bits) == 0 && (hi & low_bits) == low_bits)) {
        graph_add_bytes(writer->graph, from, first, last, tail(writer, after));
        return;
    }
    if (first == last) {
        uint32_t next = graph_node(writer->graph);
        graph_add_bytes(writer->graph, from, first, first, next);
        write_from(writer, next, lo, hi, bytes, i + 1);
        return;
    }
    if ((lo & low_bits) != 0) {
        write_from(writer, from, lo, lo | low_bits, bytes, i);
        write_from(writer, from, (lo | low_bits) + 1, hi, bytes, i);
        return;
    }
    write_from(writer, from, lo, (hi & ~low_bits) - 1, bytes, i);
    write_from(writer, from, hi & ~low_bits, hi, bytes, i);
}

static void write_range(struct writer *writer, uint32_t from, uint32_t lo, uint32_t hi)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xffff, CHAR_MAX_CODE};

    for (unsigned i = 0; i < 4 && lo <= hi; i++) {
        uint32_t last = hi < ends[i] ? hi : ends[i];
        if (lo > last)
            continue;
        write_from(writer, from, lo, last, utf8_bytes(lo), 0);
        lo = last + 1;
    }
}

/* ---- JSON strings ---- */

static const char *escape_of(uint32_t code, char text[7])
{
    switch (code) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        (void)snprintf(text, 7, "\\u%04x", code & 0xffff);
        return text;
    }
}

static void write_json_range(struct writer *writer, uint32_t from, uint32_t lo, uint32_t hi)
{
    char text[7];

    for (; lo <= hi && lo < 0x20; lo++) {
        const char *escape = escape_of(lo, text);
        graph_add_literal(writer->graph, from, escape, strlen(escape), writer->to);
    }
    for (unsigned i = 0; i < 2 && lo <= hi; i++) {
        uint32_t special = i == 0 ? '"' : '\\';
        if (lo > special || hi < special)
            continue;
        if (lo < special)
            write_range(writer, from, lo, special - 1);
        graph_add_literal(writer->graph, from, escape_of(special, text), 2, writer->to);
        lo = special + 1;
    }
    if (lo <= hi)
        write_range(writer, from, lo, hi);
}

void charset_emit(const struct charset *set, enum charset_form form, struct graph *graph,
                  uint32_t from, uint32_t to)
{
    struct writer writer = {graph, to, {to, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE}};

    for (uint32_t i = 0; i < set->count && !graph->failed; i++) {
        if (form == CHARSET_JSON)
            write_json_range(&writer, from, set->ranges[i].lo, set->ranges[i].hi);
        else
            write_range(&writer, from, set->ranges[i].lo, set->ranges[i].hi);
    }
}
