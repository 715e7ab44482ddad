/* scheduler.c - the queues, one step's plan and its commit.
 *
 *   add --> waiting --admission--> running --commit--> finished --commit--> reported --> release
 *              ^                      |
 *              +------- preempt ------+
 *
 *   plan:    expire, decodes (rank order, making room), prefill chunks, admissions
 *   commit:  let copies' sources go, computed += rows, seal, move windows, append tokens, finish,
 *            report
 *
 * Why decodes first: a started answer must not stall behind a long prompt. Why prefills go before
 * admissions: what is begun holds blocks and ends the sooner. Why fewer run than sequences_max
 * where a step has few tokens: all decodes have a row in each step, and what they leave reaches the
 * next block border of a prompt, so neither starves. Rank is (priority, arrival) everywhere and
 * nothing depends on addresses, so the same input gives the same plans; on time do deadlines, and
 * with step_ms_max how much of a prompt goes beside decodes (never what is computed of it).
 * Between plan and commit a cancelled sequence of the step keeps its blocks: they are being
 * written. Cost: a step is O(running + waiting) pointer walks plus admission's bounded lookups. */
#include "worker/sched/scheduler.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/sched/chunk.h"
#include "worker/sched/scheduler_internal.h"

#define WATERMARK_PART 100 /* 1 % */
/* Work of prompts (step_time.h) in a step beside decodes. Less than the first says more about the
 * step than about its rows; less than the second gains nothing where a step's fixed costs are most
 * of it, and is what goes before a step was measured. */
#define MEASURED_WORK_MIN 32.0
#define LIMITED_WORK_MIN 32.0
#define LIMITED_CUT_TOKENS 8 /* deep in a prompt, whole blocks would miss the time by half */

static struct sequence *entry_of(struct list *item)
{
    return LIST_ENTRY(item, struct sequence, link);
}

int scheduler_new(const struct scheduler_settings *settings, struct block_pool *pool,
                  struct scheduler **ret_scheduler, struct errmsg *err)
{
    struct block_counts counts;

    if (settings->sequences_max == 0 || settings->waiting_max == 0 || settings->vocab_size == 0)
        return errmsg_set(err, -EINVAL, "sequences, waiting and vocabulary must be at least 1");
    if (settings->step_tokens_max < BLOCK_TOKENS)
        return errmsg_set(err, -EINVAL, "%u tokens per step: must be at least %d",
                          settings->step_tokens_max, BLOCK_TOKENS);
    if (settings->context_tokens_max < 2)
        return errmsg_set(err, -EINVAL, "context of %u tokens: must be at least 2",
                          settings->context_tokens_max);
    int r = scheduler_check_windows(settings, pool, err);
    if (r < 0)
        return r;
    block_pool_counts(pool, &counts);
    struct scheduler *s = mem_zalloc(sizeof(*s));
    s->settings = *settings;
    s->pool = pool;
    s->time.row_positions = settings->row_positions;
    scheduler_set_windows(s);
    list_init(&s->waiting);
    list_init(&s->running);
    list_init(&s->finished);
    list_init(&s->reported);
    s->by_request_id = map_new(0);
    s->tokens_max = settings->context_tokens_max;
    if (s->tokens_max / BLOCK_TOKENS >= counts.total)
        s->tokens_max = counts.total * BLOCK_TOKENS;
    s->watermark_blocks = counts.total / WATERMARK_PART > 1 ? counts.total / WATERMARK_PART : 1;
    s->running_max = settings->step_tokens_max - BLOCK_TOKENS + 1;
    if (s->running_max > settings->sequences_max)
        s->running_max = settings->sequences_max;
    s->entries = mem_calloc(settings->sequences_max, sizeof(*s->entries));
    s->copies = mem_calloc(settings->sequences_max, sizeof(*s->copies));
    s->scratch = mem_calloc(s->tokens_max / BLOCK_TOKENS + 1, sizeof(*s->scratch));
    *ret_scheduler = s;
    return 0;
}

