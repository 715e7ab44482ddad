/* bench_engine_step.c - what a turn of the engine costs outside the forward pass: plan, batch,
 * sampling, commit, publish, status. No weights are loaded; the pass itself is left out.
 *
 *   bench_engine_step [MODEL] [threads 1]    CSV; MODEL gives the vocabulary, SmolLM2 by default
 *
 * sampler_us is what the sampler takes, which reads a row of the vocabulary's size for each
 * sequence, on all threads together; glue_us, with one thread, is the rest of the turn. Wall time,
 * medians: a thread's own time costs a system call for each row. Linked with --wrap for
 * rank_model_forward and sampler_sample; the answer that is checked: a token for every sequence in
 * every step. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "proto/worker_metrics.h"
#include "tests/model_path.h"
#include "worker/engine/engine_private.h"

#define STEPS 400u
#define WARM_UP 40u
#define PROMPT_TOKENS 64u

int __wrap_rank_model_forward(struct rank_model *model, const struct step_descriptor *step,
                              float *logits);
int __real_sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                          struct sample_result *ret_result);
int __wrap_sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                          struct sample_result *ret_result);

static _Atomic uint64_t sampler_ns; /* of the current step */

int __wrap_rank_model_forward(struct rank_model *model, const struct step_descriptor *step,
                              float *logits)
{
    return 0; /* the logits stay what begin() made them */
}

int __wrap_sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                          struct sample_result *ret_result)
{
    uint64_t before = clock_ns();
    int r = __real_sampler_sample(sampler, logits, row, ret_result);

    sampler_ns += clock_ns() - before;
    return r;
}

static void submit(struct engine *engine, uint32_t number, float temperature)
{
    struct command *command = command_new(COMMAND_SUBMIT, PROMPT_TOKENS);
    struct sequence_params *params = &command->params;

    command->router = 1;
    (void)snprintf(command->request_id, sizeof(command->request_id), "r%u", number);
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++)
        command->prompt[i] = 1 + number * 7 + i;
    params->prompt = command->prompt;
    params->prompt_tokens = PROMPT_TOKENS;
    params->tokens_max = WARM_UP + STEPS + 100;
    params->sampling = (struct sample_params){
        .temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = number};
    params->root = (struct block_hash){1, number};
    int r = engine_send(engine, command);
    ASSERT(r == 0);
}

/* Tokens that a step told; its buffers go back. */
static uint32_t drain(struct engine *engine)
{
    struct outbox *outbox = engine_outbox(engine);
    struct output *output;
    uint32_t tokens = 0;

    while ((output = outbox_pop(outbox)) != NULL) {
        for (uint32_t i = 0; output->kind == OUTPUT_STEP && i < output->items_count; i++)
            tokens += output->items[i].has_token;
        outbox_recycle(outbox, output);
    }
    return tokens;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static double median_us(uint64_t *times_ns)
{
    qsort(times_ns, STEPS, sizeof(*times_ns), compare);
    return (double)times_ns[STEPS / 2] / 1e3;
}

static struct engine *begin(struct rank_model *model, struct metrics *metrics, uint32_t sequences)
{
    const uint32_t vocab_size = model->config.vocab_size;
    const struct engine_settings settings = {
        .model = model,
        .metrics = metrics,
        .scheduler = {.sequences_max = sequences,
                      .step_tokens_max = 4096,
                      .context_tokens_max = 2048,
                      .waiting_max = sequences,
                      .vocab_size = vocab_size},
        .blocks = sequences * 64 + 256,
        .prefix_caching = true,
    };
    struct engine *engine = NULL;
    struct errmsg err = {""};

    if (engine_new(&settings, &engine, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    for (size_t i = 0; i < (size_t)sequences * vocab_size; i++)
        engine->logits[i] = (float)(rng_uniform(7, i) * 20 - 10);
    return engine;
}

static void run(struct rank_model *model, uint32_t sequences, float temperature)
{
    static uint64_t turn_ns[STEPS], glue_ns[STEPS], sample_ns[STEPS];
    struct metrics *metrics = metrics_new(worker_metric_specs, WORKER_METRICS);
    struct engine *engine = begin(model, metrics, sequences);
    bool idle;

    for (uint32_t i = 0; i < sequences; i++)
        submit(engine, i, temperature);
    engine_take_commands(engine);
    for (uint32_t i = 0; i < WARM_UP + STEPS; i++) {
        sampler_ns = 0;
        uint64_t before = clock_ns();
        int r = engine_turn(engine, &idle);
        uint64_t all_ns = clock_ns() - before;
        ASSERT(r == 0 && !idle);
        uint32_t tokens = drain(engine);
        ASSERT(i < WARM_UP || tokens == sequences);
        if (i < WARM_UP)
            continue;
        turn_ns[i - WARM_UP] = all_ns;
        glue_ns[i - WARM_UP] = all_ns > sampler_ns ? all_ns - sampler_ns : 0;
        sample_ns[i - WARM_UP] = sampler_ns;
    }
    fprintf(stdout, "%s,%u,%u,%u,%.1f,%.1f,", temperature > 0 ? "temperature" : "greedy", sequences,
            model->config.vocab_size, model->backend->threads, median_us(turn_ns),
            median_us(sample_ns));
    fprintf(stdout, model->backend->threads == 1 ? "%.1f\n" : "\n", median_us(glue_ns));
    engine_free(engine);
    metrics_free(metrics);
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    const struct rank_model_settings settings = {
        .path = argc > 1 ? argv[1] : model_path(SMOLLM2_FILE),
        .ranks = 1,
        .whole_windows = true,
        .backend = {.name = "cpu", .threads = threads > 1 ? (unsigned)threads : 1}};
    struct rank_model *model = NULL;
    struct errmsg err = {""};

    log_init("bench", LOG_WARN);
    if (rank_model_open(&settings, &model, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    fprintf(stdout, "sampling,sequences,vocabulary,threads,turn_us,sampler_us,glue_us\n");
    for (uint32_t sequences = 8; sequences <= 128; sequences *= 4) {
        run(model, sequences, 0);
        run(model, sequences, 1);
    }
    rank_model_close(model);
    return 0;
}
