/* turn.c - the life of a turn, and what all turns of the router share.
 *
 * (the order of the calls: turn.h)
 * The record of a turn is made right after the dispatch, while the worker computes, so that the
 * client does not wait for it and the rendered text need not be kept until the answer's end. */
#include "router/turn.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "router/metrics.h"
#include "router/text/detokenize.h"
#include "router/turn_private.h"

#define ARENA_BYTES_MAX ((size_t)4 << 20) /* 10,000 messages take 400 KB */
#define ANSWER_BYTES_MAX ((size_t)64 << 20)

struct sessions *sessions_new(const struct sessions_settings *settings, struct metrics *metrics)
{
    struct sessions *sessions = mem_zalloc(sizeof(*sessions));

    sessions->settings = *settings;
    sessions->metrics = metrics;
    sessions->limits = limits_new(&settings->limits);
    sessions->records = chat_records_new(settings->records_max);
    sessions->counts = token_counts_new();
    return sessions;
}

void sessions_free(struct sessions *sessions)
{
    if (!sessions)
        return;
    limits_free(sessions->limits);
    chat_records_free(sessions->records);
    token_counts_free(sessions->counts);
    mem_free(sessions);
}

void sessions_fill_metrics(const struct sessions *sessions)
{
    struct metrics *metrics = sessions->metrics;

    metrics_set(metrics, RM_SESSION_ENTRIES, 0, (double)limits_entries(sessions->limits));
    metrics_set(metrics, RM_CHAT_RECORDS, 0, (double)chat_records_count(sessions->records));
    metrics_set(metrics, RM_CHAT_RECORD_BYTES, 0, (double)chat_records_bytes(sessions->records));
}

bool sessions_explain(const struct sessions *sessions)
{
    return sessions->settings.explain;
}

/* ---- before the dispatch ---- */

static int check_limits(struct turn *turn, struct api_error *error)
{
    const struct limits_settings *max = &turn->sessions->settings.limits;
    const char *param = turn->session ? "session_id" : "messages";
    const char *advice = turn->session ? "Start a new session with another 'session_id'."
                                       : "Start a new conversation.";
    struct session_use use;

    /* Two tenants may call their sessions the same; the conversation has the salt already. */
    uint64_t session = turn->session ? conversation_hash_pair(turn->session, turn->salt) : 0;
    int r = limits_take(turn->sessions->limits, session, &turn->conversation, clock_ms(), &use);
    if (r == 0)
        return 0;
    metrics_add(turn->sessions->metrics, RM_SESSION_REFUSED, r == -EDQUOT ? 0 : 1, 1);
    if (r == -EDQUOT)
        return api_error_set(error, 400, "session_limit", param,
                             "This would be turn %u of the session; a session may have %u. %s",
                             use.turns, max->turns_max, advice);
    return api_error_set(error, 400, "session_limit", param,
                         "The session is %.1f s old; a session may last %.1f s. %s",
                         (double)use.age_ms / 1e3, (double)max->age_ms_max / 1e3, advice);
}

int turn_open(struct sessions *sessions, const struct api_request *fields,
              const struct served_model *model, const struct prompt_maker *maker,
              struct turn **ret_turn, struct api_error *error)
{
    const char *print = model->card->fingerprint;
    struct turn *turn = mem_zalloc(sizeof(*turn));

    turn->sessions = sessions;
    turn->fields = fields;
    turn->model = model;
    turn->maker = maker;
    turn->model_hash = conversation_hash_text(print, strlen(print));
    if (model->adapter_key)
        turn->model_hash = conversation_hash_pair(
            turn->model_hash,
            conversation_hash_text(model->adapter_key, strlen(model->adapter_key)));
    turn->salt = conversation_hash_text(fields->cache_salt, strlen(fields->cache_salt));
    if (fields->chat_template_bytes > 0)
        turn->template_hash =
            conversation_hash_text(fields->chat_template, fields->chat_template_bytes);
    if (fields->session)
        turn->session = conversation_hash_pair(
            turn->model_hash, conversation_hash_text(fields->session, strlen(fields->session)));
    arena_init(&turn->arena, ARENA_BYTES_MAX);
    int r = conversation_read(fields->messages, fields->tools,
                              conversation_hash_pair(turn->model_hash, turn->salt), &turn->arena,
                              &turn->conversation);
    ASSERT(r == 0); /* messages_read() bounds them */
    r = check_limits(turn, error);
    if (r < 0) {
        turn_free(turn);
        return r;
    }
    *ret_turn = turn;
    return 0;
}

