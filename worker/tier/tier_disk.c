/* tier_disk.c - tokens with one operation each, blocks that wait for one, and the disk's state.
 *
 *   token   FREE --> WRITING, REMOVING, READING --all ranks are done--> FREE, or READY (read)
 *           READY --loaded, or nobody asked for it for READY_PLANS plans--> FREE
 *
 * Why blocks are written when they are published and not when the pool loses them: what the pool
 * holds when a worker is killed is what its chats were about. Why pending blocks stay in the pool
 * and not in buffers: a long prompt publishes more at once than a disk takes; the pool keeps them,
 * at no cost, and only what it loses first is dropped. Why readers have buffers of their own: a
 * burst of writes must not make a chat wait. Why a file that is in the way is removed by an
 * operation of its own, before the write: the budget holds at any moment.
 * Cost: O(1) per block, a pass over the tokens per plan. Invariant: a node being read is pinned. */
#include "worker/tier/tier_disk.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#define LOG_MODULE "tier"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "worker/tier/tier_io.h"

#define SECOND_NS 1000000000ull
#define RETRY_FIRST_NS (60 * SECOND_NS)
#define RETRY_MAX_NS (3600 * SECOND_NS)
#define READY_PLANS 64u
#define WRITE_TOKENS 3u /* that a write may need: two files to remove, one to write */
#define TICKET_MASK ((1u << 28) - 1)

enum token_state {
    TOKEN_FREE = 0,
    TOKEN_WRITING,
    TOKEN_REMOVING, /* one file, or all */
    TOKEN_READING,
    TOKEN_READY
};

struct token {
    enum token_state state;
    uint32_t ticket, node; /* node: TIER_NODE_NONE when that was lost meanwhile */
    uint64_t asked;        /* plan in which somebody last wanted it */
};

/* A published block that has no file yet, by its id in the pool. */
struct pending {
    struct tier_block block;
    uint32_t before, next;
    bool waits;
};

struct tier_disk {
    struct tier_disk_settings settings;
    struct tier_tree tree;
    struct token *tokens;     /* [buffers + 1]: writers, readers, the one for CLEAR */
    uint32_t *token_of;       /* [nodes_max]: that reads the node, + 1; 0: none */
    struct pending *pending;  /* [pool_blocks] */
    struct step_disk_op *ops; /* [buffers + 1] */
    uint32_t ops_count, writers, ticket;
    uint32_t pending_first, pending_last, in_flight, writing, reading;
    uint64_t plan, now_ns;
    uint64_t retry_ns, retry_after_ns, up_since_ns;
    bool trial; /* the write that may bring the disk back is under way */
    bool clear_wanted;
    struct tier_disk_counts counts;
};

uint32_t tier_disk_ops_max(const struct tier_disk_settings *settings)
{
    return settings->nodes_max > 0 ? settings->buffers + 1 : 0;
}

int tier_disk_new(const struct tier_disk_settings *settings, struct tier_disk **ret_disk,
                  struct errmsg *err)
{
    struct tier_disk *disk = mem_zalloc(sizeof(*disk));
    int r = tier_tree_init(&disk->tree, settings->nodes_max, err);

    if (r < 0) {
        mem_free(disk);
        return r;
    }
    ASSERT(settings->buffers >= TIER_DISK_BUFFERS_MIN &&
           settings->buffers <= TIER_DISK_BUFFERS_MAX);
    disk->settings = *settings;
    disk->writers = settings->buffers / 4;
    disk->tokens = mem_calloc(settings->buffers + 1, sizeof(*disk->tokens));
    disk->token_of = mem_calloc(settings->nodes_max, sizeof(*disk->token_of));
    disk->pending = mem_calloc(settings->pool_blocks, sizeof(*disk->pending));
    disk->ops = mem_calloc(settings->buffers + 1, sizeof(*disk->ops));
    disk->pending_first = disk->pending_last = TIER_NODE_NONE;
    disk->counts.state = TIER_DISK_UP;
    disk->retry_after_ns = RETRY_FIRST_NS;
    for (uint32_t i = 0; i <= settings->buffers; i++) { /* words of an earlier user */
        for (uint32_t rank = 0; rank < settings->ranks; rank++) {
            uint32_t before = settings->done[rank][i] >> 4;
            disk->ticket = before > disk->ticket ? before : disk->ticket;
        }
    }
    *ret_disk = disk;
    return 0;
}

