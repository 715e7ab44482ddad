/* fuzz_merge.c - long words against the definition: merge_run, whatever way it takes, must give
 * what joining the leftmost pair of lowest rank over and over gives.
 *
 * First four bytes: a table of ranks for pairs over four ids, so that ranks may also fall, which no
 * trained vocabulary does. Then the symbols. */
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/merge.h"

#define SYMBOLS_MAX 4096

/* Ids are sums modulo 8, ranks a hash: merging pairs of any result. */
static bool pair(const void *model, const char *text, const struct merge_symbol *left,
                 const struct merge_symbol *right, uint32_t *ret_rank, uint32_t *ret_id)
{
    const uint8_t *seed = model;
    uint32_t mixed = (left->id * 8 + right->id) * 2654435761u ^ seed[0] ^ (uint32_t)seed[1] << 8;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    mixed ^= mixed >> 13;
    if ((mixed & 7) > (seed[2] & 7u))
        return false;
    *ret_rank = mixed >> 3 & (seed[3] | 1u);
    *ret_id = (left->id + right->id + 1) & 7;
    return true;
}

static size_t merge_plainly(const uint8_t *seed, struct merge_symbol *symbols, size_t count)
{
    for (;;) {
        size_t best = 0;
        uint32_t best_rank = MERGE_RANK_NONE, best_id = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t rank = 0, id = 0;
            if (pair(seed, NULL, &symbols[i], &symbols[i + 1], &rank, &id) && rank < best_rank) {
                best = i;
                best_rank = rank;
                best_id = id;
            }
        }
        if (best_rank == MERGE_RANK_NONE)
            return count;
        symbols[best].id = best_id;
        symbols[best].bytes += symbols[best + 1].bytes;
        memmove(&symbols[best + 1], &symbols[best + 2], (count - best - 2) * sizeof(symbols[0]));
        count--;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct merge_symbol plain[SYMBOLS_MAX];
    struct merge merge;
    if (size < 5 || size - 4 > SYMBOLS_MAX)
        return 0;
    size_t count = size - 4;
    merge_init(&merge, data, pair);
    struct merge_symbol *symbols = merge_symbols(&merge, count);
    for (size_t i = 0; i < count; i++) {
        symbols[i] = (struct merge_symbol){.start = (uint32_t)i, .bytes = 1, .id = data[4 + i] & 7};
        plain[i] = symbols[i];
    }
    size_t expected = merge_plainly(data, plain, count), got = 0;
    merge_run(&merge, (const char *)data + 4, count);
    symbols = merge.symbols;
    for (uint32_t at = 0; at != MERGE_END; at = symbols[at].next, got++) {
        ASSERT(got < expected);
        ASSERT(symbols[at].id == plain[got].id && symbols[at].start == plain[got].start &&
               symbols[at].bytes == plain[got].bytes);
    }
    ASSERT(got == expected);
    merge_done(&merge);
    return 0;
}
