/* choice.c - ids of one step -> text.
 *
 * The id that ended an answer (a stop id) is counted; it is shown only when it is the client's, who
 * wants stops in the output; its log probability is told in any case, as in vLLM, so that there are
 * as many as tokens. Before `min_tokens` stop strings are not looked for, as in vLLM, and neither
 * are they while the model thinks. */
#include "router/choice.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"

#define RAW_BYTES_MAX ((size_t)16 << 20) /* text of one step */

static bool echoes_logprobs(const struct choice *choice)
{
    const struct api_request *fields = choice->plan->fields;
    return fields->kind == API_COMPLETIONS && fields->echo && fields->logprobs;
}

static void begin_text(struct choice *choice)
{
    const struct api_request *fields = choice->plan->fields;

    detokenizer_init(&choice->detokenizer, choice->plan->tokenizer, !fields->skip_special_tokens,
                     choice->plan->strip_first_space);
    choice->detokenizer.kept = choice->plan->answer.kept;
    choice->detokenizer.kept_count = choice->plan->answer.kept_count;
    choice->stop = NULL;
    if (fields->stop_count > 0) {
        int r = stop_matcher_new(fields->stop, fields->stop_bytes, fields->stop_count,
                                 fields->include_stop, &choice->stop);
        ASSERT(r == 0); /* request_json checked them */
    }
    if (choice->echo)
        buffer_append(&choice->text, choice->echo, choice->echo_bytes);
    if (fields->prompt_logprobs)
        buffer_append_text(&choice->prompt_logprobs, "null");
    if (echoes_logprobs(choice))
        logprobs_json_add_first(&choice->logprobs, choice->prompt_ids[0]);
}

void choice_init(struct choice *choice, struct request *request, const struct choice_plan *plan)
{
    const struct api_request *fields = plan->fields;

    choice->request = request;
    choice->plan = plan;
    choice->why = "";
    buffer_init(&choice->raw, RAW_BYTES_MAX);
    buffer_init(&choice->text, plan->text_bytes_max);
    token_ids_init(&choice->generated, CHOICE_IDS_MAX);
    buffer_init(&choice->certain, plan->text_bytes_max);
    if (plan->answer.reads)
        answer_reader_init(&choice->reader, &plan->answer.reader, &choice->text);
    logprobs_json_init(&choice->logprobs, fields->kind, plan->tokenizer,
                       fields->logprob_ids ? (uint32_t)fields->logprob_ids_count
                       : fields->logprobs  ? fields->logprobs - 1
                                           : 0);
    choice->logprobs.as_ids = fields->tokens_as_ids;
    buffer_init(&choice->prompt_logprobs, plan->text_bytes_max);
    buffer_init(&choice->ids, plan->text_bytes_max);
    begin_text(choice);
}

void choice_done(struct choice *choice)
{
    stop_matcher_free(choice->stop);
    buffer_done(&choice->raw);
    buffer_done(&choice->text);
    token_ids_done(&choice->generated);
    buffer_done(&choice->certain);
    if (choice->plan->answer.reads)
        answer_reader_done(&choice->reader);
    buffer_done(&choice->prompt_logprobs);
    buffer_done(&choice->ids);
    logprobs_json_done(&choice->logprobs);
}

void choice_restart(struct choice *choice)
{
    ASSERT(!choice->sent && !choice->done);
    stop_matcher_free(choice->stop);
    buffer_clear(&choice->raw);
    buffer_clear(&choice->text);
    buffer_clear(&choice->certain);
    if (choice->plan->answer.reads)
        answer_reader_restart(&choice->reader);
    logprobs_json_clear(&choice->logprobs);
    buffer_clear(&choice->prompt_logprobs);
    buffer_clear(&choice->ids);
    choice->scored = 0;
    choice->tokens = choice->reasoning_tokens = 0;
    choice->logprob_sum = 0;
    choice->generated.count = choice->text_bytes = 0;
    choice->first_seen = false;
    begin_text(choice);
}

static void note_first(struct choice *choice, const Refrain__StepItem *item)
{
    choice->first_seen = true;
    choice->cached_tokens = item->cached_tokens;
    choice->computed_tokens = item->computed_tokens;
    choice->queue_seconds = item->queue_seconds;
    choice->prefill_seconds = item->prefill_seconds;
    choice->cached_host_tokens = item->cached_host_tokens;
    choice->cached_disk_tokens = item->cached_disk_tokens;
    choice->load_seconds = item->load_seconds;
    choice->group = choice->dispatch.group;
    choice->why = choice->dispatch.why;
    (void)snprintf(choice->miss, sizeof(choice->miss), "%.31s", item->miss);
}

/* Where text goes that is certain to belong to the answer. */
static struct buffer *certain_text(struct choice *choice)
{
    return choice->plan->answer.reads ? &choice->certain : &choice->text;
}