void tier_disk_free(struct tier_disk *disk)
{
    if (disk == NULL)
        return;
    tier_tree_done(&disk->tree);
    mem_free(disk->tokens);
    mem_free(disk->token_of);
    mem_free(disk->pending);
    mem_free(disk->ops);
    mem_free(disk);
}

struct tier_tree *tier_disk_tree(struct tier_disk *disk)
{
    return &disk->tree;
}

/* ---- pending blocks ---- */

static void pending_add(struct tier_disk *disk, uint32_t id, const struct tier_block *block)
{
    struct pending *pending = &disk->pending[id];

    ASSERT(id < disk->settings.pool_blocks && !pending->waits);
    *pending = (struct pending){*block, disk->pending_last, TIER_NODE_NONE, true};
    if (disk->pending_last != TIER_NODE_NONE)
        disk->pending[disk->pending_last].next = id;
    else
        disk->pending_first = id;
    disk->pending_last = id;
    disk->counts.pending++;
}

static void pending_remove(struct tier_disk *disk, uint32_t id)
{
    struct pending *pending = &disk->pending[id];

    ASSERT(pending->waits);
    if (pending->before != TIER_NODE_NONE)
        disk->pending[pending->before].next = pending->next;
    else
        disk->pending_first = pending->next;
    if (pending->next != TIER_NODE_NONE)
        disk->pending[pending->next].before = pending->before;
    else
        disk->pending_last = pending->before;
    pending->waits = false;
    disk->counts.pending--;
}

static void drop_pending(struct tier_disk *disk)
{
    while (disk->pending_first != TIER_NODE_NONE) {
        pending_remove(disk, disk->pending_first);
        disk->counts.drops_total++;
    }
}

/* ---- the disk's state ---- */

const char *tier_disk_state_name(enum tier_disk_state state)
{
    static const char *const names[] = {"none", "up", "full", "failed"};

    ASSERT(state <= TIER_DISK_FAILED);
    return names[state];
}

static void set_state(struct tier_disk *disk, enum tier_disk_state next, const char *why)
{
    enum tier_disk_state before = disk->counts.state;

    if (next == before)
        return;
    ASSERT(next != TIER_DISK_NONE);
    disk->counts.state = next;
    if (next == TIER_DISK_UP) {
        disk->up_since_ns = disk->now_ns;
        log_info("disk_tier", "state=up blocks=%u", disk->tree.used - disk->tree.doomed);
        return;
    }
    if (before == TIER_DISK_UP && disk->now_ns - disk->up_since_ns > RETRY_MAX_NS)
        disk->retry_after_ns = RETRY_FIRST_NS;
    disk->retry_ns = disk->now_ns + disk->retry_after_ns;
    drop_pending(disk);
    log_error("disk_tier", "state=%s why=\"%s\" retry_s=%llu", tier_disk_state_name(next), why,
              (unsigned long long)(disk->retry_after_ns / SECOND_NS));
}

/* A trial failed: no line, more patience. */
static void wait_longer(struct tier_disk *disk)
{
    disk->retry_after_ns =
        2 * disk->retry_after_ns < RETRY_MAX_NS ? 2 * disk->retry_after_ns : RETRY_MAX_NS;
    disk->retry_ns = disk->now_ns + disk->retry_after_ns;
}

/* A write may start: as ever, or as the one that tries whether the disk is back. */
static bool may_write(const struct tier_disk *disk)
{
    return disk->counts.state == TIER_DISK_UP || (!disk->trial && disk->now_ns >= disk->retry_ns);
}

static void on_failure(struct tier_disk *disk, enum tier_io_result result, bool writing)
{
    static const char *const why[TIER_IO_RESULTS] = {[TIER_IO_FULL] = "no space for another file",
                                                     [TIER_IO_FAILED] = "input or output error",
                                                     [TIER_IO_FOLDER] =
                                                         "the folder is gone or cannot be written"};

    if (result < TIER_IO_FULL)
        return;
    if (disk->counts.state == TIER_DISK_UP ||
        (disk->counts.state == TIER_DISK_FULL && result > TIER_IO_FULL))
        set_state(disk, result == TIER_IO_FULL ? TIER_DISK_FULL : TIER_DISK_FAILED, why[result]);
    if (writing && disk->trial)
        wait_longer(disk);
}

