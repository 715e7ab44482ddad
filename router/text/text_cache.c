/* text_cache.c - segment by segment: what the model wrote, else what was tokenized before, else
 * tokenize.
 *
 * (picture: text_cache.h)
 * Why by segments and not by whole prefixes: a segment is the same in every conversation that holds
 * it and stays so when something before it is edited or cut, and each byte is kept once instead of
 * once per turn. Why the salt is in both kinds of keys, although a segment's ids do not depend on
 * it: how long a prompt takes would tell one client what another one has sent.
 *
 * Invariant: a stored list of ids holds no control token, so a hit can be used wherever the text
 * stands. Cost of a hit: one hash, one comparison and one copy of the text's bytes or ids; a prompt
 * of 100,000 characters is some tens of microseconds. */
#undef MEM_PURPOSE
#define MEM_PURPOSE MEM_TEXT_CACHE
#include "router/text/text_cache.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "router/text/detokenize.h"
#include "router/text/text_store.h"
#include "router/text/unicode.h"

#define SECRET_BYTES 192u
#define ANSWER_TEXT_MAX ((size_t)64 << 20)

_Static_assert(SECRET_BYTES >= XXH3_SECRET_SIZE_MIN, "as XXH3 asks");

enum text_kind { TEXT_SEGMENT = 0, TEXT_TURN = 1 };

struct text_cache {
    struct text_store *store;
    uint64_t segment_tokens, turn_tokens, missed_tokens;
    unsigned char secret[SECRET_BYTES];
};

struct text_cache *text_cache_new(size_t bytes_max)
{
    struct text_cache *cache = mem_zalloc(sizeof(*cache));
    cache->store = text_store_new(bytes_max);
    rng_system(cache->secret, sizeof(cache->secret));
    return cache;
}

void text_cache_free(struct text_cache *cache)
{
    if (!cache)
        return;
    text_store_free(cache->store);
    mem_free(cache);
}

void text_cache_counts(const struct text_cache *cache, struct text_cache_counts *ret_counts)
{
    *ret_counts = (struct text_cache_counts){.bytes = text_store_bytes(cache->store),
                                             .entries = text_store_entries(cache->store),
                                             .segment_tokens = cache->segment_tokens,
                                             .turn_tokens = cache->turn_tokens,
                                             .missed_tokens = cache->missed_tokens,
                                             .evictions = text_store_evictions(cache->store)};
}

void text_cache_check(const struct text_cache *cache)
{
    text_store_check(cache->store);
}

/* --- hashes and keys ------------------------------------------------------------------------- */

static uint64_t hash_text(const struct text_cache *cache, const char *text, size_t bytes)
{
    return XXH3_64bits_withSecret(text, bytes, cache->secret, sizeof(cache->secret));
}

/* What a seam's hash is made of; no padding. */
struct seam_link {
    uint64_t before, text_hash, text_bytes;
    uint32_t seam, trim;
};

static uint64_t hash_link(const struct text_cache *cache, const struct seam_link *link)
{
    return hash_text(cache, (const char *)link, sizeof(*link));
}

/* Of whom the texts are: no text of another tokenizer or salt is found. */
static uint64_t hash_owner(const struct text_cache *cache, const struct text_owner *owner)
{
    const struct seam_link link = {.before = owner->tokenizer_id,
                                   .text_hash = hash_text(cache, owner->salt, strlen(owner->salt)),
                                   .text_bytes = strlen(owner->salt),
                                   .seam = TOKEN_ID_NONE};
    return hash_link(cache, &link);
}

static struct text_key make_key(const struct text_owner *owner, enum text_kind kind, bool trim,
                                uint64_t context, uint64_t hash)
{
    return (struct text_key){.owner = owner->tokenizer_id,
                             .context = context,
                             .hash = hash,
                             .kind = (uint32_t)kind << 1 | trim};
}

/* --- a prompt -------------------------------------------------------------------------------- */

struct filling {
    struct text_cache *cache;
    const struct text_owner *owner;
    uint64_t owner_hash;
    struct segment_walk walk;
    struct token_ids *out;
    size_t before; /* ids in `out` that are not ours */
    struct prompt_trace trace;
};