/* What is certain, through the reader. A tag of reasoning is none once the reasoning is over. */
static void read_certain(struct choice *choice)
{
    const struct answer_plan *answer = &choice->plan->answer;

    if (!answer->reads)
        return;
    answer_reader_push(&choice->reader, choice->certain.data, choice->certain.bytes);
    buffer_clear(&choice->certain);
    if (choice->reader.reasoning.state == REASONING_AFTER)
        choice->detokenizer.kept_count = answer->kept_calls;
}

static bool is_thinking(const struct choice *choice)
{
    const struct answer_plan *answer = &choice->plan->answer;
    return answer->reader.reasoning && choice->reader.reasoning.state == REASONING_INSIDE;
}

/* Stop strings end the text of an answer, not the thinking before it, whose end may be forced. */
static bool looks_for_stops(const struct choice *choice)
{
    return choice->stop && choice->tokens >= choice->plan->fields->tokens_min &&
           !is_thinking(choice);
}

/* `raw` through the stop strings. True: one is complete. */
static bool sift(struct choice *choice)
{
    struct buffer *text = certain_text(choice);
    size_t before = text->bytes;
    bool found = false;

    if (looks_for_stops(choice)) {
        found = stop_matcher_push(choice->stop, choice->raw.data, choice->raw.bytes, text,
                                  &choice->stop_which);
    } else {
        if (choice->stop) /* what was held when the thinking began */
            stop_matcher_finish(choice->stop, text);
        buffer_append(text, choice->raw.data, choice->raw.bytes);
    }
    choice->text_bytes += text->bytes - before;
    buffer_clear(&choice->raw);
    read_certain(choice);
    if (found) {
        choice->stop_kind = CHUNK_STOP_TEXT;
        choice->finish_reason = "stop";
    }
    return found;
}

/* The text of one token. As vLLM counts them, tags are not tokens of reasoning. */
static bool sift_token(struct choice *choice)
{
    bool before = is_thinking(choice);
    bool found = sift(choice);

    choice->reasoning_tokens += before && is_thinking(choice);
    return found;
}

/* No more text will come. */
static void over(struct choice *choice)
{
    const struct answer_plan *answer = &choice->plan->answer;

    choice->done = true;
    if (!answer->reads)
        return;
    answer_reader_finish(&choice->reader);
    if (answer->calls_end_answer && choice->reader.calls.count > 0 &&
        strcmp(choice->finish_reason, "stop") == 0)
        choice->finish_reason = "tool_calls";
}

static bool is_model_end(const struct choice *choice, uint32_t id)
{
    const struct model_card *card = tokenizer_card(choice->plan->tokenizer);
    for (uint32_t i = 0; i < card->eos_count; i++) {
        if (card->eos_ids[i] == id)
            return true;
    }
    return false;
}

/* The worker says that it is over. */
static void finish(struct choice *choice, const Refrain__StepItem *item, uint32_t last_id)
{
    detokenizer_finish(&choice->detokenizer, &choice->raw);
    if (sift(choice))
        return;
    struct buffer *text = certain_text(choice);
    size_t before = text->bytes;
    if (choice->stop)
        stop_matcher_finish(choice->stop, text);
    choice->text_bytes += text->bytes - before;
    read_certain(choice);
    choice->finish_reason = item->finish == REFRAIN__FINISH__FINISH_LENGTH ? "length" : "stop";
    if (item->finish == REFRAIN__FINISH__FINISH_REPETITION) {
        choice->finish_reason = "repetition";
        choice->stop_kind = CHUNK_STOP_REPETITION;
    }
    if (item->finish == REFRAIN__FINISH__FINISH_STOP && !is_model_end(choice, last_id)) {
        choice->stop_kind = CHUNK_STOP_ID;
        choice->stop_id = last_id;
    }
}

static uint32_t id_at(const Refrain__StepItem *item, size_t i)
{
    uint32_t id;
    memcpy(&id, item->ids.data + i * sizeof(id), sizeof(id));
    return id; /* little-endian, as every machine that we run on */
}

/* The prompt's tokens come in order and all before the first new one. */
static int take_prompt_logprobs(struct choice *choice, const Refrain__StepItem *item)
{
    const struct api_request *fields = choice->plan->fields;
    const struct tokenizer *tokenizer = choice->plan->tokenizer;
    size_t count = item->n_prompt_logprobs;

    if (count > 0 && (item->prompt_from != choice->scored + 1 ||
                      count > choice->prompt_count - 1 - choice->scored))
        return -EPROTO;
    for (size_t i = 0; i < count; i++) {
        uint32_t id = choice->prompt_ids[++choice->scored];
        if (fields->prompt_logprobs) {
            buffer_append_char(&choice->prompt_logprobs, ',');
            logprobs_json_prompt_entry(tokenizer, id, item->prompt_logprobs[i],
                                       fields->prompt_logprobs - 1, &choice->prompt_logprobs);
        }
        if (echoes_logprobs(choice))
            logprobs_json_add(&choice->logprobs, id, item->prompt_logprobs[i]);
    }
    bool missing = item->first && choice->sampling.prompt_logprobs > 0 &&
                   choice->scored + 1 != choice->prompt_count;
    return missing ? -EPROTO : 0;
}