static int check_params(const struct scheduler *s, const struct sequence_params *params,
                        struct errmsg *err)
{
    size_t id_bytes = strnlen(params->request_id, sizeof(params->request_id));

    if (id_bytes == 0 || id_bytes == sizeof(params->request_id))
        return errmsg_set(err, -EINVAL, "request id: must have 1 to %d bytes", REQUEST_ID_MAX);
    if (params->prompt_tokens == 0)
        return errmsg_set(err, -EINVAL, "prompt is empty");
    if (params->tokens_max == 0)
        return errmsg_set(err, -EINVAL, "tokens_max is 0: must be at least 1");
    if (params->tokens_min > params->tokens_max)
        return errmsg_set(err, -EINVAL, "tokens_min %u is above tokens_max %u", params->tokens_min,
                          params->tokens_max);
    if (params->stop_ids_count > SEQUENCE_STOP_IDS_MAX)
        return errmsg_set(err, -EINVAL, "%u stop ids: at most %d", params->stop_ids_count,
                          SEQUENCE_STOP_IDS_MAX);
    for (uint32_t i = 0; i < params->stop_ids_count; i++)
        if (params->stop_ids[i] >= s->settings.vocab_size)
            return errmsg_set(err, -EINVAL, "stop id %u is outside the vocabulary of %u",
                              params->stop_ids[i], s->settings.vocab_size);
    for (uint32_t i = 0; i < params->prompt_tokens; i++)
        if (params->prompt[i] >= s->settings.vocab_size)
            return errmsg_set(err, -EINVAL, "token id %u is outside the vocabulary of %u",
                              params->prompt[i], s->settings.vocab_size);
    if (map_get_text(s->by_request_id, params->request_id) != NULL)
        return errmsg_set(err, -EINVAL, "request id is in use");
    return sample_params_check(&params->sampling, err);
}

/* The prompt and one block more must fit into the empty pool, and one token more into the context:
 * else it would wait for ever. */