static int encode_anew(struct filling *f, const struct text_segment *segment)
{
    size_t before = f->out->count;
    int r = tokenizer_encode_segment(f->owner->tokenizer, &f->walk, segment, f->out);
    if (r == 0)
        f->cache->missed_tokens += f->out->count - before;
    return r;
}

/* The ids of a segment that has some text, by the cheapest way. */
static int fill_segment(struct filling *f, const struct text_segment *segment, uint64_t hash)
{
    const char *text = f->walk.text + segment->start;
    size_t bytes = segment->end - segment->start, before = f->out->count, count = 0;
    const uint32_t *ids = NULL;
    struct text_key key;

    if (segment->controls)
        return encode_anew(f, segment);
    if (f->owner->turn_memory) {
        key = make_key(f->owner, TEXT_TURN, segment->trim, f->trace.end.hash, hash);
        ids = text_store_get(f->cache->store, &key, text, bytes, &count);
    }
    if (ids) {
        f->cache->turn_tokens += count;
        f->trace.turn_tokens += (uint32_t)count;
        return token_ids_append(f->out, ids, count);
    }
    /* The very first segment is apart: a space may be put in front of it. */
    key = make_key(f->owner, TEXT_SEGMENT, segment->trim, f->owner_hash + segment->first, hash);
    ids = text_store_get(f->cache->store, &key, text, bytes, &count);
    if (ids) {
        f->cache->segment_tokens += count;
        return token_ids_append(f->out, ids, count);
    }
    int r = encode_anew(f, segment);
    count = f->out->count - before;
    if (r == 0 && count > 0)
        text_store_put(f->cache->store, &key, text, bytes, f->out->ids + before, count);
    return r;
}

static int add_segment(struct filling *f, const struct text_segment *segment)
{
    const char *text = f->walk.text + segment->start;
    size_t bytes = segment->end - segment->start;
    uint64_t hash = hash_text(f->cache, text, bytes);
    const struct seam_link link = {.before = f->trace.end.hash,
                                   .text_hash = hash,
                                   .text_bytes = bytes,
                                   .seam = segment->seam,
                                   .trim = segment->trim};
    int r = bytes > 0 ? fill_segment(f, segment, hash) : 0;
    if (r < 0)
        return r;
    if (segment->seam == TOKEN_ID_NONE) {
        if (!segment->controls)
            prompt_trace_set_tail(&f->trace, text, bytes, segment->trim);
        return 0;
    }
    r = token_ids_add(f->out, segment->seam);
    if (r < 0)
        return r;
    const struct prompt_seam seam = {.hash = hash_link(f->cache, &link),
                                     .text_end = (uint32_t)segment->behind,
                                     .ids_count = (uint32_t)(f->out->count - f->before)};
    prompt_trace_add(&f->trace, &seam);
    return 0;
}

static int fill_all(struct filling *f)
{
    const struct tokenize_options *options = f->walk.options;
    struct text_segment segment;
    struct seam_link begin = {.before = f->owner_hash, .seam = TOKEN_ID_NONE};

    int r = tokenizer_add_bos(f->owner->tokenizer, options, f->out);
    size_t bos = f->out->count - f->before;
    begin.text_bytes = bos;
    f->trace.end =
        (struct prompt_seam){.hash = hash_link(f->cache, &begin), .ids_count = (uint32_t)bos};
    while (r == 0 && tokenizer_next_segment(f->owner->tokenizer, &f->walk, &segment))
        r = add_segment(f, &segment);
    size_t text_ids = f->out->count;
    if (r == 0)
        r = tokenizer_add_eos(f->owner->tokenizer, options, f->out);
    if (f->out->count > text_ids) { /* an answer stands behind EOS, not behind the text */
        mem_free(f->trace.tail);
        f->trace.tail = NULL;
    }
    return r;
}

int text_cache_encode(struct text_cache *cache, const struct text_owner *owner, const char *text,
                      size_t bytes, const struct tokenize_options *options, struct token_ids *out,
                      struct prompt_trace *ret_trace)
{
    struct filling f = {.cache = cache,
                        .owner = owner,
                        .owner_hash = hash_owner(cache, owner),
                        .walk = {.text = text, .bytes = bytes, .options = options},
                        .out = out,
                        .before = out->count};
    int r = 0;

