/* chat_record.c - three maps over one list, least recently used first.
 *
 * A key names the latest record with it; a record that goes takes a key along only while it is the
 * one named. Records with the same first message form a list, latest first; only CANDIDATES_MAX of
 * it are looked at, so that a popular opening costs no more than a rare one. Cost: find is one map
 * lookup per turn in the request, add is one hash over the answer. Invariants: chat_records_check.
 */
#include "router/session/chat_record.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"

#define CANDIDATES_MAX 16u

struct chat_records {
    uint32_t entries_max;
    size_t bytes, bytes_max, count;
    struct list used; /* oldest first */
    struct map *by_session, *by_chain, *by_first;
};

struct chat_records *chat_records_new(uint32_t entries_max)
{
    struct chat_records *records = mem_zalloc(sizeof(*records));

    records->entries_max = entries_max;
    records->bytes_max = (size_t)entries_max * CHAT_RECORD_BYTES_MEAN;
    list_init(&records->used);
    records->by_session = map_new(0);
    records->by_chain = map_new(0);
    records->by_first = map_new(0);
    return records;
}

void chat_record_free(struct chat_record *record)
{
    if (!record)
        return;
    chain_done(&record->text);
    chain_done(&record->ids);
    mem_free(record->messages);
    mem_free(record->borders);
    mem_free(record);
}

static void forget_key(struct map *map, uint64_t key, const struct chat_record *record)
{
    if (map_get_u64(map, key) == record)
        (void)map_remove_u64(map, key);
}

static void record_drop(struct chat_records *records, struct chat_record *record)
{
    forget_key(records->by_session, record->session, record);
    forget_key(records->by_chain, record->chain_key, record);
    list_remove(&record->first_link);
    if (record->first_list && list_empty(record->first_list)) {
        (void)map_remove_u64(records->by_first, record->first_key);
        mem_free(record->first_list);
    }
    list_remove(&record->used_link);
    ASSERT(records->bytes >= record->memory && records->count > 0);
    records->bytes -= record->memory;
    records->count--;
    chat_record_free(record);
}

void chat_records_free(struct chat_records *records)
{
    if (!records)
        return;
    while (!list_empty(&records->used))
        record_drop(records, LIST_ENTRY(records->used.next, struct chat_record, used_link));
    map_free(records->by_session);
    map_free(records->by_chain);
    map_free(records->by_first);
    mem_free(records);
}

/* ---- find ---- */

uint32_t chat_record_kept(const struct chat_record *record)
{
    return record->messages_count < CHAT_RECORD_MESSAGES_MAX ? record->messages_count
                                                             : CHAT_RECORD_MESSAGES_MAX;
}

uint32_t chat_record_common(const struct chat_record *record, const struct conversation *c)
{
    uint32_t kept = chat_record_kept(record), common = 0;

    if (c->count >= record->messages_count && c->chain[record->messages_count] == record->chain_all)
        return record->messages_count;
    while (common < kept && common < c->count &&
           record->messages[common] == c->messages[common].hash)
        common++;
    return common;
}

static struct chat_record *find_first(const struct chat_records *records,
                                      const struct chat_turn *turn)
{
    const struct list *list = map_get_u64(records->by_first, turn->conversation->first_hash);
    struct chat_record *best = NULL;
    uint32_t best_common = 0, looked = 0;

    if (!list || turn->conversation->first_hash == 0)
        return NULL;
    LIST_FOR(item, list)
    {
        struct chat_record *record = LIST_ENTRY(item, struct chat_record, first_link);
        uint32_t common = chat_record_common(record, turn->conversation);
        if (!best || common > best_common) {
            best = record;
            best_common = common;
        }
        if (++looked == CANDIDATES_MAX)
            break;
    }
    return best;
}

const struct chat_record *chat_records_find(struct chat_records *records,
                                            const struct chat_turn *turn)
{
    const struct conversation *c = turn->conversation;
    struct chat_record *found = NULL;

    if (turn->session)
        found = map_get_u64(records->by_session, turn->session);
    for (uint32_t end = c->count; end > 0 && !found; end--) {
        if (conversation_is_turn(c, end))
            found = map_get_u64(records->by_chain, c->chain[end]);
    }
    if (!found)
        found = find_first(records, turn);
    if (found) {
        list_remove(&found->used_link);
        list_push_back(&records->used, &found->used_link);
    }
    return found;
}

/* ---- add ---- */

int32_t chat_turn_message(const struct chat_turn *turn, int32_t rendered)
{
    uint32_t head = turn->conversation->head;

    return rendered >= (int32_t)head ? rendered + (int32_t)(turn->first - head) : rendered;
}