/* ---- operations ---- */

static void put_hash(uint32_t words[4], struct block_hash hash)
{
    words[0] = (uint32_t)hash.low;
    words[1] = (uint32_t)(hash.low >> 32);
    words[2] = (uint32_t)hash.high;
    words[3] = (uint32_t)(hash.high >> 32);
}

static void begin(struct tier_disk *disk, uint32_t at, enum step_disk_kind kind,
                  enum token_state state, uint32_t node, const struct tier_block *block)
{
    struct token *token = &disk->tokens[at];
    struct step_disk_op *op = &disk->ops[disk->ops_count++];

    ASSERT(token->state == TOKEN_FREE && disk->ops_count <= disk->settings.buffers + 1);
    disk->ticket = (disk->ticket + 1) & TICKET_MASK;
    *token = (struct token){state, disk->ticket, node, disk->plan};
    *op = (struct step_disk_op){.kind = (uint32_t)kind, .token = at, .ticket = disk->ticket};
    disk->in_flight++;
    if (block == NULL)
        return;
    op->tokens = block->tokens;
    op->first = block->first;
    put_hash(op->hash, block->hash);
    put_hash(op->parent, block->parent);
    memcpy(op->ids, block->ids, block->tokens * sizeof(*op->ids));
}

/* A FREE token of [from, to), or TIER_NODE_NONE. */
static uint32_t free_token(const struct tier_disk *disk, uint32_t from, uint32_t to)
{
    for (uint32_t at = from; at < to; at++) {
        if (disk->tokens[at].state == TOKEN_FREE)
            return at;
    }
    return TIER_NODE_NONE;
}

static uint32_t free_writer(const struct tier_disk *disk)
{
    return free_token(disk, 0, disk->writers);
}

static uint32_t free_writers(const struct tier_disk *disk)
{
    uint32_t count = 0;

    for (uint32_t at = 0; at < disk->writers; at++)
        count += disk->tokens[at].state == TOKEN_FREE;
    return count;
}

/* A failed disk is left alone until it is tried again. */
static bool is_left_alone(const struct tier_disk *disk)
{
    return disk->counts.state == TIER_DISK_FAILED && !may_write(disk);
}

/* Files whose blocks are DOOMED; false: some are left. */
static bool remove_doomed(struct tier_disk *disk)
{
    while (disk->tree.doomed > 0) {
        uint32_t node = tier_tree_doomed(&disk->tree), at = free_writer(disk);
        if (at == TIER_NODE_NONE || is_left_alone(disk))
            return false;
        begin(disk, at, STEP_DISK_REMOVE, TOKEN_REMOVING, TIER_NODE_NONE,
              &disk->tree.nodes[node].block);
        tier_tree_removed(&disk->tree);
    }
    return true;
}

/* No block gets a file before all are removed. false: that has still to begin. */
static bool begin_clear(struct tier_disk *disk)
{
    uint32_t at = disk->settings.buffers;

    if (!disk->clear_wanted)
        return true;
    if (disk->tokens[at].state != TOKEN_FREE || is_left_alone(disk))
        return false;
    begin(disk, at, STEP_DISK_CLEAR, TOKEN_REMOVING, TIER_NODE_NONE, NULL);
    disk->clear_wanted = false;
    return true;
}

/* A place in the tree and a token for a block: at most a tail that it replaces, and the oldest
 * leaf, are removed for it. 0; -EAGAIN: later; -ENOENT: never. */
static int begin_write(struct tier_disk *disk, const struct tier_block *block, uint32_t *ret_at)
{
    uint32_t node;

    if (!may_write(disk))
        return -ENOENT;
    if (!begin_clear(disk) || !remove_doomed(disk) || free_writers(disk) < WRITE_TOKENS)
        return -EAGAIN;
    int r = tier_tree_add(&disk->tree, block, &node);
    bool removed = remove_doomed(disk);
    ASSERT(removed);
    if (r == -ENOSPC && tier_tree_evict(&disk->tree, block)) {
        removed = remove_doomed(disk);
        ASSERT(removed);
        r = tier_tree_add(&disk->tree, block, &node);
    }
    if (r == -ENOSPC && disk->writing + disk->reading > 0)
        return -EAGAIN; /* some leaves may be lost when that is over */
    if (r < 0)
        return -ENOENT; /* or one chain has every place: it keeps its beginning */
    disk->trial = disk->counts.state != TIER_DISK_UP;
    *ret_at = free_writer(disk);
    begin(disk, *ret_at, STEP_DISK_WRITE, TOKEN_WRITING, node, block);
    disk->writing++;
    return 0;
}

