/* miss.c - the causes in their order, and the sentence for each.
 *
 * A cause of the prompt is only looked for when the prompt really parts from what the turn before
 * left; whether it cost anything is known when the worker has spoken. Sentences hold numbers, never
 * text. */
#include "router/session/miss.h"

#include <inttypes.h>
#include <string.h>

#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "proto/block_hash.h"

const char *const miss_words[MISS_CAUSES + 1] = {
    [MISS_NONE] = "none",
    [MISS_FIRST_TURN] = "first_turn",
    [MISS_SALT_CHANGED] = "salt_changed",
    [MISS_TOOLS_CHANGED] = "tools_changed",
    [MISS_SYSTEM_CHANGED] = "system_changed",
    [MISS_MESSAGE_EDITED] = "message_edited",
    [MISS_HISTORY_CUT] = "history_cut",
    [MISS_TEMPLATE_UNSTABLE] = "template_unstable",
    [MISS_RETOKENIZED] = "retokenized",
    [MISS_OTHER_WORKER] = "other_worker",
    [MISS_EVICTED] = "evicted",
    [MISS_REUSE_OFF] = "reuse_off",
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Byte at which the first system texts part; -1: further on than a record remembers, or in another
 * message. */
static int64_t system_offset(const struct chat_record *before, const struct conversation *c)
{
    size_t kept = (size_t)smaller(before->head_bytes, CHAT_RECORD_HEAD_MAX);
    size_t at = 0;

    while (at < kept && at < c->head_bytes && before->head_text[at] == c->head_text[at])
        at++;
    if (at == kept && (kept < before->head_bytes || at == c->head_bytes))
        return -1;
    return (int64_t)at;
}

/* Index of the message that came back changed, the answer included; -1: none. A record knows the
 * first CHAT_RECORD_MESSAGES_MAX one by one: that number means one of those behind them. */
static int32_t edited_message(const struct chat_record *before, const struct conversation *c)
{
    uint32_t common = chat_record_common(before, c);

    if (common < before->messages_count)
        return common < c->count ? (int32_t)common : -1;
    if (common < c->count && before->answer_hash && c->messages[common].role == MESSAGE_ASSISTANT &&
        c->messages[common].content_hash != before->answer_hash)
        return (int32_t)common;
    return -1;
}

/* Where the texts part; false: one is the beginning of the other. */
static bool text_parts(const struct chat_record *before, const struct chat_turn *turn,
                       uint64_t *ret_offset)
{
    uint64_t coarse = (uint64_t)CHAIN_UNIT << before->text.shift;
    uint64_t common = chain_common(&before->text, turn->text, turn->text_bytes);

    *ret_offset = common;
    if (common == before->text.bytes)
        return false;
    return turn->text_bytes >= before->text.bytes || common + coarse <= turn->text_bytes;
}

/* The prompt begins with all text of the prompt before. */
static bool prompt_stands(const struct chat_record *before, const struct chat_turn *turn)
{
    struct chain chain;

    if (turn->text_bytes < before->prompt_bytes)
        return false;
    chain_init(&chain);
    chain_add(&chain, turn->text, before->prompt_bytes);
    bool same = chain_hash(&chain) == before->prompt_hash;
    chain_done(&chain);
    return same;
}

/* The first message that does not stand where and as it stood; behind all of them: the answer. */
static void note_place(const struct chat_record *before, const struct chat_turn *turn,
                       struct miss *miss)
{
    uint32_t kept = chat_record_kept(before), i = 0;
    struct message_border *now = mem_calloc(kept + 1, sizeof(*now));
    struct chain chain;

    chain_init(&chain);
    chat_turn_borders(turn, &chain, now, kept);
    while (i < kept && now[i].start == before->borders[i].start &&
           now[i].end == before->borders[i].end)
        i++;
    bool as_it_began =
        i < kept ? now[i].start == before->borders[i].start : prompt_stands(before, turn);
    miss->place =
        (struct place){.message = (int32_t)i, .field = as_it_began ? "content" : "template"};
    chain_done(&chain);
    mem_free(now);
}

static enum miss_cause prompt_cause(const struct chat_record *before, const struct chat_turn *turn,
                                    struct miss *miss)
{
    const struct conversation *c = turn->conversation;
    int32_t edited = edited_message(before, c);
    uint64_t offset = 0;
    bool parts = text_parts(before, turn, &offset);

    if (before->salt != turn->salt)
        return MISS_SALT_CHANGED;
    if (parts)
        miss->prompt_offset = (int64_t)offset;
    if (before->tools != c->tools_hash)
        return MISS_TOOLS_CHANGED;
    if (before->system != c->system_hash) {
        miss->place = (struct place){.message = c->head > 0 ? 0 : -1, .field = "content"};
        miss->text_offset = system_offset(before, c);
        return MISS_SYSTEM_CHANGED;
    }
    if (edited >= 0) {
        miss->place = (struct place){.message = edited, .field = "content"};
        return MISS_MESSAGE_EDITED;
    }
    if (before->first != turn->first)
        return MISS_HISTORY_CUT;
    if (!parts)
        return MISS_RETOKENIZED;
    note_place(before, turn, miss);
    miss->kwargs_changed = before->kwargs != turn->kwargs;
    return MISS_TEMPLATE_UNSTABLE;
}

void miss_compare(const struct chat_record *before, const struct chat_turn *turn, struct miss *ret)
{
    uint32_t usable = turn->ids_count > 0 ? (uint32_t)turn->ids_count - 1 : 0;
    struct miss miss = {.place = {.message = -1}, .text_offset = -1, .prompt_offset = -1};

    miss.possible_tokens = usable;
    miss.coarse_tokens = BLOCK_TOKENS;
    if (before) {
        uint64_t common = chain_common(&before->ids, turn->ids, turn->ids_count * sizeof(uint32_t));
        miss.known = true;
        miss.before_group = before->group;
        miss.coarse_tokens = BLOCK_TOKENS << before->ids.shift;
        miss.possible_tokens = (uint32_t)smaller(before->ids.bytes / sizeof(uint32_t), usable);
        miss.expected_tokens = (uint32_t)smaller(common / sizeof(uint32_t), miss.possible_tokens);
        if (before->salt != turn->salt)
            miss.expected_tokens = 0;
        if (miss.expected_tokens + miss.coarse_tokens <= miss.possible_tokens)
            miss.cause = prompt_cause(before, turn, &miss);
    }
    *ret = miss;
}

void miss_settle(struct miss *miss, uint32_t cached_tokens, uint32_t group)
{
    miss->group = group;
    miss->reused_tokens = (uint32_t)smaller(cached_tokens, miss->possible_tokens);
    if (cached_tokens + BLOCK_TOKENS > miss->possible_tokens)
        miss->cause = MISS_NONE;
    else if (!miss->known)
        miss->cause = MISS_FIRST_TURN;
    else if (miss->cause != MISS_NONE)
        return; /* the prompt's own */
    else if (cached_tokens + BLOCK_TOKENS > miss->expected_tokens)
        miss->cause = MISS_NONE; /* what is missing is too fine for the record to know */
    else
        miss->cause = group != miss->before_group ? MISS_OTHER_WORKER : MISS_EVICTED;
}

static void write_detail(const struct miss *miss, struct buffer *out)
{
    switch (miss->cause) {
    case MISS_FIRST_TURN:
        buffer_append_text(out, "no earlier turn of this conversation is known here");
        break;
    case MISS_SALT_CHANGED:
        buffer_append_text(out, "the turn before had another cache_salt");
        break;
    case MISS_TOOLS_CHANGED:
        buffer_append_text(out, "the tools, or their order, differ from the turn before");
        break;
    case MISS_SYSTEM_CHANGED:
        buffer_append_text(out, "the system text differs from the turn before");
        if (miss->text_offset >= 0)
            buffer_printf(out, ", from its byte %" PRId64 " on", miss->text_offset);
        break;
    case MISS_MESSAGE_EDITED:
        buffer_printf(out, "message %d is not what it was in the turn before", miss->place.message);
        break;
    case MISS_HISTORY_CUT:
        buffer_append_text(out, "the history policy begins the chat elsewhere than in the turn "
                                "before");
        break;
    case MISS_TEMPLATE_UNSTABLE:
        buffer_printf(out,
                      "the chat template writes the same messages in another way, from byte "
                      "%" PRId64 " of the prompt on%s",
                      miss->prompt_offset,
                      miss->kwargs_changed ? "; chat_template_kwargs or chat_template differ" : "");
        break;
    case MISS_RETOKENIZED:
        buffer_printf(out, "the same text became other token ids, from token %u on",
                      miss->expected_tokens);
        break;
    case MISS_OTHER_WORKER:
        buffer_printf(out, "the turn before was answered by group %u, this one by group %u",
                      miss->before_group, miss->group);
        break;
    case MISS_EVICTED:
        buffer_printf(out, "group %u had %u of at least %u tokens left", miss->group,
                      miss->reused_tokens, miss->expected_tokens);
        break;
    case MISS_REUSE_OFF:
        buffer_append_text(out,
                           "every token of the prompt was computed: prompt_logprobs want them, "
                           "or the worker has no prefix cache");
        break;
    default:
        break;
    }
}

void miss_write(const struct miss *miss, const char *worker, struct buffer *out)
{
    if (miss->cause == MISS_NONE) {
        buffer_append_text(out, "null");
        return;
    }
    buffer_printf(out, "{\"cause\":\"%s\"", miss_words[miss->cause]);
    if (miss->place.message >= 0)
        buffer_printf(out, ",\"message\":%d", miss->place.message);
    if (miss->place.field)
        buffer_printf(out, ",\"field\":\"%s\"", miss->place.field);
    if (miss->text_offset >= 0)
        buffer_printf(out, ",\"text_offset\":%" PRId64, miss->text_offset);
    if (miss->prompt_offset >= 0)
        buffer_printf(out, ",\"prompt_offset\":%" PRId64, miss->prompt_offset);
    buffer_printf(out, ",\"reused_tokens\":%u,\"possible_tokens\":%u", miss->reused_tokens,
                  miss->possible_tokens);
    if (worker[0]) {
        buffer_append_text(out, ",\"worker\":");
        json_append_string(out, worker, strlen(worker));
    }
    buffer_append_text(out, ",\"detail\":\"");
    write_detail(miss, out);
    buffer_append_text(out, "\"}");
}
