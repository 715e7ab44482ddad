/* inspect.c - answers about sequences and blocks, as one line of JSON each. Runs between two steps,
 * so the picture is consistent; the longest (`dump blocks`) takes about 1 ms per 10,000 blocks. */
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/json.h"
#include "worker/engine/engine_private.h"

#define INSPECT_BYTES_MAX ((size_t)128 << 20)

static const char *const state_names[] = {
    [BLOCK_EMPTY] = "empty",
    [BLOCK_PRIVATE] = "private",
    [BLOCK_SHARED] = "shared",
    [BLOCK_CACHED] = "cached",
};

static bool append_sequence(const struct sequence *seq, void *user)
{
    struct buffer *out = user;
    const struct request *request = seq->params.owner;
    const char *id = request->id;
    if (out->data[out->bytes - 1] != '[')
        buffer_append_char(out, ',');
    buffer_append_text(out, "{\"id\":");
    json_append_string(out, id, strlen(id));
    buffer_printf(out,
                  ",\"router\":%u,\"state\":\"%s\",\"priority\":%d,\"prompt\":%u,\"cached\":%u,"
                  "\"computed\":%u,\"output\":%u,\"blocks\":%u,\"preemptions\":%u,\"age_ms\":%llu}",
                  request->router, sequence_state_name(seq->state), seq->params.priority,
                  seq->prompt_tokens, seq->cached_tokens, seq->computed,
                  sequence_output_tokens(seq), seq->table.count, seq->preemptions,
                  (unsigned long long)((clock_ns() - seq->params.arrival_ns) / 1000000));
    return !out->failed;
}

static void append_blocks(struct engine *engine, struct buffer *out)
{
    struct block_counts counts;
    struct window_counts windows;
    engine_kv_counts(engine, &counts, &windows);
    double total = counts.total;
    buffer_printf(
        out,
        "{\"total\":%u,\"empty\":%u,\"private\":%u,\"shared\":%u,\"cached\":%u,"
        "\"pins\":%u,\"pinned\":%u,\"referenced_share\":%.4f,\"cached_share\":%.4f,\"empty_share\":"
        "%.4f,"
        "\"evictions\":%llu,\"evicted_capacity\":%llu,\"evicted_abandoned\":%llu,"
        "\"evicted_one_shot\":%llu,\"reset\":%llu,\"lookups\":%llu,\"hits\":%llu,\"kv_sequence\":%"
        "llu,"
        "\"kv_blocks\":%llu,\"kv_digest\":\"%016llx\"",
        counts.total, counts.empty, counts.private_, counts.shared, counts.cached, counts.pins,
        counts.pinned, (counts.private_ + counts.shared) / total, counts.cached / total,
        counts.empty / total, (unsigned long long)counts.evictions_total,
        (unsigned long long)counts.lost[BLOCK_LOST_CAPACITY],
        (unsigned long long)counts.lost[BLOCK_LOST_ABANDONED],
        (unsigned long long)counts.lost[BLOCK_LOST_ONE_SHOT],
        (unsigned long long)counts.lost[BLOCK_LOST_RESET], (unsigned long long)counts.lookups_total,
        (unsigned long long)counts.hits_total, (unsigned long long)engine->kv_events.sequence,
        (unsigned long long)engine->kv_events.blocks, (unsigned long long)engine->kv_events.digest);
    engine_append_windows(engine, out);
    buffer_append_char(out, '}');
}

static void append_block_dump(struct engine *engine, struct buffer *out)
{
    bool first = true;
    buffer_append_text(out, "{\"blocks\":[");
    for (uint32_t id = 0; id < engine->settings.blocks && !out->failed; id++) {
        enum block_state state = block_pool_state(engine->pool, id);
        struct block_hash hash;
        if (state == BLOCK_EMPTY)
            continue;
        buffer_printf(out, "%s{\"id\":%u,\"state\":\"%s\",\"refs\":%u", first ? "" : ",", id,
                      state_names[state], block_pool_refs(engine->pool, id));
        if (block_pool_hash(engine->pool, id, &hash))
            buffer_printf(out, ",\"hash\":\"%016llx%016llx\"", (unsigned long long)hash.high,
                          (unsigned long long)hash.low);
        buffer_append_char(out, '}');
        first = false;
    }
    buffer_append_text(out, "]}");
}

static void append_check(struct engine *engine, struct buffer *out)
{
    scheduler_check(engine->scheduler); /* a breach ends the process: it is our bug */
    if (engine->tier != NULL)
        tier_check(engine->tier);
    ASSERT(block_pool_digest(engine->pool) == engine->kv_events.digest);
    buffer_printf(out, "{\"check\":\"ok\",\"blocks\":%u,\"hashed\":%llu}", engine->settings.blocks,
                  (unsigned long long)engine->kv_events.blocks);
}

char *engine_inspect(struct engine *engine, enum inspect_what what)
{
    struct buffer out;
    size_t bytes = 0;
    buffer_init(&out, INSPECT_BYTES_MAX);
    switch (what) {
    case INSPECT_SEQUENCES:
        buffer_append_text(&out, "{\"sequences\":[");
        scheduler_each(engine->scheduler, append_sequence, &out);
        buffer_append_text(&out, "]}");
        break;
    case INSPECT_BLOCKS:
        append_blocks(engine, &out);
        break;
    case INSPECT_BLOCK_DUMP:
        append_block_dump(engine, &out);
        break;
    case INSPECT_TIERS:
        engine_append_tiers(engine, &out);
        break;
    case INSPECT_PINS:
        engine_append_pins(engine, &out);
        break;
    case INSPECT_CHECK:
        append_check(engine, &out);
        break;
    }
    if (buffer_finish(&out) < 0) {
        buffer_clear(&out);
        buffer_append_text(&out, "{\"error\":\"the answer is too long\"}");
    }
    char *text = buffer_take(&out, &bytes);
    buffer_done(&out);
    return text;
}
