/* test_look.c - rows of logits become the same tokens whoever looks at them, and however many look.
 */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "proto/worker_metrics.h"
#include "worker/engine/engine_private.h"
#include "worker/sample/rules.h"

#define MODEL SOURCE_DIR "/tests/golden/tiny/cohere"
#define SEQUENCES 24u
#define PROMPT 8u
#define BROKEN 5u  /* has a NaN among its logits */
#define NOTHING 6u /* may be no token */
#define SCORED 7u  /* its prompt is scored */

struct looked {
    struct sample_result results[SEQUENCES], scores[PROMPT];
    int error_codes[SEQUENCES];
};

/* Each with parameters of its own. */
static void submit(struct engine *engine, uint32_t number)
{
    static const uint32_t first[1] = {0};
    struct command *command = command_new(COMMAND_SUBMIT, PROMPT);
    struct sequence_params *params = &command->params;
    struct errmsg err;

    command->router = 1;
    (void)snprintf(command->request_id, sizeof(command->request_id), "r%u", number);
    for (uint32_t i = 0; i < PROMPT; i++)
        command->prompt[i] = 1 + number * 3 + i;
    params->prompt = command->prompt;
    params->prompt_tokens = PROMPT;
    params->tokens_max = 10;
    params->sampling = (struct sample_params){
        .temperature = number % 3 == 0 ? 0 : 0.5 + 0.1 * number,
        .top_p = number % 4 == 1 ? 0.8 : 1,
        .top_k = number % 5 == 2 ? 9 : 0,
        .min_p = number % 7 == 3 ? 0.05 : 0,
        .repetition_penalty = number % 2 == 0 ? 1 : 1.3,
        .seed = number,
        .logprobs = number % 3,
    };
    if (number == SCORED)
        params->prompt_logprobs = 4;
    if (number == NOTHING) { /* may be id 0 only, which must not end it yet */
        const struct sample_rules_input rules = {
            .allowed = {.data = (const uint8_t *)first, .bytes = sizeof(first)}};
        assert_int_equal(
            sample_rules_new(&rules, engine->settings.scheduler.vocab_size, &params->rules, &err),
            0);
        params->tokens_min = 2;
        params->stop_ids_count = 1;
    }
    params->root = (struct block_hash){1, number};
    assert_int_equal(engine_send(engine, command), 0);
}

static void look(unsigned threads, struct looked *ret_looked)
{
    const struct rank_model_settings opened = {
        .path = MODEL, .ranks = 1, .backend = {.name = "cpu", .threads = threads}};
    struct rank_model *model = NULL;
    struct engine *engine = NULL;
    struct step_plan plan;
    struct errmsg err = {""};

    assert_int_equal(rank_model_open(&opened, &model, &err), 0);
    struct metrics *metrics = metrics_new(worker_metric_specs, WORKER_METRICS);
    const uint32_t vocab_size = model->config.vocab_size;
    const struct engine_settings settings = {
        .model = model,
        .metrics = metrics,
        .scheduler = {.sequences_max = SEQUENCES,
                      .step_tokens_max = SEQUENCES * PROMPT,
                      .context_tokens_max = 64,
                      .waiting_max = SEQUENCES,
                      .vocab_size = vocab_size},
        .blocks = SEQUENCES * 4,
        .prefix_caching = true,
    };
    if (engine_new(&settings, &engine, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        submit(engine, i);
    engine_take_commands(engine);
    scheduler_plan(engine->scheduler, 1, &plan);
    assert_int_equal(plan.entries_count, SEQUENCES);
    batch_build(&engine->batch, &plan);
    uint32_t outputs = engine->batch.descriptor.step.outputs;
    assert_int_equal(outputs, SEQUENCES + PROMPT - 1);
    for (size_t i = 0; i < (size_t)outputs * vocab_size; i++)
        engine->logits[i] = (float)(rng_uniform(7, i) * 20 - 10);
    for (uint32_t i = 0; i < outputs; i++) {
        if (engine->batch.out_entry[i] == BROKEN)
            engine->logits[(size_t)i * vocab_size + 3] = NAN;
    }
    engine_look_at_logits(engine, &plan);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        const struct request *request = plan.entries[i].sequence->params.owner;
        ret_looked->error_codes[i] = request->error_code;
        if (request->error_code == 0)
            sample_result_copy(&ret_looked->results[i], &engine->results[i]);
    }
    for (uint32_t i = 0; i < PROMPT - 1; i++)
        sample_result_copy(&ret_looked->scores[i], &engine->scores[i]);
    (void)scheduler_commit(engine->scheduler, &plan, engine->results, 2, engine->commit_items);
    engine_free(engine);
    metrics_free(metrics);
    rank_model_close(model);
}

static void test_any_number_of_threads_gives_the_same_tokens(void **state)
{
    static const unsigned threads[] = {2, 3, 12}; /* 12: more than there are samplers */
    struct looked *one = mem_zalloc(sizeof(*one)), *more = mem_zalloc(sizeof(*more));
    uint32_t kinds = 0;

    (void)state;
    look(1, one);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        assert_int_equal(one->error_codes[i], i == BROKEN ? 500 : i == NOTHING ? 400 : 0);
        kinds |= 1u << one->results[i].id % 32;
    }
    assert_true(__builtin_popcount(kinds) > 4);
    assert_int_equal(one->scores[0].top_count, 3);
    for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
        memset(more, 0, sizeof(*more));
        look(threads[t], more);
        assert_memory_equal(more, one, sizeof(*one));
    }
    mem_free(one);
    mem_free(more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_threads_gives_the_same_tokens),
    };
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