void tier_disk_publish(struct tier_disk *disk, uint32_t pool_block, const struct tier_block *block)
{
    uint32_t node = tier_tree_covers(&disk->tree, block);

    if (node != TIER_NODE_NONE)
        tier_tree_touch(&disk->tree, node);
    else if (may_write(disk))
        pending_add(disk, pool_block, block);
    else
        disk->counts.drops_total++;
}

void tier_disk_unpublish(struct tier_disk *disk, uint32_t pool_block)
{
    if (disk->pending[pool_block].waits)
        pending_remove(disk, pool_block);
}

bool tier_disk_evict(struct tier_disk *disk, uint32_t pool_block, uint32_t *ret_slot)
{
    uint32_t at = TIER_NODE_NONE;

    if (!disk->pending[pool_block].waits)
        return false;
    pending_remove(disk, pool_block);
    const struct tier_block block = disk->pending[pool_block].block;
    if (begin_write(disk, &block, &at) < 0) {
        disk->counts.drops_total++;
        return false;
    }
    *ret_slot = at;
    return true;
}

bool tier_disk_next_store(struct tier_disk *disk, uint32_t *ret_pool_block, uint32_t *ret_slot)
{
    if (disk->counts.state != TIER_DISK_FAILED)
        (void)(begin_clear(disk) && remove_doomed(disk));
    while (disk->pending_first != TIER_NODE_NONE) {
        uint32_t id = disk->pending_first, at = TIER_NODE_NONE;
        const struct tier_block block = disk->pending[id].block;
        int r = tier_tree_covers(&disk->tree, &block) != TIER_NODE_NONE
                    ? -EEXIST
                    : begin_write(disk, &block, &at);
        if (r == -EAGAIN)
            return false;
        pending_remove(disk, id);
        disk->counts.drops_total += r == -ENOENT;
        if (r < 0)
            continue;
        *ret_pool_block = id;
        *ret_slot = at;
        return true;
    }
    return false;
}

/* ---- reading ---- */

static void release_reader(struct tier_disk *disk, uint32_t at)
{
    struct token *token = &disk->tokens[at];

    ASSERT(token->state == TOKEN_READING || token->state == TOKEN_READY);
    if (token->node != TIER_NODE_NONE) {
        tier_tree_unpin(&disk->tree, token->node);
        disk->token_of[token->node] = 0;
    }
    token->state = TOKEN_FREE;
    token->node = TIER_NODE_NONE;
    disk->reading--;
}

/* A buffer to read into, or TIER_NODE_NONE. Who asks first in a plan takes what others, who are
 * asked after him, have ready: else two that hold half of the buffers each would wait for each
 * other. */
static uint32_t take_reader(struct tier_disk *disk)
{
    uint32_t at = free_token(disk, disk->writers, disk->settings.buffers);

    if (at != TIER_NODE_NONE)
        return at;
    for (at = disk->writers; at < disk->settings.buffers; at++) {
        if (disk->tokens[at].state != TOKEN_READY || disk->tokens[at].asked == disk->plan)
            continue;
        release_reader(disk, at);
        return at;
    }
    return TIER_NODE_NONE;
}

static enum tier_disk_found found(struct tier_disk *disk, uint32_t node, bool may_read,
                                  uint32_t *ret_slot)
{
    uint32_t at;

    if (disk->token_of[node] != 0) {
        at = disk->token_of[node] - 1;
        disk->tokens[at].asked = disk->plan;
        if (disk->tokens[at].state == TOKEN_READING)
            return TIER_DISK_COMING;
        *ret_slot = at;
        return TIER_DISK_READY;
    }
    at = may_read ? take_reader(disk) : TIER_NODE_NONE;
    if (at == TIER_NODE_NONE)
        return TIER_DISK_LATER;
    begin(disk, at, STEP_DISK_READ, TOKEN_READING, node, &disk->tree.nodes[node].block);
    tier_tree_pin(&disk->tree, node);
    disk->token_of[node] = at + 1;
    disk->reading++;
    return TIER_DISK_COMING;
}

