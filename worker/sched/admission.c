/* admission.c - which waiting request starts, and how much of it is computed already.
 *
 *   waiting, in order:  reuse = full blocks found + head of one more block, cached or of one that
 *                       runs
 *     next block is being computed by a running prefill?  -> hold: look again in the next step
 *     layers slide?  reuse is cut to where the last window is there  (worker/kv/window_blocks.h)
 *     the chain goes on in slower tiers?                  -> copied into fresh blocks (tier_lookup)
 *     it is on its way from there?                        -> look again, others may pass, for a
 * time blocks for all that is not found, plus watermark?   -> admit held, or does not fit -> at
 * most BYPASS_MAX later ones may pass
 *
 * Why the whole prompt is reserved: a prompt admitted by its first chunk alone would find the pool
 * full halfway and be preempted, or preempt, again and again. Why a watermark only while others
 * run: it is there for their decodes; alone, a request may use the whole pool. Why the hold: ten
 * chats that open with one system prompt at the same time compute it once. It ends when the block
 * is sealed or its owner is gone, and after HOLD_PLANS_MAX steps in any case. The last token is
 * always computed, for its logits: reuse is cut to ids_count - 1, by copying the head of the last
 * block. A copy's source is referenced until commit, so that nothing taken in this plan can evict
 * it. Cost: a step looks at CANDIDATES_MAX requests at most. */
#include "proto/base/assert.h"
#include "worker/kv/window_blocks.h"
#include "worker/sched/scheduler_internal.h"

#define BYPASS_MAX 8u
#define HOLD_PLANS_MAX 512u
#define CANDIDATES_MAX 64u

struct reuse {
    uint32_t found;         /* full blocks found; their ids are in scheduler->scratch; of these */
    uint32_t blocks;        /* so many can be used: the window behind them is there */
    uint32_t copy_from;     /* BLOCK_NONE: no head to copy */
    uint32_t copy_tokens;   /* 0 then */
    struct tier_found tier; /* after the full blocks found: more of them, and a head, in tiers */
};

static uint32_t reused_tokens(const struct reuse *reuse)
{
    return (reuse->blocks + reuse->tier.blocks) * BLOCK_TOKENS + reuse->copy_tokens +
           reuse->tier.tail_tokens;
}

static bool may_reuse(const struct scheduler *s, const struct sequence *seq)
{
    return block_pool_caching(s->pool) && !seq->params.no_prefix_reuse &&
           seq->params.prompt_logprobs == 0; /* a block's logits are not kept */
}

static struct block_hash parent_of(const struct sequence *seq, uint32_t block)
{
    return block == 0 ? seq->params.root : seq->hashes[block - 1];
}

static uint32_t usable_tokens(const struct sequence *seq)
{
    return seq->ids_count - 1;
}

/* The block that `other` fills at the moment, where its chain is ours so far: nobody finds it yet,
 * but the head that is computed can be copied. Parallel samples of one prompt share it this way. */
static uint32_t common_head(const struct sequence *seq, const struct sequence *other,
                            uint32_t block, uint32_t rest)
{
    uint32_t done = block * BLOCK_TOKENS, count = 0;

    if (other->computed <= done || other->sealed != block || other->hashes_count < block ||
        !block_hash_equal(seq->params.root, other->params.root) ||
        (block > 0 && !block_hash_equal(seq->hashes[block - 1], other->hashes[block - 1])))
        return 0;
    if (rest > other->computed - done)
        rest = other->computed - done;
    while (count < rest && seq->ids[done + count] == other->ids[done + count])
        count++;
    return count;
}

static void find_running_head(const struct scheduler *s, const struct sequence *seq, uint32_t rest,
                              struct reuse *reuse)
{
    LIST_FOR(item, &s->running)
    {
        const struct sequence *other = LIST_ENTRY(item, struct sequence, link);
        uint32_t count = common_head(seq, other, reuse->blocks, rest);
        if (count <= reuse->copy_tokens)
            continue;
        reuse->copy_from = other->table.ids[reuse->blocks];
        reuse->copy_tokens = count;
    }
}

/* The head of the block after those that are used. */
static void find_head(const struct scheduler *s, const struct sequence *seq, struct reuse *reuse)
{
    uint32_t done = reuse->blocks * BLOCK_TOKENS;
    uint32_t rest = usable_tokens(seq) - done;

    if (rest > BLOCK_TOKENS)
        rest = BLOCK_TOKENS;
    if (rest > 0)
        reuse->copy_from = block_pool_match_partial(s->pool, parent_of(seq, reuse->blocks),
                                                    seq->ids + done, rest, &reuse->copy_tokens);
    if (reuse->copy_tokens < rest)
        find_running_head(s, seq, rest, reuse);
}