void turn_free(struct turn *turn)
{
    if (!turn)
        return;
    if (turn->has_rendered)
        rendered_done(&turn->rendered);
    chat_record_free(turn->record);
    if (turn->content)
        (void)XXH3_freeState(turn->content);
    arena_done(&turn->arena);
    mem_free(turn);
}

int turn_prompt(struct turn *turn, struct token_ids *out, struct prompt_trace *ret_trace,
                struct api_error *error)
{
    int r = turn_apply_history(turn, out, ret_trace, error);

    if (r == 0 && turn->first > turn->conversation.head)
        metrics_add(turn->sessions->metrics, RM_HISTORY_CUTS, 0, 1);
    turn->maker = NULL;
    return r;
}

const struct buffer *turn_text(const struct turn *turn)
{
    ASSERT(turn->has_rendered);
    return &turn->rendered.text;
}

/* ---- answer ---- */

/* What the text depends on besides the messages and tools. */
static uint64_t hash_settings(const struct turn *turn)
{
    uint64_t kwargs = conversation_hash_json(turn->fields->kwargs);
    return turn->template_hash ? conversation_hash_pair(kwargs, turn->template_hash) : kwargs;
}

void turn_sent(struct turn *turn, const uint32_t *ids, size_t count)
{
    const struct chat_turn view = {.session = turn->session,
                                   .salt = turn->salt,
                                   .kwargs = hash_settings(turn),
                                   .conversation = &turn->conversation,
                                   .first = turn->first,
                                   .text = turn->rendered.text.data,
                                   .text_bytes = turn->rendered.text.bytes,
                                   .spans = turn->rendered.spans,
                                   .spans_count = turn->rendered.spans_count,
                                   .ids = ids,
                                   .ids_count = count};

    ASSERT(turn->has_rendered && !turn->record);
    miss_compare(chat_records_find(turn->sessions->records, &view), &view, &turn->compared);
    turn->record = chat_record_new(&view);
    turn->has_rendered = false;
    rendered_done(&turn->rendered);
}

void turn_first(struct turn *turn, uint32_t cached_tokens, uint32_t group, const char *worker)
{
    turn->miss = turn->compared;
    turn->group = group;
    turn->answered = true;
    miss_settle(&turn->miss, cached_tokens, group);
    if (strcmp(worker, "off") == 0) {
        turn->miss.cause = MISS_REUSE_OFF;
        turn->miss.known = false; /* its tokens say nothing about reuse */
    }
}

void turn_content(struct turn *turn, const char *text, size_t bytes)
{
    if (turn->fields->n > 1)
        return; /* which one the client goes on with is not known */
    if (!turn->content) {
        turn->content = XXH3_createState();
        ASSERT(turn->content != NULL);
        (void)XXH3_64bits_reset(turn->content);
    }
    (void)XXH3_64bits_update(turn->content, text, bytes);
}

static void count_miss(const struct turn *turn)
{
    struct metrics *metrics = turn->sessions->metrics;

    metrics_add(metrics, RM_MISSES, (size_t)turn->miss.cause, 1);
    if (!turn->miss.known)
        return;
    metrics_add(metrics, RM_REUSED_TOKENS, 0, turn->miss.reused_tokens);
    metrics_add(metrics, RM_REUSABLE_TOKENS, 0, turn->miss.possible_tokens);
}

void turn_end(struct turn *turn, const uint32_t *ids, size_t count)
{
    struct detokenizer detokenizer;
    struct buffer text;

    if (!turn->record || !turn->answered)
        return;
    count_miss(turn);
    if (turn->fields->n > 1)
        count = 0;
    buffer_init(&text, ANSWER_BYTES_MAX);
    detokenizer_init(&detokenizer, turn->model->maker.tokenizer, true, false);
    for (size_t i = 0; i < count; i++)
        (void)detokenizer_push(&detokenizer, ids[i], &text);
    detokenizer_finish(&detokenizer, &text);
    const struct chat_answer answer = {.group = turn->group,
                                       .text = text.data,
                                       .text_bytes = text.bytes,
                                       .ids = ids,
                                       .ids_count = count > 0 ? count - 1 : 0,
                                       .content_hash =
                                           turn->content ? XXH3_64bits_digest(turn->content) : 0};
    chat_records_add(turn->sessions->records, turn->record, &answer);
    turn->record = NULL;
    buffer_done(&text);
}

void turn_write(const struct turn *turn, bool explain, const char *worker, struct buffer *out)
{
    uint32_t head = turn->conversation.head;

    if (turn->first > head)
        buffer_printf(out, ",\"history_cut\":{\"messages\":%u,\"tokens\":%u}", turn->first - head,
                      turn->cut_tokens);
    if (!explain)
        return;
    buffer_append_text(out, ",\"miss\":");
    miss_write(&turn->miss, worker, out);
}