static int check_fits(const struct scheduler *s, uint32_t prompt_tokens, struct errmsg *err)
{
    struct block_counts counts;

    block_pool_counts(s->pool, &counts);
    uint64_t blocks = ((uint64_t)prompt_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS + 1;
    if (prompt_tokens < s->settings.context_tokens_max && blocks <= counts.total)
        return 0;
    return errmsg_set(err, -E2BIG,
                      "prompt of %u tokens can never fit: max_model_len is %u tokens, the KV pool "
                      "has %llu tokens in %u blocks",
                      prompt_tokens, s->settings.context_tokens_max,
                      (unsigned long long)counts.total * BLOCK_TOKENS, counts.total);
}

static int begin_grammar(const struct scheduler *s, const struct sequence_params *params,
                         struct grammar_matcher **ret_matcher, struct errmsg *err)
{
    if (params->grammar == NULL)
        return 0;
    ASSERT(grammar_machine_vocab(params->grammars)->count == s->settings.vocab_size);
    int r = grammar_matcher_new(params->grammars, params->grammar, ret_matcher, err);
    return r == -ENOSPC ? -EAGAIN : r;
}

int scheduler_add(struct scheduler *s, const struct sequence_params *params,
                  struct sequence **ret_sequence, struct errmsg *err)
{
    int r = check_params(s, params, err);

    if (r < 0)
        return r;
    r = check_fits(s, params->prompt_tokens, err);
    if (r < 0)
        return r;
    if (s->waiting_count + s->finished_count >= s->settings.waiting_max)
        return errmsg_set(err, -EAGAIN, "%u requests are waiting: the queue is full",
                          s->waiting_count);
    uint64_t ids_max = (uint64_t)params->prompt_tokens + params->tokens_max;
    if (ids_max > s->tokens_max)
        ids_max = s->tokens_max;
    struct grammar_matcher *matcher = NULL;
    r = begin_grammar(s, params, &matcher, err);
    if (r < 0)
        return r;
    struct sequence *seq = sequence_new(params, (uint32_t)ids_max);
    seq->matcher = matcher;
    seq->number = s->next_number++;
    r = map_set_text(s->by_request_id, seq->params.request_id, seq);
    ASSERT(r == 0);
    scheduler_enqueue_waiting(s, seq);
    *ret_sequence = seq;
    return 0;
}

struct sequence *scheduler_find(struct scheduler *s, const char *request_id)
{
    return map_get_text(s->by_request_id, request_id);
}

static bool runs_before(const struct sequence *a, const struct sequence *b)
{
    if (a->params.priority != b->params.priority)
        return a->params.priority < b->params.priority;
    return a->number < b->number;
}

static bool waits_before(const struct sequence *a, const struct sequence *b)
{
    bool a_began = a->preemptions > 0, b_began = b->preemptions > 0;

    if (a->params.priority == b->params.priority && a_began != b_began)
        return a_began;
    return runs_before(a, b);
}

static void insert_sorted(struct list *list, struct sequence *seq,
                          bool (*before)(const struct sequence *, const struct sequence *))
{
    struct list *at = list->prev;

    while (at != list && before(seq, entry_of(at)))
        at = at->prev;
    list_insert_before(at->next, &seq->link);
}

void scheduler_enqueue_waiting(struct scheduler *s, struct sequence *seq)
{
    ASSERT(seq->state == SEQ_WAITING);
    insert_sorted(&s->waiting, seq, waits_before);
    s->waiting_count++;
}

void scheduler_enqueue_running(struct scheduler *s, struct sequence *seq)
{
    ASSERT(seq->state == SEQ_PREFILL);
    ASSERT(s->running_count < s->running_max);
    insert_sorted(&s->running, seq, runs_before);
    s->running_count++;
}

/* Not in the step: what it computed is published, its blocks go back, the next commit reports it.
 */
static void finish(struct scheduler *s, struct sequence *seq, enum sequence_finish why,
                   const char *word)
{
    ASSERT(!seq->in_step && seq->state != SEQ_FINISHED);
    if (seq->state == SEQ_WAITING) {
        s->waiting_count--;
    } else {
        sequence_let_go(seq, s->pool, s->scratch);
        s->running_count--;
    }
    list_remove(&seq->link);
    seq->finish = why;
    sequence_set_state(seq, SEQ_FINISHED, word);
    list_push_back(&s->finished, &seq->link);
    s->finished_count++;
    s->finished_total++;
}

void scheduler_cancel(struct scheduler *s, struct sequence *seq, enum sequence_finish why)
{
    ASSERT(why != SEQ_FINISH_NONE);
    if (seq->finish != SEQ_FINISH_NONE)
        return; /* it ends already: the first reason stays */
    if (seq->in_step)
        seq->finish = why;
    else
        finish(s, seq, why, "cancel");
}

static void expire(struct scheduler *s, struct list *list, uint64_t now_ns)
{
    LIST_FOR_SAFE(item, after, list)
    {
        struct sequence *seq = entry_of(item);
        if (seq->params.deadline_ns != 0 && now_ns >= seq->params.deadline_ns)
            finish(s, seq, SEQ_FINISH_DEADLINE, "deadline");
    }
}

/* Row p tells of prompt token p + 1; what a preemption makes us compute again was told already. */
static void add_scores(struct scheduler *s, struct plan_entry *entry)
{
    const struct sequence *seq = entry->sequence;
    uint32_t end = entry->first_position + entry->rows;
    uint32_t last = seq->prompt_tokens - 1;

    if (scheduler_to_score(seq) == 0 || end <= seq->scored)
        return;
    ASSERT(entry->first_position <= seq->scored);
    entry->score_first = seq->scored - entry->first_position;
    entry->score_rows = (end < last ? end : last) - seq->scored;
    s->scored_rows += entry->score_rows;
    ASSERT(s->scored_rows <= SCORED_ROWS_MAX);
}

/* From here on prompts get the work of this step that takes about step_ms_max. */
static void limit_prompts(struct scheduler *s)
{
    double work = 0;

    if (s->settings.step_ms_max == 0 || s->work_max > 0)
        return;
    if (s->time.work_ns > 0)
        work = s->settings.step_ms_max * 1e6 / s->time.work_ns;
    s->work_max = s->decodes_work + (work > LIMITED_WORK_MIN ? work : LIMITED_WORK_MIN);
}

static void add_entry(struct scheduler *s, struct sequence *seq, uint32_t rows)
{
    ASSERT(rows > 0 && rows <= scheduler_budget(s));
    ASSERT(s->entries_count < s->settings.sequences_max && !seq->in_step);
    s->entries[s->entries_count++] = (struct plan_entry){
        .sequence = seq,
        .first_position = seq->computed,
        .rows = rows,
        .want_token = seq->computed + rows == seq->ids_count,
    };
    add_scores(s, &s->entries[s->entries_count - 1]);
    s->rows += rows;
    s->work += step_time_work(&s->time, seq->computed, rows);
    seq->in_step = true;
}

uint32_t scheduler_chunk_rows(const struct scheduler *s, const struct sequence *seq,
                              uint32_t computed)
{
    struct chunk_limits limits = {scheduler_budget(s), BLOCK_TOKENS};

    if (s->work_max > 0) {
        uint32_t rows =
            step_time_rows(&s->time, computed, s->work_max - s->work, limits.step_tokens);
        if (rows < BLOCK_TOKENS && s->work == s->decodes_work)
            rows = BLOCK_TOKENS; /* somebody goes on, however deep it is */
        if (rows < limits.step_tokens) {
            limits.step_tokens = rows;
            limits.block_tokens = LIMITED_CUT_TOKENS;
        }
    }
    if (scheduler_to_score(seq) > 0) {
        ASSERT(computed <= seq->scored);
        uint32_t rows = seq->scored - computed + SCORED_ROWS_MAX - s->scored_rows;
        limits.step_tokens = rows < limits.step_tokens ? rows : limits.step_tokens;
    }
    if (s->window_tokens > 0) {
        uint32_t end = seq->state == SEQ_PREFILL ? seq->table.window_end
                                                 : scheduler_window_end(s, seq, computed);
        uint32_t room = end * BLOCK_TOKENS - computed;
        limits.step_tokens = room < limits.step_tokens ? room : limits.step_tokens;
    }
    return limits.step_tokens > 0 ? chunk_next(&limits, computed, seq->ids_count) : 0;
}

void scheduler_add_chunk(struct scheduler *s, struct sequence *seq)
{
    uint32_t rows = scheduler_chunk_rows(s, seq, seq->computed);

    if (rows == 0)
        return;
    add_entry(s, seq, rows);
    /* A prompt that ends in this step is answered after it: those behind it must not make it wait.
     */
    if (s->entries[s->entries_count - 1].want_token)
        limit_prompts(s);
}

static void plan_decodes(struct scheduler *s)
{
    /* Victims stand behind the current one in `running`, so its next is read afterwards. */
    for (struct list *item = s->running.next; item != &s->running; item = item->next) {
        struct sequence *seq = entry_of(item);
        if (seq->state != SEQ_DECODE)
            continue;
        if (scheduler_budget(s) == 0 || !preempt_make_room(s, seq))
            return;
        add_entry(s, seq, 1);
    }
}

/* Only a step that was mostly prompts says what their rows cost. */
static void measure_work(struct scheduler *s, uint64_t now_ns)
{
    if (s->work >= s->decodes_work + MEASURED_WORK_MIN && now_ns > s->planned_ns)
        step_time_learn(&s->time, s->work, now_ns - s->planned_ns);
}

static void plan_prefills(struct scheduler *s)
{
    LIST_FOR(item, &s->running)
    {
        struct sequence *seq = entry_of(item);
        if (seq->state != SEQ_PREFILL)
            continue;
        if (s->window_tokens > 0)
            scheduler_move_window(s, seq);
        scheduler_add_chunk(s, seq);
    }
}

void scheduler_plan(struct scheduler *s, uint64_t now_ns, struct step_plan *ret_plan)
{
    ASSERT(!s->planned);
    s->planned = true;
    s->planned_ns = now_ns;
    s->work = s->work_max = s->decodes_work = 0;
    s->preempted = false;
    s->entries_count = s->copies_count = s->rows = s->scored_rows = s->loading = 0;
    block_pool_expire_pins(s->pool, now_ns);
    expire(s, &s->running, now_ns);
    expire(s, &s->waiting, now_ns);
    plan_decodes(s);
    s->decodes_work = s->work;
    if (s->rows > 0)
        limit_prompts(s);
    plan_prefills(s);
    while (s->window_tokens > 0 && s->rows == 0 && s->running_count > 0) {
        preempt_last(s);
        plan_prefills(s);
    }
    if (!s->preempted || s->rows == 0) /* it may have been the only one */
        admission_run(s, now_ns);
    ASSERT(s->rows > 0 || s->loading > 0 ||
           s->running_count + s->waiting_count == 0); /* never stuck */
    *ret_plan = (struct step_plan){
        .entries = s->entries,
        .entries_count = s->entries_count,
        .copies = s->copies,
        .copies_count = s->copies_count,
        .rows = s->rows,
        .scored_rows = s->scored_rows,
    };
}

static const char *finish_word(enum sequence_finish why)
{
    static const char *const words[] = {"none",     "stop",  "length",    "cancel",
                                        "deadline", "error", "repetition"};

    return words[why];
}

/* The step computed the entry's rows. Its item to *ret_item; false: there is nothing to tell. */
static bool commit_entry(struct scheduler *s, const struct plan_entry *entry,
                         const struct sample_result *result, uint64_t now_ns,
                         struct commit_item *ret_item)
{
    struct sequence *seq = entry->sequence;

    ASSERT(seq->in_step && seq->computed == entry->first_position);
    seq->in_step = false;
    if (seq->finish != SEQ_FINISH_ERROR) { /* what a failed step wrote is nobody's prefix */
        seq->computed += entry->rows;
        seq->scored += entry->score_rows;
        sequence_seal(seq, s->pool, s->scratch);
        if (s->window_tokens > 0)
            scheduler_move_window(s, seq);
    }
    if (seq->finish != SEQ_FINISH_NONE) {
        finish(s, seq, seq->finish, finish_word(seq->finish)); /* cancelled in the step */
        return false;
    }
    if (!entry->want_token)
        return false;
    ASSERT(result->id < s->settings.vocab_size);
    if (seq->state == SEQ_PREFILL)
        sequence_set_state(seq, SEQ_DECODE, "prefilled");
    ret_item->sequence = seq;
    ret_item->first = sequence_output_tokens(seq) == 0;
    ret_item->has_token = true;
    sample_result_copy(&ret_item->token, result);
    if (ret_item->first)
        seq->first_token_ns = now_ns;
    ret_item->finish = sequence_append(seq, result->id);
    s->generated_tokens_total++;
    if (ret_item->finish == SEQ_FINISH_NONE)
        return true;
    finish(s, seq, ret_item->finish, finish_word(ret_item->finish));
    list_remove(&seq->link); /* its last token's item tells it */
    list_push_back(&s->reported, &seq->link);
    s->finished_count--;
    seq->reported = true;
    return true;
}

static uint32_t report_finished(struct scheduler *s, struct commit_item *ret_items, uint32_t max)
{
    uint32_t count = 0;

    while (count < max && !list_empty(&s->finished)) {
        struct sequence *seq = entry_of(list_pop_front(&s->finished));
        ret_items[count++] = (struct commit_item){.sequence = seq, .finish = seq->finish};
        list_push_back(&s->reported, &seq->link);
        s->finished_count--;
        seq->reported = true;
    }
    return count;
}

uint32_t scheduler_commit(struct scheduler *s, const struct step_plan *plan,
                          const struct sample_result *results, uint64_t now_ns,
                          struct commit_item *ret_items)
{
    uint32_t count = 0, tokens = 0;

    ASSERT(s->planned);
    ASSERT(plan->entries == s->entries && plan->entries_count == s->entries_count);
    for (uint32_t i = 0; i < s->copies_count; i++) /* first: sealing drops the tails it replaces */
        scheduler_release_copy(s, &s->copies[i]);
    for (uint32_t i = 0; i < s->entries_count; i++) {
        const struct plan_entry *entry = &s->entries[i];
        const struct sample_result *result = entry->want_token ? &results[tokens++] : NULL;
        count += commit_entry(s, entry, result, now_ns, &ret_items[count]);
    }
    measure_work(s, now_ns);
    s->entries_count = s->copies_count = 0;
    s->planned = false;
    return count + report_finished(s, ret_items + count,
                                   s->settings.sequences_max + s->settings.waiting_max - count);
}

void scheduler_release(struct scheduler *s, struct sequence *seq)
{
    ASSERT(seq->state == SEQ_FINISHED && seq->reported);
    void *removed = map_remove_text(s->by_request_id, seq->params.request_id);
    ASSERT(removed == seq);
    list_remove(&seq->link);
    sequence_free(seq);
}

static void free_list(struct scheduler *s, struct list *list)
{
    struct list *item;

    while ((item = list_pop_front(list)) != NULL) {
        struct sequence *seq = entry_of(item);
        block_table_drop(&seq->table, s->pool);
        sequence_free(seq);
    }
}

void scheduler_free(struct scheduler *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->copies_count; i++)
        scheduler_release_copy(s, &s->copies[i]);
    free_list(s, &s->waiting);
    free_list(s, &s->running);
    free_list(s, &s->finished);
    free_list(s, &s->reported);
    map_free(s->by_request_id);
    mem_free(s->entries);
    mem_free(s->copies);
    mem_free(s->scratch);
    mem_free(s);
}