/* The longest prefix whose last window is there. The further a run of window blocks goes, the more
 * of it lies behind the window, so where the end of a run cannot be used, nothing before it in the
 * run can. */
static void cut_to_windows(const struct scheduler *s, const struct sequence *seq, bool heads,
                           struct reuse *reuse)
{
    for (;;) {
        uint32_t run = window_run(s->pool, s->scratch, reuse->blocks);
        reuse->copy_from = BLOCK_NONE;
        reuse->copy_tokens = 0;
        if (heads)
            find_head(s, seq, reuse);
        if (run <= window_first_block(s->window_tokens, reused_tokens(reuse)))
            return;
        reuse->blocks = run - 1;
    }
}

static void find_reuse(struct scheduler *s, const struct sequence *seq, struct reuse *ret_reuse)
{
    struct reuse reuse = {.copy_from = BLOCK_NONE};

    if (may_reuse(s, seq)) {
        reuse.found = block_pool_match_root(s->pool, seq->params.root, seq->hashes, seq->ids,
                                            usable_tokens(seq) / BLOCK_TOKENS, s->scratch);
        reuse.blocks = reuse.found;
        if (s->window_tokens > 0)
            cut_to_windows(s, seq, true, &reuse);
        else
            find_head(s, seq, &reuse);
    }
    *ret_reuse = reuse;
}

/* Where the pool's part of the prompt ends, the tiers may go on. */
static void find_in_tiers(struct scheduler *s, const struct sequence *seq, struct reuse *reuse,
                          uint64_t now_ns)
{
    const struct tier_lookup *tiers = &s->settings.tiers;
    uint64_t waited_ns = seq->load_since_ns != 0 ? now_ns - seq->load_since_ns : 0;
    const struct tier_query query = {.root = seq->params.root,
                                     .hashes = seq->hashes,
                                     .ids = seq->ids,
                                     .first = reuse->blocks,
                                     .tokens = usable_tokens(seq),
                                     .may_wait = waited_ns < tiers->wait_max_ns};

    if (tiers->find == NULL || !may_reuse(s, seq))
        return;
    tiers->find(tiers->user, &query, &reuse->tier);
    if (reuse->tier.blocks == 0 && reuse->tier.tail_tokens <= reuse->copy_tokens) {
        reuse->tier = (struct tier_found){.wait = reuse->tier.wait, /* the pool has as much */
                                          .loading = reuse->tier.loading};
    } else {
        reuse->copy_from = BLOCK_NONE;
        reuse->copy_tokens = 0;
    }
}

static bool is_computing(const struct sequence *other, uint32_t block, struct block_hash hash)
{
    return other->state == SEQ_PREFILL && other->hashes_count > block && other->sealed <= block &&
           block_hash_equal(other->hashes[block], hash);
}

/* Is somebody computing, or loading, the first block that was not found? */
static bool is_held(const struct scheduler *s, struct sequence *seq, const struct reuse *reuse)
{
    uint32_t next = reuse->blocks + reuse->tier.blocks;

    if (!may_reuse(s, seq) || next >= seq->hashes_count || seq->held_plans >= HOLD_PLANS_MAX)
        return false;
    LIST_FOR(item, &s->running)
    {
        const struct sequence *other = LIST_ENTRY(item, struct sequence, link);
        if (is_computing(other, next, seq->hashes[next])) {
            seq->held_plans++;
            return true;
        }
    }
    return false;
}

/* Room for the window blocks of the prefill? The same rules. */
static bool windows_fit(const struct scheduler *s, const struct sequence *seq, struct reuse *reuse)
{
    uint32_t computed = reused_tokens(reuse), room = window_available(s->pool);
    uint32_t first = window_first_block(s->window_tokens, computed);
    uint32_t need = scheduler_window_end(s, seq, computed) - reuse->blocks;

    if (s->running_count > 0)
        need += s->window_watermark;
    for (uint32_t i = first; i < reuse->blocks; i++)
        need += window_is_idle(s->pool, s->scratch[i]);
    if (reuse->copy_from == BLOCK_NONE || need != room ||
        !window_is_idle(s->pool, reuse->copy_from))
        return need <= room;
    cut_to_windows(s, seq, false, reuse); /* without the head the window begins earlier */
    return windows_fit(s, seq, reuse);
}

