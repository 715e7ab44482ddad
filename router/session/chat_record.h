/* chat_record.h - what was answered: enough of each chat to say why the next turn reuses less.
 *
 *   session id ----------------------> the session's last record
 *   hash of all messages ------------> the record that this request extends
 *   hash of the first user message --> the 16 latest records that began so
 *
 * A record holds hashes, counts and the first CHAT_RECORD_HEAD_MAX bytes of the system text, no
 * other text. Records without a session id are found only under the same cache salt: a tenant
 * must not learn what another one asked.
 *
 * Bounded: entries, and CHAT_RECORD_BYTES_MEAN bytes for each of them on average; the one not used
 * for the longest goes first. Ownership: the records own all that were added; a pointer from find
 * is good until the next add. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_SESSION_CHAT_RECORD_H
#define REFRAIN_ROUTER_SESSION_CHAT_RECORD_H

#include "proto/base/list.h"
#include "router/session/chain.h"
#include "router/session/conversation.h"
#include "router/text/chat_template.h"

#define CHAT_RECORD_BYTES_MEAN 4096u
#define CHAT_RECORD_HEAD_MAX 256u
#define CHAT_RECORD_MESSAGES_MAX 512u

/* A request, ready to be compared; borrowed from the request. */
struct chat_turn {
    uint64_t session; /* hash of model and session_id; 0: none given */
    uint64_t salt, kwargs;
    const struct conversation *conversation; /* all that the client sent */
    uint32_t first;                          /* what the history policy kept begins there */
    const char *text;                        /* rendered */
    size_t text_bytes;
    const struct text_span *spans;
    size_t spans_count;
    const uint32_t *ids;
    size_t ids_count;
};

/* What became of it. */
struct chat_answer {
    uint32_t group;
    const char *text; /* as the ids say it, control tokens too, without the one that ended it */
    size_t text_bytes;
    const uint32_t *ids; /* without the last, whose KV no worker has */
    size_t ids_count;
    uint64_t content_hash; /* conversation_hash_text() of what the client got; 0: not known */
};

/* Hashes of the prompt's text up to where a message's text begins and ends in it; 0: nowhere. */
struct message_border {
    uint64_t start, end;
};

struct chat_record {
    struct list used_link, first_link;
    struct list *first_list; /* of all with the same first message */
    uint64_t session, chain_key, first_key;
    uint64_t salt, kwargs, tools, system;
    uint32_t messages_count, head, first, group;
    uint64_t *messages;             /* hashes, at most CHAT_RECORD_MESSAGES_MAX */
    struct message_border *borders; /* as many */
    uint64_t chain_all;
    uint64_t answer_hash;               /* 0: not known */
    struct chain text, ids;             /* prompt and answer */
    uint64_t prompt_bytes, prompt_hash; /* of the prompt in text */
    size_t head_bytes;                  /* of the system text; head_text has the first of them */
    char head_text[CHAT_RECORD_HEAD_MAX];
    size_t memory;
};

struct chat_records;

/* entries_max 0: holds nothing. */
struct chat_records *chat_records_new(uint32_t entries_max);
void chat_records_free(struct chat_records *records);
/* The turn that this one most likely follows; NULL: none is known. */
const struct chat_record *chat_records_find(struct chat_records *records,
                                            const struct chat_turn *turn);
/* The first half of a record; the turn may go then. chat_record_free() or chat_records_add(). */
struct chat_record *chat_record_new(const struct chat_turn *turn);
void chat_record_free(struct chat_record *record);
/* The second half. The record is the records' now. */
void chat_records_add(struct chat_records *records, struct chat_record *record,
                      const struct chat_answer *answer);
/* Add the turn's text to a new chain, and fill the borders of the first `count` messages. */
void chat_turn_borders(const struct chat_turn *turn, struct chain *chain,
                       struct message_border *ret_borders, uint32_t count);
/* The client's index of a message that was rendered. */
int32_t chat_turn_message(const struct chat_turn *turn, int32_t rendered);
uint32_t chat_record_kept(const struct chat_record *record); /* messages known one by one */
/* How many messages both begin with in common. */
uint32_t chat_record_common(const struct chat_record *record,
                            const struct conversation *conversation);
size_t chat_records_count(const struct chat_records *records);
size_t chat_records_bytes(const struct chat_records *records);
/* For tests: recounts everything and asserts. */
void chat_records_check(const struct chat_records *records);

#endif