static void keep_id(struct choice *choice, uint32_t id)
{
    if (choice->plan->fields->return_ids)
        buffer_printf(&choice->ids, choice->ids.bytes ? ",%u" : "%u", id);
}

/* A stop id of the client, who wants stops in the output. The model's own end is never text. */
static bool shows_end(const struct choice *choice, uint32_t id)
{
    return choice->plan->fields->include_stop && !is_model_end(choice, id);
}

/* Nothing was cut off since the buffers were sent last. */
static int check_buffers(const struct choice *choice)
{
    const struct buffer *buffers[] = {&choice->raw, &choice->text, &choice->certain,
                                      &choice->prompt_logprobs, &choice->ids};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        if (buffer_finish(buffers[i]) < 0)
            return -ENOBUFS;
    }
    if (logprobs_json_check(&choice->logprobs) < 0)
        return -ENOBUFS;
    return choice->plan->answer.reads ? answer_reader_check(&choice->reader) : 0;
}

int choice_take(struct choice *choice, const Refrain__StepItem *item, bool *ret_over)
{
    size_t count = item->ids.len / sizeof(uint32_t);
    bool stopped = item->finish == REFRAIN__FINISH__FINISH_STOP;
    bool finished = item->finish != REFRAIN__FINISH__FINISH_NONE;

    ASSERT(!choice->done);
    if (item->ids.len % sizeof(uint32_t) != 0 || (stopped && count == 0))
        return -EPROTO;
    if (take_prompt_logprobs(choice, item) < 0)
        return -EPROTO;
    if (item->first)
        note_first(choice, item);
    if (choice->plan->fields->score_only && (count > 0 || finished)) {
        choice->finish_reason =
            "length"; /* the token that the worker had to write is not counted */
        over(choice);
    }
    for (size_t i = 0; i < count && !choice->done; i++) {
        bool shown = !(stopped && i + 1 == count) || shows_end(choice, id_at(item, i));
        choice->tokens++;
        if (i < item->n_logprobs)
            choice->logprob_sum += item->logprobs[i]->chosen;
        keep_id(choice, id_at(item, i));
        if (choice->plan->fields->logprobs)
            logprobs_json_add(&choice->logprobs, id_at(item, i),
                              i < item->n_logprobs ? item->logprobs[i] : NULL);
        if (!shown)
            break;
        if (token_ids_add(&choice->generated, id_at(item, i)) < 0)
            return -EPROTO;
        if (detokenizer_push(&choice->detokenizer, id_at(item, i), &choice->raw) < 0)
            return -EPROTO;
        if (sift_token(choice))
            over(choice);
    }
    if (finished && !choice->done) {
        finish(choice, item, count > 0 ? id_at(item, count - 1) : TOKEN_ID_NONE);
        over(choice);
    }
    int r = check_buffers(choice);
    if (r == 0)
        *ret_over = choice->done;
    return r;
}

size_t choice_kept_ids(const struct choice *choice, size_t text_unsent)
{
    const struct choice_plan *plan = choice->plan;
    struct detokenizer detokenizer;
    struct buffer text;
    size_t kept = choice->text_bytes - text_unsent, count = 0;

    if (choice->done && choice->stop_kind != CHUNK_STOP_TEXT && text_unsent == 0)
        return choice->generated.count;
    if (plan->answer.reads)
        return 0; /* what was read out of the text and sent cannot be counted back to tokens */
    buffer_init(&text, kept + RAW_BYTES_MAX);
    detokenizer_init(&detokenizer, plan->tokenizer, !plan->fields->skip_special_tokens,
                     plan->strip_first_space);
    while (count < choice->generated.count && text.bytes < kept)
        (void)detokenizer_push(&detokenizer, choice->generated.ids[count++], &text);
    if (text.bytes != kept)
        count = 0;
    buffer_done(&text);
    return count;
}

size_t choice_bytes(const struct choice *choice)
{
    const struct buffer *buffers[] = {&choice->raw, &choice->text, &choice->certain,
                                      &choice->prompt_logprobs, &choice->ids};
    size_t bytes = choice->generated.count * sizeof(*choice->generated.ids) +
                   logprobs_json_bytes(&choice->logprobs);

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        bytes += buffers[i]->capacity;
    if (choice->plan->answer.reads)
        bytes += answer_reader_bytes(&choice->reader);
    return bytes;
}

double choice_mean_logprob(const struct choice *choice)
{
    return choice->tokens > 0 ? choice->logprob_sum / choice->tokens : -INFINITY;
}