/* Room for the whole prompt? Drops the copy where only its source is in the way. */
static bool blocks_fit(const struct scheduler *s, const struct sequence *seq, struct reuse *reuse)
{
    uint32_t blocks = (seq->ids_count + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    uint32_t need = blocks - reuse->blocks;
    uint32_t room = block_pool_available(s->pool);

    if (s->running_count > 0)
        need += s->watermark_blocks;
    for (uint32_t i = 0; i < reuse->blocks; i++) /* found, but so far counted as available */
        need += block_pool_state(s->pool, s->scratch[i]) == BLOCK_CACHED;
    if (reuse->copy_from != BLOCK_NONE && need == room &&
        block_pool_state(s->pool, reuse->copy_from) == BLOCK_CACHED) {
        reuse->copy_from = BLOCK_NONE;
        reuse->copy_tokens = 0;
        if (s->window_tokens > 0) {
            cut_to_windows(s, seq, false, reuse); /* the window begins earlier now */
            return blocks_fit(s, seq, reuse);
        }
    }
    return need <= room;
}

static bool fits(const struct scheduler *s, const struct sequence *seq, struct reuse *reuse)
{
    if (!blocks_fit(s, seq, reuse))
        return false;
    if (s->window_tokens == 0)
        return true;
    bool copies = reuse->copy_from != BLOCK_NONE;
    bool fit = windows_fit(s, seq, reuse);
    if (fit && copies && reuse->copy_from == BLOCK_NONE) /* fewer blocks may be found now */
        fit = blocks_fit(s, seq, reuse);
    return fit;
}

static const char *miss_word(const struct scheduler *s, const struct sequence *seq,
                             const struct reuse *reuse)
{
    uint32_t next = reuse->blocks + reuse->tier.blocks;
    struct block_hash parent = parent_of(seq, next);

    if (reused_tokens(reuse) == usable_tokens(seq))
        return "";
    if (!may_reuse(s, seq))
        return "off";
    if (reuse->blocks < reuse->found) /* its window was */
        return "evicted";
    if (next < seq->hashes_count && block_pool_evicted(s->pool, seq->hashes[next]))
        return "evicted";
    if (reuse->copy_from != BLOCK_NONE) /* a tail that we agree with to its end just goes on */
        return reuse->copy_tokens < block_pool_tokens(s->pool, reuse->copy_from) ? "diverged" : "";
    if (reuse->tier.tail_tokens == 0 && block_pool_evicted_tail(s->pool, parent))
        return "evicted";
    if (next == 0 && reuse->tier.tail_tokens == 0)
        return "first";
    return block_pool_has_children(s->pool, parent) ? "diverged" : "";
}

static void note_first_admission(struct scheduler *s, struct sequence *seq,
                                 const struct reuse *reuse, uint64_t now_ns)
{
    seq->scheduled_ns = now_ns;
    if (seq->load_since_ns != 0)
        seq->load_wait_ns = now_ns - seq->load_since_ns;
    seq->cached_tokens = reused_tokens(reuse);
    seq->cached_host_tokens = reuse->tier.host_tokens;
    seq->cached_disk_tokens = reuse->tier.disk_tokens;
    seq->miss = miss_word(s, seq, reuse);
    s->admitted_total++;
    s->prompt_tokens_total += seq->prompt_tokens;
    s->cached_tokens_total += seq->cached_tokens;
    s->cached_host_tokens_total += seq->cached_host_tokens;
    s->cached_disk_tokens_total += seq->cached_disk_tokens;
    if (!may_reuse(s, seq))
        return;
    if (s->settings.tiers.find != NULL)
        s->tier_asked_tokens_total += usable_tokens(seq) - reuse->blocks * BLOCK_TOKENS;
    const struct block_admission admission = {
        .root = seq->params.root,
        .hashes = seq->hashes,
        .ids = seq->ids,
        .found = s->scratch,
        .hashes_count = usable_tokens(seq) / BLOCK_TOKENS,
        .tokens = usable_tokens(seq),
        .found_count = reuse->blocks,
    };
    block_pool_note_admission(s->pool, &admission);
}

/* Have what was found in tiers copied into the blocks behind the pool's part. */
static void load_from_tiers(struct scheduler *s, struct sequence *seq, const struct reuse *reuse)
{
    const struct tier_lookup *tiers = &s->settings.tiers;

    if (tiers->find == NULL || !may_reuse(s, seq))
        return;
    seq->loads_in_step = reuse->tier.blocks > 0 || reuse->tier.tail_tokens > 0;
    tiers->load(tiers->user, &reuse->tier, seq->table.ids + reuse->blocks);
}

/* Before anything is taken, as with the blocks: what is found must not be evicted for it. */
static void hold_windows(struct scheduler *s, struct sequence *seq, const struct reuse *reuse)
{
    uint32_t first = window_first_block(s->window_tokens, reused_tokens(reuse));

    block_table_adopt_windows(&seq->table, s->pool, first);
    if (reuse->copy_from != BLOCK_NONE)
        window_hold(s->pool, &reuse->copy_from, 1);
}

static void add_copy(struct scheduler *s, const struct sequence *seq, const struct reuse *reuse)
{
    struct plan_copy copy = {.from = reuse->copy_from,
                             .to = seq->table.ids[reuse->blocks],
                             .tokens = reuse->copy_tokens,
                             .window_from = BLOCK_NONE,
                             .window_to = BLOCK_NONE};

    if (s->window_tokens > 0) {
        copy.window_from = window_of_block(s->pool, copy.from);
        copy.window_to = window_of_block(s->pool, copy.to);
    }
    s->copies[s->copies_count++] = copy;
}

static void admit(struct scheduler *s, struct sequence *seq, const struct reuse *reuse,
                  uint64_t now_ns)
{
    int r;

    ASSERT(seq->state == SEQ_WAITING && seq->table.count == 0);
    seq->deferred = false;
    if (seq->preemptions == 0)
        note_first_admission(s, seq, reuse, now_ns);
    seq->load_since_ns = 0;
    block_pool_ref_all(s->pool, s->scratch, reuse->blocks);
    block_table_adopt(&seq->table, s->scratch, reuse->blocks);
    if (reuse->copy_from != BLOCK_NONE)
        block_pool_ref(s->pool, reuse->copy_from);
    if (s->window_tokens > 0)
        hold_windows(s, seq, reuse);
    r = block_table_grow(&seq->table, s->pool, seq->ids_count);
    ASSERT(r == 0); /* fits() counted */
    if (s->window_tokens > 0)
        r = block_table_cover(&seq->table, s->pool,
                              scheduler_window_end(s, seq, reused_tokens(reuse)));
    ASSERT(r == 0);
    load_from_tiers(s, seq, reuse);
    if (reuse->copy_from != BLOCK_NONE)
        add_copy(s, seq, reuse);
    seq->sealed = reuse->blocks;
    seq->computed = reused_tokens(reuse);
    list_remove(&seq->link);
    s->waiting_count--;
    sequence_set_state(seq, SEQ_PREFILL, "admit");
    scheduler_enqueue_running(s, seq);
    scheduler_add_chunk(s, seq);
    ASSERT(seq->in_step); /* its copy, if any, is made in this step */
}

/* Its blocks are on their way. Whoever comes later passes: the wait has an end. */
static void note_loading(struct scheduler *s, struct sequence *seq, uint64_t now_ns)
{
    if (seq->load_since_ns == 0)
        seq->load_since_ns = now_ns;
    seq->deferred = true;
    s->loading++;
}

/* Those that were held or did not fit in this plan, in order; nobody passes one that was passed
 * often enough. */
struct blocked {
    struct sequence *sequences[CANDIDATES_MAX];
    uint32_t count;
    bool closed;
};

static void block(struct blocked *blocked, struct sequence *seq, bool deferred)
{
    seq->deferred = deferred;
    ASSERT(blocked->count < CANDIDATES_MAX);
    blocked->sequences[blocked->count++] = seq;
    blocked->closed |= seq->bypassed >= BYPASS_MAX;
}

static void count_bypass(struct blocked *blocked)
{
    for (uint32_t i = 0; i < blocked->count; i++) {
        struct sequence *seq = blocked->sequences[i];
        ASSERT(seq->bypassed < BYPASS_MAX);
        seq->bypassed++;
        blocked->closed |= seq->bypassed >= BYPASS_MAX;
    }
}

void admission_run(struct scheduler *s, uint64_t now_ns)
{
    struct blocked blocked = {.count = 0};
    uint32_t candidates = 0;

    LIST_FOR_SAFE(item, after, &s->waiting)
    {
        struct sequence *seq = LIST_ENTRY(item, struct sequence, link);
        struct reuse reuse;
        if (blocked.closed || candidates++ == CANDIDATES_MAX || s->running_count == s->running_max)
            return;
        find_reuse(s, seq, &reuse);
        if (is_held(s, seq, &reuse)) {
            block(&blocked, seq, true);
            continue;
        }
        find_in_tiers(s, seq, &reuse, now_ns);
        if (reuse.tier.loading) {
            note_loading(s, seq, now_ns);
            continue;
        }
        if (reuse.tier.wait || (reuse.tier.blocks > 0 && is_held(s, seq, &reuse))) {
            block(&blocked, seq, true);
            continue;
        }
        while (!fits(s, seq, &reuse) && s->running_count == 0 && block_pool_break_pin(s->pool)) {
            find_reuse(s, seq, &reuse); /* nobody will make room but the leases */
            find_in_tiers(s, seq, &reuse, now_ns);
        }
        if (!fits(s, seq, &reuse)) {
            block(&blocked, seq, false);
            continue;
        }
        if (scheduler_chunk_rows(s, seq, reused_tokens(&reuse)) == 0) {
            if (scheduler_to_score(seq) == 0 || scheduler_budget(s) < BLOCK_TOKENS)
                return;                  /* the step is full */
            block(&blocked, seq, false); /* of scored rows only */
            continue;
        }
        count_bypass(&blocked);
        admit(s, seq, &reuse, now_ns);
    }
}
