/* bench_session.c - what a turn costs besides its prompt: turn 30 of a chat of 100,000 characters.
 *
 *   bench_session     prints CSV: policy,step,us_p50,us_p99,runs
 *
 * open: hashes and limits. prompt: history policy, template, tokenizer (text cache on; the messages
 * before the last were counted and tokenized in earlier turns). sent: the record of the turn before
 * is found and compared, a new one is made; a client does not wait for it. Each run has a last
 * message that was never seen. CPU time of one thread. */
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#ifndef SHARED_DIR
#define SHARED_DIR "../shared"
#endif
#include "router/metrics.h"
#include "router/turn.h"
#include "tests/unit/router/text/cards.h"

#define MESSAGES 59
#define CHARACTERS 100000
#define RUNS 300

enum step { STEP_OPEN = 0, STEP_PROMPT, STEP_SENT, STEPS };

static const char *const step_names[STEPS] = {"open", "prompt", "sent"};

static double cpu_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Words of 2 to 9 letters, the same for the same seed. */
static json_t *message(size_t i, unsigned seed)
{
    char text[CHARACTERS / MESSAGES + 1];
    uint32_t x = (uint32_t)i * 2654435761u + seed;
    for (size_t at = 0, left = 4; at < sizeof(text) - 1; at++) {
        x = x * 1664525u + 1013904223u;
        text[at] = left-- ? (char)('a' + (x >> 24) % 26) : ' ';
        left = left > 9 ? 2 + (x >> 20) % 8 : left;
    }
    text[sizeof(text) - 1] = '\0';
    return json_pack("{s:s, s:s}", "role", i % 2 ? "assistant" : "user", "content", text);
}

static void one_turn(struct sessions *sessions, const struct served_model *model,
                     const struct api_request *request, double ret_us[STEPS])
{
    struct token_ids ids;
    struct api_error error;
    struct turn *turn;
    double at[STEPS + 1];

    token_ids_init(&ids, (size_t)1 << 20);
    at[0] = cpu_us();
    int r = turn_open(sessions, request, model, &model->maker, &turn, &error);
    ASSERT(r == 0);
    at[1] = cpu_us();
    r = turn_prompt(turn, &ids, NULL, &error);
    ASSERT(r == 0);
    at[2] = cpu_us();
    turn_sent(turn, ids.ids, ids.count);
    at[3] = cpu_us();
    turn_first(turn, (uint32_t)ids.count - 1, 0, "");
    turn_end(turn, ids.ids, 1);
    for (int step = 0; step < STEPS; step++)
        ret_us[step] = at[step + 1] - at[step];
    turn_free(turn);
    token_ids_done(&ids);
}

static void run_policy(const char *name, struct served_model *model, struct history_policy policy)
{
    static double times[STEPS][RUNS];
    const struct sessions_settings settings = {
        .history = policy, .limits = {.turns_max = 1000}, .records_max = 16384};
    struct metrics *metrics = metrics_new(router_metric_specs, ROUTER_METRICS);
    struct sessions *sessions = sessions_new(&settings, metrics);
    struct api_request request = {.kind = API_CHAT,
                                  .n = 1,
                                  .add_generation_prompt = true,
                                  .cache_salt = "",
                                  .turn_memory = true,
                                  .messages = json_array()};
    double us[STEPS];

    for (size_t i = 0; i < MESSAGES; i++)
        (void)json_array_append_new(request.messages, message(i, 0));
    one_turn(sessions, model, &request, us);
    for (unsigned i = 0; i < RUNS; i++) {
        (void)json_array_set_new(request.messages, MESSAGES - 1, message(MESSAGES - 1, i + 1));
        one_turn(sessions, model, &request, us);
        for (int step = 0; step < STEPS; step++)
            times[step][i] = us[step];
    }
    for (int step = 0; step < STEPS; step++) {
        qsort(times[step], RUNS, sizeof(double), by_value);
        printf("%s,%s,%.1f,%.1f,%d\n", name, step_names[step], times[step][RUNS / 2],
               times[step][RUNS * 99 / 100], RUNS);
    }
    json_decref(request.messages);
    sessions_free(sessions);
    metrics_free(metrics);
}

int main(void)
{
    struct chat_template *chat_template = NULL;
    struct errmsg err = {{0}};
    struct served_model model = {.card =
                                     card_from_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf"))};

    if (!model.card) {
        printf("skipped: no model\n");
        return 0;
    }
    int r = tokenizer_new(model.card, &model.maker.tokenizer, &err);
    ASSERT(r == 0);
    r = chat_template_new(model.card->chat_template, strlen(model.card->chat_template),
                          &chat_template, &err);
    ASSERT(r == 0);
    model.maker.chat_template = chat_template;
    model.maker.tokenizer_id = 1;
    model.maker.cache = text_cache_new((size_t)64 << 20);
    printf("policy,step,us_p50,us_p99,runs\n");
    run_policy("full", &model, (struct history_policy){HISTORY_FULL, 0, 50});
    run_policy("last_messages=20", &model, (struct history_policy){HISTORY_LAST_MESSAGES, 20, 50});
    run_policy("token_budget=16384", &model,
               (struct history_policy){HISTORY_TOKEN_BUDGET, 16384, 50});
    text_cache_free(model.maker.cache);
    tokenizer_free(model.maker.tokenizer);
    chat_template_free(chat_template);
    model_card_unref(model.card);
    return 0;
}