    if (bytes > UINT32_MAX || utf8_valid_bytes(text, bytes) != bytes) {
        f.trace.end.hash = f.owner_hash;
        r = tokenizer_encode(owner->tokenizer, text, bytes, options, out);
    } else {
        r = fill_all(&f);
    }
    f.trace.text_bytes = (uint32_t)bytes;
    f.trace.ids_count = (uint32_t)(out->count - f.before);
    if (r == 0 && ret_trace) {
        prompt_trace_done(ret_trace);
        *ret_trace = f.trace;
        return 0;
    }
    prompt_trace_done(&f.trace);
    if (r < 0)
        out->count = f.before;
    return r;
}

/* --- an answer ------------------------------------------------------------------------------- */

/* The segment that is being put together: from the last seam on. */
struct remembering {
    struct text_cache *cache;
    const struct text_owner *owner;
    struct detokenizer detokenizer;
    struct buffer text;
    struct token_ids ids;
    uint64_t before; /* hash of the seam before it */
    bool trim;
    size_t generated; /* ids of the model in it */
};

/* It is whole: put it. *ret_hash: of its text. False: no memory of it or what follows. */
static bool put_segment(struct remembering *m, uint64_t *ret_hash)
{
    detokenizer_finish(&m->detokenizer, &m->text);
    if (buffer_finish(&m->text) < 0)
        return false;
    uint64_t hash = hash_text(m->cache, m->text.data, m->text.bytes);
    struct text_key key = make_key(m->owner, TEXT_TURN, m->trim, m->before, hash);
    if (m->generated > 0 && m->text.bytes > 0)
        text_store_put(m->cache->store, &key, m->text.data, m->text.bytes, m->ids.ids,
                       m->ids.count);
    *ret_hash = hash;
    return true;
}

/* The model wrote a control token. False: it is no seam. */
static bool pass_control(struct remembering *m, uint32_t id)
{
    struct seam_link link = {.before = m->before, .seam = id, .trim = m->trim};
    bool trim = false;

    if (!tokenizer_is_seam(m->owner->tokenizer, id, &trim) || !put_segment(m, &link.text_hash))
        return false;
    link.text_bytes = m->text.bytes;
    m->before = hash_link(m->cache, &link);
    m->trim = trim;
    m->generated = m->ids.count = 0;
    buffer_clear(&m->text);
    return true;
}

static bool take_id(struct remembering *m, uint32_t id)
{
    const char *text = NULL;
    size_t bytes = 0;
    bool control = false;

    if (tokenizer_token_bytes(m->owner->tokenizer, id, &text, &bytes, &control) < 0)
        return false;
    if (control)
        return pass_control(m, id);
    m->generated++;
    return detokenizer_push(&m->detokenizer, id, &m->text) == 0 && token_ids_add(&m->ids, id) == 0;
}

void text_cache_remember(struct text_cache *cache, const struct text_owner *owner,
                         const struct prompt_trace *trace, const uint32_t *tail_ids,
                         size_t tail_ids_count, const uint32_t *ids, size_t count)
{
    struct remembering m = {
        .cache = cache, .owner = owner, .before = trace->end.hash, .trim = trace->tail_trim};
    uint64_t hash = 0;
    size_t i = 0;

    if (!owner->turn_memory || !trace->tail || count == 0)
        return;
    buffer_init(&m.text, ANSWER_TEXT_MAX);
    token_ids_init(&m.ids, tail_ids_count + count);
    detokenizer_init(&m.detokenizer, owner->tokenizer, true, false);
    buffer_append(&m.text, trace->tail, trace->tail_bytes);
    int r = token_ids_append(&m.ids, tail_ids, tail_ids_count);
    ASSERT(r == 0);
    while (i < count && take_id(&m, ids[i]))
        i++;
    if (i == count)
        (void)put_segment(&m, &hash);
    buffer_done(&m.text);
    token_ids_done(&m.ids);
}
