/* chain.c - one hash per unit, chained: hash(before, 64 bytes). About 10 ns a unit. */
#include "router/session/chain.h"

#include <string.h>
#include <xxhash.h>

#include "proto/base/mem.h"

#define MARKS_MIN 16u

void chain_init(struct chain *chain)
{
    *chain = (struct chain){0};
}

void chain_done(struct chain *chain)
{
    mem_free(chain->marks);
    chain->marks = NULL;
}

static uint64_t next_hash(uint64_t before, const void *unit)
{
    return XXH3_64bits_withSeed(unit, CHAIN_UNIT, before);
}

static void thin_out(struct chain *chain)
{
    for (uint32_t i = 0; i < chain->marks_count / 2; i++)
        chain->marks[i] = chain->marks[2 * i + 1];
    chain->marks_count /= 2;
    chain->shift++;
}

static void add_unit(struct chain *chain, uint64_t units, const void *unit)
{
    chain->last = next_hash(chain->last, unit);
    if (units & (((uint64_t)1 << chain->shift) - 1))
        return;
    if (chain->marks_count == CHAIN_MARKS_MAX) {
        thin_out(chain);
        if (units & (((uint64_t)1 << chain->shift) - 1))
            return;
    }
    if (chain->marks_count == chain->marks_capacity) {
        chain->marks_capacity = chain->marks_capacity ? chain->marks_capacity * 2 : MARKS_MIN;
        chain->marks = mem_realloc(chain->marks, chain->marks_capacity * sizeof(*chain->marks));
    }
    chain->marks[chain->marks_count++] = chain->last;
}

void chain_add(struct chain *chain, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        size_t held = chain->bytes % CHAIN_UNIT;
        size_t take = CHAIN_UNIT - held < bytes ? CHAIN_UNIT - held : bytes;
        memcpy(chain->rest + held, at, take);
        chain->bytes += take;
        at += take;
        bytes -= take;
        if (held + take == CHAIN_UNIT)
            add_unit(chain, chain->bytes / CHAIN_UNIT, chain->rest);
    }
}

static uint64_t common_rest(const struct chain *chain, const uint8_t *data, size_t bytes)
{
    uint64_t from = chain->bytes / CHAIN_UNIT * CHAIN_UNIT;
    uint64_t end = chain->bytes < bytes ? chain->bytes : bytes;
    uint64_t at = from;

    while (at < end && data[at] == chain->rest[at - from])
        at++;
    return at;
}

uint64_t chain_common(const struct chain *chain, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t units = chain->bytes / CHAIN_UNIT;
    uint64_t walk = bytes / CHAIN_UNIT < units ? bytes / CHAIN_UNIT : units;
    uint64_t stride = (uint64_t)1 << chain->shift;
    uint64_t hash = 0, common = 0;

    for (uint64_t i = 1; i <= walk; i++) {
        hash = next_hash(hash, at + (i - 1) * CHAIN_UNIT);
        if (i == units && hash == chain->last)
            return common_rest(chain, data, bytes);
        if (i % stride != 0)
            continue;
        if (hash != chain->marks[i / stride - 1])
            return common * CHAIN_UNIT;
        common = i;
    }
    return units == 0 ? common_rest(chain, data, bytes) : common * CHAIN_UNIT;
}

uint64_t chain_hash(const struct chain *chain)
{
    return XXH3_64bits_withSeed(chain->rest, chain->bytes % CHAIN_UNIT, chain->last);
}

size_t chain_memory(const struct chain *chain)
{
    return chain->marks_capacity * sizeof(*chain->marks);
}