enum tier_disk_found tier_disk_find(struct tier_disk *disk, const struct tier_block *wanted,
                                    bool may_read, uint32_t *ret_slot)
{
    uint32_t node = disk->counts.state == TIER_DISK_FAILED ? TIER_NODE_NONE
                                                           : tier_tree_find(&disk->tree, wanted);

    return node == TIER_NODE_NONE ? TIER_DISK_MISS : found(disk, node, may_read, ret_slot);
}

enum tier_disk_found tier_disk_find_tail(struct tier_disk *disk, struct block_hash parent,
                                         const uint32_t *ids, uint32_t count, bool may_read,
                                         uint32_t *ret_slot, uint32_t *ret_tokens)
{
    uint32_t tokens = 0, node = TIER_NODE_NONE;

    if (disk->counts.state != TIER_DISK_FAILED)
        node = tier_tree_find_tail(&disk->tree, parent, ids, count, &tokens);
    if (node == TIER_NODE_NONE)
        return TIER_DISK_MISS;
    enum tier_disk_found result = found(disk, node, may_read, ret_slot);
    if (result == TIER_DISK_READY)
        *ret_tokens = tokens;
    return result;
}

uint32_t tier_disk_readers(const struct tier_disk *disk, uint32_t *ret_used)
{
    *ret_used = disk->reading;
    return disk->settings.buffers - disk->writers;
}

void tier_disk_loaded(struct tier_disk *disk, uint32_t slot)
{
    ASSERT(slot < disk->settings.buffers && disk->tokens[slot].state == TOKEN_READY);
    ASSERT(disk->tokens[slot].node != TIER_NODE_NONE);
    tier_tree_touch(&disk->tree, disk->tokens[slot].node);
    release_reader(disk, slot);
    disk->counts.loads_total++;
}

/* ---- endings ---- */

/* A block's file is not to be trusted, or not there: it goes, and what hangs under it. */
static void lose(struct tier_disk *disk, uint32_t node)
{
    (void)tier_tree_lose(&disk->tree, node);
    for (uint32_t at = 0; at < disk->settings.buffers; at++) {
        struct token *token = &disk->tokens[at];
        if (token->node == TIER_NODE_NONE || token->state == TOKEN_FREE ||
            disk->tree.nodes[token->node].state != TIER_NODE_DOOMED)
            continue;
        disk->token_of[token->node] = 0;
        token->node = TIER_NODE_NONE;
        if (token->state == TOKEN_READY)
            release_reader(disk, at);
    }
}

static void on_written(struct tier_disk *disk, struct token *token, enum tier_io_result result)
{
    uint32_t node = token->node;

    disk->writing--;
    token->state = TOKEN_FREE;
    token->node = TIER_NODE_NONE;
    if (result == TIER_IO_OK) {
        disk->counts.stores_total++;
        if (node != TIER_NODE_NONE)
            tier_tree_written(&disk->tree, node);
        if (disk->trial && disk->counts.state != TIER_DISK_UP) {
            wait_longer(disk); /* for the next fall, if it comes soon */
            set_state(disk, TIER_DISK_UP, "");
        }
    } else {
        on_failure(disk, result, true);
        if (node != TIER_NODE_NONE)
            lose(disk, node); /* some ranks may have it */
    }
    disk->trial = false;
}

static void on_read(struct tier_disk *disk, uint32_t at, enum tier_io_result result)
{
    struct token *token = &disk->tokens[at];
    uint32_t node = token->node;

    if (node != TIER_NODE_NONE && result == TIER_IO_OK) {
        token->state = TOKEN_READY;
        return;
    }
    release_reader(disk, at);
    if (result == TIER_IO_GONE || result == TIER_IO_REFUSED) {
        if (node != TIER_NODE_NONE)
            lose(disk, node);
    } else if (result != TIER_IO_OK) {
        on_failure(disk, result, false);
    }
}

/* Of all ranks the worst; false: one of them is still at it. */
static bool is_over(const struct tier_disk *disk, uint32_t at, enum tier_io_result *ret_result)
{
    enum tier_io_result worst = TIER_IO_OK, result;

    for (uint32_t rank = 0; rank < disk->settings.ranks; rank++) {
        if (!tier_io_is_done(&disk->settings.done[rank][at], disk->tokens[at].ticket, &result))
            return false;
        worst = result > worst ? result : worst;
    }
    *ret_result = worst;
    return true;
}