void chat_turn_borders(const struct chat_turn *turn, struct chain *chain,
                       struct message_border *borders, uint32_t count)
{
    memset(borders, 0, count * sizeof(*borders));
    for (size_t i = 0; i < turn->spans_count; i++) {
        const struct text_span *span = &turn->spans[i];
        int32_t message = chat_turn_message(turn, span->message);
        if (message < 0 || (uint32_t)message >= count)
            continue;
        chain_add(chain, turn->text + chain->bytes, span->start - chain->bytes);
        if (!borders[message].start)
            borders[message].start = chain_hash(chain);
        chain_add(chain, turn->text + chain->bytes, span->end - chain->bytes);
        borders[message].end = chain_hash(chain);
    }
    chain_add(chain, turn->text + chain->bytes, turn->text_bytes - chain->bytes);
}

static void keep_messages(struct chat_record *record, const struct conversation *c)
{
    record->messages_count = c->count;
    uint32_t kept = chat_record_kept(record);
    record->messages = mem_calloc(kept + 1, sizeof(*record->messages));
    record->borders = mem_calloc(kept + 1, sizeof(*record->borders));
    for (uint32_t i = 0; i < kept; i++)
        record->messages[i] = c->messages[i].hash;
    record->chain_all = c->chain[c->count];
    record->head = c->head;
    record->head_bytes = c->head_bytes;
    memcpy(record->head_text, c->head_text,
           c->head_bytes < CHAT_RECORD_HEAD_MAX ? c->head_bytes : CHAT_RECORD_HEAD_MAX);
    record->memory += (kept + 1) * (sizeof(*record->messages) + sizeof(*record->borders));
}

struct chat_record *chat_record_new(const struct chat_turn *turn)
{
    const struct conversation *c = turn->conversation;
    struct chat_record *record = mem_zalloc(sizeof(*record));

    record->memory = sizeof(*record);
    list_init(&record->used_link);
    list_init(&record->first_link);
    record->session = turn->session;
    record->chain_key = c->chain[c->count];
    record->first_key = c->first_hash;
    record->salt = turn->salt;
    record->kwargs = turn->kwargs;
    record->tools = c->tools_hash;
    record->system = c->system_hash;
    record->first = turn->first;
    keep_messages(record, c);
    chain_init(&record->text);
    chain_init(&record->ids);
    chat_turn_borders(turn, &record->text, record->borders, chat_record_kept(record));
    record->prompt_bytes = turn->text_bytes;
    record->prompt_hash = chain_hash(&record->text);
    chain_add(&record->ids, turn->ids, turn->ids_count * sizeof(*turn->ids));
    return record;
}

static void add_keys(struct chat_records *records, struct chat_record *record)
{
    if (record->session)
        (void)map_set_u64(records->by_session, record->session, record);
    (void)map_set_u64(records->by_chain, record->chain_key, record);
    if (record->first_key == 0)
        return;
    record->first_list = map_get_u64(records->by_first, record->first_key);
    if (!record->first_list) {
        record->first_list = mem_alloc(sizeof(*record->first_list));
        list_init(record->first_list);
        (void)map_set_u64(records->by_first, record->first_key, record->first_list);
    }
    list_push_front(record->first_list, &record->first_link);
}

void chat_records_add(struct chat_records *records, struct chat_record *record,
                      const struct chat_answer *answer)
{
    struct chat_record *same = map_get_u64(records->by_chain, record->chain_key);

    if (records->entries_max == 0) {
        chat_record_free(record);
        return;
    }
    if (same && same->session == record->session)
        record_drop(records, same); /* the same turn once more: the later answer counts */
    record->group = answer->group;
    record->answer_hash = answer->content_hash;
    chain_add(&record->text, answer->text, answer->text_bytes);
    chain_add(&record->ids, answer->ids, answer->ids_count * sizeof(*answer->ids));
    record->memory += chain_memory(&record->text) + chain_memory(&record->ids);
    add_keys(records, record);
    list_push_back(&records->used, &record->used_link);
    records->bytes += record->memory;
    records->count++;
    while (records->count > records->entries_max || records->bytes > records->bytes_max) {
        if (records->count == 1)
            break; /* never the one just made */
        record_drop(records, LIST_ENTRY(records->used.next, struct chat_record, used_link));
    }
}

size_t chat_records_count(const struct chat_records *records)
{
    return records->count;
}

size_t chat_records_bytes(const struct chat_records *records)
{
    return records->bytes;
}

void chat_records_check(const struct chat_records *records)
{
    size_t count = 0, bytes = 0, listed = 0;
    const void *key;
    size_t key_bytes;
    void *list;

    LIST_FOR(item, &records->used)
    {
        count++;
        bytes += LIST_ENTRY(item, struct chat_record, used_link)->memory;
    }
    ASSERT(count == records->count && bytes == records->bytes);
    ASSERT(map_count(records->by_session) <= count && map_count(records->by_chain) <= count);
    for (size_t at = 0; map_next(records->by_first, &at, &key, &key_bytes, &list);) {
        ASSERT(!list_empty(list));
        LIST_FOR(item, (struct list *)list)
        listed++;
    }
    ASSERT(listed <= count);
}
