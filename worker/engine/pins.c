/* pins.c - leases on prefixes, as an operator asks for them: by a request or by a block's hash.
 *
 * A lease is told and ended by the hash of its last block: what `dump blocks` shows too. Answers
 * are lines of JSON. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#define LOG_MODULE "engine"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "worker/engine/engine_private.h"

#define HASH_DIGITS 32u

static int parse_hash(const char *text, struct block_hash *ret_hash)
{
    unsigned long long high = 0, low = 0;
    if (strlen(text) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS ||
        sscanf(text, "%16llx%16llx", &high, &low) != 2)
        return -EINVAL;
    *ret_hash = (struct block_hash){.low = low, .high = high};
    return 0;
}

/* The last block of its prompt that is computed and findable. */
static int find_prompt(struct engine *engine, const char *id, struct block_hash *ret_hash)
{
    LIST_FOR(link, requests_all(engine->requests))
    {
        const struct request *request = LIST_ENTRY(link, struct request, link);
        const struct sequence *seq = request->sequence;
        uint32_t blocks = seq->prompt_tokens / BLOCK_TOKENS;
        if (strcmp(request->id, id) != 0)
            continue;
        blocks = seq->sealed < blocks ? seq->sealed : blocks;
        if (blocks == 0)
            return -ENOENT;
        *ret_hash = seq->hashes[blocks - 1];
        return 0;
    }
    return -ENOENT;
}

static char *pin(struct engine *engine, struct block_hash hash, uint32_t seconds)
{
    uint32_t *scratch = mem_calloc(engine->settings.blocks, sizeof(*scratch));
    uint64_t expires_ns = clock_ns() + (uint64_t)seconds * 1000000000u;
    struct errmsg err = {""};
    uint32_t blocks = 0;
    int r = block_pool_pin_block(engine->pool, hash, expires_ns, scratch, &blocks, &err);
    mem_free(scratch);
    if (r < 0)
        return mem_printf("{\"error\":\"%s\"}", err.text); /* our own words and numbers */
    log_info("pinned", "blocks=%u seconds=%u", blocks, seconds);
    return mem_printf("{\"pin\":\"%016llx%016llx\",\"blocks\":%u,\"tokens\":%u,\"seconds\":%u}",
                      (unsigned long long)hash.high, (unsigned long long)hash.low, blocks,
                      blocks * BLOCK_TOKENS, seconds);
}

static char *unpin(struct engine *engine, struct block_hash last)
{
    struct pinned_prefix pins[PINS_MAX];
    uint32_t count = block_pool_pins(engine->pool, pins), ended = 0;
    for (uint32_t i = 0; i < count; i++)
        if (block_hash_equal(pins[i].last, last))
            ended += block_pool_unpin(engine->pool, pins[i].root, last) == 0;
    return mem_printf("{\"unpinned\":%u}", ended);
}

char *engine_pin(struct engine *engine, const struct command *command)
{
    const char *name = command->request_id;
    struct block_hash hash;
    if (parse_hash(name, &hash) < 0 && find_prompt(engine, name, &hash) < 0)
        return mem_strdup("{\"error\":\"no request with a computed block has this id, and it is no "
                          "hash of 32 digits\"}");
    return command->undo ? unpin(engine, hash) : pin(engine, hash, command->seconds);
}

void engine_append_pins(struct engine *engine, struct buffer *out)
{
    struct pinned_prefix pins[PINS_MAX];
    uint32_t count = block_pool_pins(engine->pool, pins);
    uint64_t now_ns = clock_ns();
    buffer_append_text(out, "{\"pins\":[");
    for (uint32_t i = 0; i < count; i++) {
        const struct pinned_prefix *lease = &pins[i];
        uint64_t left_ns = lease->expires_ns > now_ns ? lease->expires_ns - now_ns : 0;
        buffer_printf(out,
                      "%s{\"pin\":\"%016llx%016llx\",\"blocks\":%u,\"tokens\":%u,"
                      "\"seconds_left\":%llu}",
                      i > 0 ? "," : "", (unsigned long long)lease->last.high,
                      (unsigned long long)lease->last.low, lease->blocks,
                      lease->blocks * BLOCK_TOKENS, (unsigned long long)(left_ns / 1000000000u));
    }
    buffer_append_text(out, "]}");
}
