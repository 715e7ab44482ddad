/* look.c - what becomes of a step's logits.
 *
 *   for each row, in order:        what its sequence wants of it; a guided one is sampled at once
 *   the others, side by side:      pieces take the next row each, on the threads of the backend
 *   for each row, in order again:  thinking and cancelling
 *
 * Why guided rows are not shared out: a grammar's mask lies in memory that the next mask may take.
 * Why side by side: a row takes 50 to 150 us of a vocabulary of 49,152 and 5 times that of 262,144,
 *   while the forward pass's threads wait. A row's token depends on the row alone (sampler.h), so
 * who samples it does not show. */
#define LOG_MODULE "engine"

#include <errno.h>
#include <stdatomic.h>

#include "kernels/backend.h"
#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "worker/engine/engine_private.h"
#include "worker/engine/grammar_rows.h"
#include "worker/sample/thinking.h"

struct output_row {
    struct sequence *sequence;
    float *logits;
    struct sample_result *result;
    struct sample_row row; /* of one that is sampled */
    uint32_t forced;       /* where row.forced points */
    uint32_t scored_id;    /* of one that is not */
    bool is_score;
    bool is_done; /* as a guided row */
    int r;        /* why there is no token */
};

static uint32_t samplers_of(const struct rank_model *model)
{
    unsigned threads = model->backend->threads;

    return threads < ENGINE_SAMPLERS_MAX ? threads : ENGINE_SAMPLERS_MAX;
}

size_t engine_samplers_bytes(const struct rank_model *model)
{
    return samplers_of(model) * sampler_bytes(model->config.vocab_size);
}

void engine_make_samplers(struct engine *engine)
{
    const struct scheduler_settings *sched = &engine->settings.scheduler;

    engine->samplers_count = samplers_of(engine->settings.model);
    for (uint32_t i = 0; i < engine->samplers_count; i++)
        engine->samplers[i] = sampler_new(sched->vocab_size);
    engine->output_rows =
        mem_calloc((size_t)sched->sequences_max + SCORED_ROWS_MAX, sizeof(*engine->output_rows));
}

void engine_free_samplers(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->samplers_count; i++)
        sampler_free(engine->samplers[i]);
    mem_free(engine->output_rows);
}

/* Why no token could be had for this sequence, in words for its client. */
static void end_sequence(struct engine *engine, struct sequence *seq, int r)
{
    static const struct {
        int r, code;
        const char *text;
    } reasons[] = {
        {-ENODATA, 400,
         "allowed_token_ids, bad_words, min_tokens and the grammar leave no token that may come "
         "next"},
        {-EINVAL, 400, "the grammar's text is nested too deeply to go on"},
        {-E2BIG, 400,
         "the grammar is too ambiguous: one token of it needs more states than a worker looks at"},
        {-ENOSPC, 503, "the worker's memory for grammars is full"},
        {-EIO, 500, "the model computed a value that is not a number"},
    };
    struct request *request = seq->params.owner;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].r != r)
            continue;
        request->error_code = reasons[i].code;
        request->error_text = reasons[i].text;
    }
    ASSERT(request->error_text != NULL);
    if (r == -EIO)
        log_error("not_a_number", "req=%s position=%u", seq->params.request_id, seq->ids_count);
    scheduler_cancel(engine->scheduler, seq, SEQ_FINISH_ERROR);
}

static void describe(struct output_row *out, bool over)
{
    const struct sequence *seq = out->sequence;
    const struct sequence_params *params = &seq->params;
    uint32_t output_count = sequence_output_tokens(seq);
    bool ban = output_count < params->tokens_min && !over;

    out->row = (struct sample_row){
        .params = &params->sampling,
        .rules = params->rules,
        .position = seq->ids_count,
        .banned = ban ? params->stop_ids : NULL,
        .banned_count = ban ? params->stop_ids_count : 0,
        .prompt_ids = seq->ids,
        .prompt_count = seq->prompt_tokens,
        .output_ids = seq->ids + seq->prompt_tokens,
        .output_count = output_count,
    };
    if (params->thinking != NULL && thinking_forces(params->thinking, &out->forced))
        out->row.forced = &out->forced;
}

/* By the caller, before the next mask is made. */
static int sample_guided(struct engine *engine, struct output_row *out)
{
    struct grammar_row grammar = {.over = false};
    int r = grammar_row_make(out->sequence, &grammar);

    if (r < 0)
        return r;
    describe(out, grammar.over);
    out->row.mask = &grammar.mask;
    r = sampler_sample(engine->samplers[0], out->logits, &out->row, out->result);
    return r < 0 ? r : grammar_row_take(out->sequence, out->result->id);
}

/* Rows of this step; returns how many. */
static uint32_t describe_rows(struct engine *engine, const struct step_plan *plan)
{
    const struct batch *batch = &engine->batch;
    const uint32_t vocab_size = engine->settings.scheduler.vocab_size;
    uint32_t tokens = 0, scores = 0, outputs = batch->descriptor.step.outputs;

    for (uint32_t i = 0; i < outputs; i++) {
        struct output_row *out = &engine->output_rows[i];
        struct sequence *seq = plan->entries[batch->out_entry[i]].sequence;
        *out = (struct output_row){
            .sequence = seq,
            .logits = engine->logits + (size_t)i * vocab_size,
            .is_score = batch->out_score[i],
        };
        if (out->is_score) {
            out->scored_id = seq->ids[batch->position[batch->out_row[i]] + 1];
            out->result = &engine->scores[scores++];
            continue;
        }
        out->result = &engine->results[tokens++];
        out->is_done = seq->matcher != NULL;
        if (out->is_done)
            out->r = sample_guided(engine, out);
        else
            describe(out, false);
    }
    return outputs;
}

struct look {
    struct engine *engine;
    uint32_t rows;
    _Atomic uint32_t next;
};

static void look_at_rows(void *context, uint32_t piece)
{
    struct look *look = context;
    struct sampler *sampler = look->engine->samplers[piece];
    uint32_t i;

    while ((i = atomic_fetch_add(&look->next, 1)) < look->rows) {
        struct output_row *out = &look->engine->output_rows[i];
        if (out->is_score)
            out->r = sampler_score(sampler, out->logits, out->scored_id,
                                   out->sequence->params.prompt_logprobs - 1, out->result);
        else if (!out->is_done)
            out->r = sampler_sample(sampler, out->logits, &out->row, out->result);
    }
}

void engine_look_at_logits(struct engine *engine, const struct step_plan *plan)
{
    struct look look = {.engine = engine, .rows = describe_rows(engine, plan)};
    uint32_t pieces = look.rows < engine->samplers_count ? look.rows : engine->samplers_count;

    op_run_pieces(engine->settings.model->backend, look_at_rows, &look, pieces);
    for (uint32_t i = 0; i < look.rows; i++) {
        struct output_row *out = &engine->output_rows[i];
        struct thinking *thinking = out->sequence->params.thinking;
        if (out->r < 0)
            end_sequence(engine, out->sequence, out->r);
        else if (!out->is_score && thinking != NULL)
            thinking_take(thinking, out->result->id);
    }
}