bool scheduler_idle(const struct scheduler *s)
{
    return s->running_count == 0 && s->waiting_count == 0 && s->finished_count == 0;
}

static uint64_t pending_tokens(const struct list *list)
{
    uint64_t tokens = 0;

    LIST_FOR(item, list)
    {
        const struct sequence *seq = entry_of(item);
        if (seq->state != SEQ_DECODE)
            tokens += seq->ids_count - seq->computed;
    }
    return tokens;
}

static uint32_t deferred(const struct list *waiting)
{
    uint32_t count = 0;

    LIST_FOR(item, waiting)
    {
        count += LIST_ENTRY(item, const struct sequence, link)->deferred;
    }
    return count;
}

void scheduler_counts(const struct scheduler *s, struct scheduler_counts *ret_counts)
{
    *ret_counts = (struct scheduler_counts){
        .running = s->running_count,
        .waiting = s->waiting_count,
        .waiting_deferred = deferred(&s->waiting),
        .pending_prefill_tokens = pending_tokens(&s->waiting) + pending_tokens(&s->running),
        .preemptions_total = s->preemptions_total,
        .admitted_total = s->admitted_total,
        .finished_total = s->finished_total,
        .prompt_tokens_total = s->prompt_tokens_total,
        .cached_tokens_total = s->cached_tokens_total,
        .cached_host_tokens_total = s->cached_host_tokens_total,
        .cached_disk_tokens_total = s->cached_disk_tokens_total,
        .tier_asked_tokens_total = s->tier_asked_tokens_total,
        .generated_tokens_total = s->generated_tokens_total,
    };
}

void scheduler_each(struct scheduler *s, bool (*fn)(const struct sequence *sequence, void *user),
                    void *user)
{
    struct list *const lists[] = {&s->waiting, &s->running};

    for (uint32_t i = 0; i < 2; i++)
        LIST_FOR_SAFE(item, after, lists[i])
    if (!fn(entry_of(item), user))
        return;
}