static void poll_token(struct tier_disk *disk, uint32_t at)
{
    struct token *token = &disk->tokens[at];
    enum tier_io_result result = TIER_IO_OK;

    if (token->state == TOKEN_READY && token->asked + READY_PLANS < disk->plan)
        release_reader(disk, at);
    if (token->state == TOKEN_FREE || token->state == TOKEN_READY || !is_over(disk, at, &result))
        return;
    disk->in_flight--;
    if (result != TIER_IO_OK)
        disk->counts.errors[result]++;
    if (token->state == TOKEN_READING) {
        on_read(disk, at, result);
    } else if (token->state == TOKEN_WRITING) {
        on_written(disk, token, result);
    } else {
        token->state = TOKEN_FREE;
        disk->clear_wanted |= at == disk->settings.buffers && result != TIER_IO_OK;
        on_failure(disk, result, false);
    }
}

void tier_disk_poll(struct tier_disk *disk, uint64_t now_ns)
{
    disk->plan++;
    disk->now_ns = now_ns;
    ASSERT(disk->ops_count == 0);
    if (disk->in_flight + disk->reading == 0)
        return;
    for (uint32_t at = 0; at <= disk->settings.buffers; at++)
        poll_token(disk, at);
}

const struct step_disk_op *tier_disk_ops(struct tier_disk *disk, uint32_t *ret_count)
{
    *ret_count = disk->ops_count;
    return disk->ops;
}

void tier_disk_step_done(struct tier_disk *disk)
{
    disk->ops_count = 0;
}

bool tier_disk_busy(const struct tier_disk *disk)
{
    bool removals = disk->tree.doomed > 0 || disk->clear_wanted;

    return disk->in_flight > 0 || disk->counts.pending > 0 ||
           (removals && disk->counts.state != TIER_DISK_FAILED);
}

uint32_t tier_disk_clear(struct tier_disk *disk)
{
    ASSERT(disk->ops_count == 0);
    for (uint32_t at = 0; at < disk->settings.buffers; at++) {
        struct token *token = &disk->tokens[at];
        if (token->state == TOKEN_READY) {
            release_reader(disk, at);
        } else if (token->state == TOKEN_READING && token->node != TIER_NODE_NONE) {
            tier_tree_unpin(&disk->tree, token->node);
            disk->token_of[token->node] = 0;
        }
        token->node = TIER_NODE_NONE;
    }
    while (disk->pending_first != TIER_NODE_NONE)
        pending_remove(disk, disk->pending_first);
    disk->clear_wanted = true;
    return tier_tree_clear(&disk->tree);
}

void tier_disk_get_counts(const struct tier_disk *disk, struct tier_disk_counts *ret_counts)
{
    *ret_counts = disk->counts;
    ret_counts->used = disk->tree.used - disk->tree.doomed;
    ret_counts->pending += disk->writing;
    ret_counts->nodes_max = disk->tree.nodes_max;
    ret_counts->lost_total = disk->tree.lost_total;
}

void tier_disk_check(const struct tier_disk *disk)
{
    uint32_t in_flight = 0, reading = 0, pending = 0;

    tier_tree_check(&disk->tree);
    for (uint32_t at = 0; at <= disk->settings.buffers; at++) {
        const struct token *token = &disk->tokens[at];
        bool reads = token->state == TOKEN_READING || token->state == TOKEN_READY;
        in_flight += token->state != TOKEN_FREE && token->state != TOKEN_READY;
        reading += reads;
        ASSERT(!reads || (at >= disk->writers && at < disk->settings.buffers));
        if (reads && token->node != TIER_NODE_NONE)
            ASSERT(disk->token_of[token->node] == at + 1 &&
                   disk->tree.nodes[token->node].pins == 1);
    }
    for (uint32_t id = disk->pending_first; id != TIER_NODE_NONE; id = disk->pending[id].next) {
        ASSERT(disk->pending[id].waits);
        pending++;
    }
    ASSERT(in_flight == disk->in_flight && reading == disk->reading);
    ASSERT(pending == disk->counts.pending);
}
