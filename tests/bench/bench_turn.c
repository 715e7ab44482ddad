/* bench_turn.c - template and tokenizer for turn 30 of a chat of 100,000 characters.
 *
 *   bench_turn     prints CSV: model,state,characters,prompt_tokens,render_us_p50,total_us_p50,
 *                  total_us_p99,runs
 *
 * Each run has a last message that was never seen. "warm": the 29 turns before it went through the
 * cache, the last answer is in turn memory, as in a chat that goes on. "off": no cache, but a
 * tokenizer that has seen the words. "cold": nothing was seen at all. `total` is
 * prompt_from_chat(), `render` the template alone. CPU time of one thread; ids are compared with
 * those of no cache first. */
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include "router/api/prompt.h"

#ifndef SHARED_DIR
#define SHARED_DIR "../shared"
#endif
#include "tests/unit/router/text/cards.h"

#define TURNS 30
#define MESSAGES (2 * TURNS - 1)
#define CHARACTERS 100000
#define RUNS_MAX 1000
#define IDS_MAX ((size_t)1 << 20)

static double cpu_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* --- the chat -------------------------------------------------------------------------------- */

/* The dialogues of mtbench101, joined; ASCII, so that characters are bytes. */
static char *talk(void)
{
    struct file_bytes file = read_file(SHARED_DIR "/cases/traces/mtbench101.jsonl.gz", 8u << 20);
    struct buffer all;
    buffer_init(&all, 1u << 20);
    for (char *at = file.data; at != NULL && *at != '\0' && all.bytes < 2 * CHARACTERS;) {
        char *newline = strchr(at, '\n');
        json_t *line = json_loadb(at, (size_t)(newline - at), 0, NULL), *turn = NULL;
        size_t i = 0;
        json_array_foreach(json_object_get(line, "history"), i, turn)
        {
            buffer_append_text(&all, json_string_value(json_object_get(turn, "user")));
            buffer_append_char(&all, '\n');
            buffer_append_text(&all, json_string_value(json_object_get(turn, "bot")));
            buffer_append_char(&all, '\n');
        }
        json_decref(line);
        at = newline + 1;
    }
    mem_free(file.data);
    for (size_t i = 0; i < all.bytes; i++)
        all.data[i] = (unsigned char)all.data[i] < 0x80 ? all.data[i] : '\'';
    return buffer_take(&all, &(size_t){0});
}

static json_t *message(size_t i, const char *text, size_t bytes)
{
    return json_pack("{s:s, s:s%}", "role", i % 2 ? "assistant" : "user", "content", text, bytes);
}

static struct api_request chat_of(const char *text)
{
    const size_t each = CHARACTERS / MESSAGES;
    struct api_request request = {.kind = API_CHAT,
                                  .add_generation_prompt = true,
                                  .cache_salt = "",
                                  .turn_memory = true,
                                  .messages = json_array()};
    for (size_t i = 0; i < MESSAGES; i++)
        json_array_append_new(request.messages, message(i, text + i * each, each));
    return request;
}

/* A last message of the same length that no run had before. */
static void renew(struct api_request *request, const char *text, size_t run)
{
    const size_t each = CHARACTERS / MESSAGES;
    char *last = mem_strndup(text + CHARACTERS + run * 37, each);
    (void)snprintf(last, each, "%zu:", run);
    last[strlen(last)] = ' ';
    json_array_set_new(request->messages, MESSAGES - 1, message(MESSAGES - 1, last, each));
    mem_free(last);
}

/* --- one model ------------------------------------------------------------------------------- */

static struct prompt_maker make_maker(struct model_card *card, size_t cache_bytes)
{
    struct prompt_maker maker = {.tokenizer_id = 1, .turn_memory = true};
    struct chat_template *chat_template = NULL;
    struct errmsg err = {{0}};
    int r = tokenizer_new(card, &maker.tokenizer, &err);
    ASSERT(r == 0);
    r = chat_template_new(card->chat_template, strlen(card->chat_template), &chat_template, &err);
    ASSERT(r == 0);
    maker.chat_template = chat_template;
    maker.cache = text_cache_new(cache_bytes);
    return maker;
}

static void drop_maker(struct prompt_maker *maker)
{
    chat_template_free((struct chat_template *)(uintptr_t)maker->chat_template);
    tokenizer_free(maker->tokenizer);
    text_cache_free(maker->cache);
}

static void encode(const struct prompt_maker *maker, const struct api_request *request,
                   struct token_ids *ids, struct prompt_trace *trace)
{
    struct api_error error;
    ids->count = 0;
    int r = prompt_from_chat(maker, request, ids, trace, &error);
    ASSERT(r == 0);
}

/* Turn 29 as it was: its prompt, then its answer, which turn memory keeps. */
static void play_turn_before(const struct prompt_maker *maker, struct api_request *request)
{
    json_t *whole = request->messages;
    const char *answer =
        json_string_value(json_object_get(json_array_get(whole, MESSAGES - 2), "content"));
    struct text_owner owner = prompt_owner(maker, request);
    struct prompt_trace trace = {0};
    struct token_ids ids, more;
    token_ids_init(&ids, IDS_MAX);
    token_ids_init(&more, IDS_MAX);
    request->messages = json_copy(whole);
    json_array_remove(request->messages, MESSAGES - 1);
    json_array_remove(request->messages, MESSAGES - 2);
    encode(maker, request, &ids, &trace);
    int r = tokenizer_encode(maker->tokenizer, answer, strlen(answer), NULL, &more);
    ASSERT(r == 0);
    text_cache_remember(maker->cache, &owner, &trace, ids.ids + trace.end.ids_count,
                        ids.count - trace.end.ids_count, more.ids, more.count);
    json_decref(request->messages);
    request->messages = whole;
    prompt_trace_done(&trace);
    token_ids_done(&ids);
    token_ids_done(&more);
}

static double render_us(const struct prompt_maker *maker, const struct api_request *request)
{
    const struct render_input input = {.messages = request->messages,
                                       .add_generation_prompt = true,
                                       .bos_token = "<|im_start|>",
                                       .eos_token = "<|im_end|>"};
    struct rendered rendered;
    struct errmsg err = {{0}};
    double start = cpu_us();
    int r = chat_template_render(maker->chat_template, &input, &rendered, NULL, &err);
    double taken = cpu_us() - start;
    ASSERT(r == 0);
    rendered_done(&rendered);
    return taken;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

struct times {
    double render[RUNS_MAX], total[RUNS_MAX];
    size_t runs, tokens;
};

static void run(struct times *times, const struct prompt_maker *maker,
                const struct api_request *request, struct token_ids *ids)
{
    double start = cpu_us();
    encode(maker, request, ids, NULL);
    times->total[times->runs] = cpu_us() - start;
    times->render[times->runs++] = render_us(maker, request);
    times->tokens = ids->count;
}

static void print(const char *model, const char *state, struct times *times)
{
    qsort(times->render, times->runs, sizeof(double), by_value);
    qsort(times->total, times->runs, sizeof(double), by_value);
    printf("%s,%s,%d,%zu,%.1f,%.1f,%.1f,%zu\n", model, state, CHARACTERS, times->tokens,
           times->render[times->runs / 2], times->total[times->runs / 2],
           times->total[times->runs * 99 / 100], times->runs);
    (void)fflush(stdout);
    times->runs = 0;
}

static void check_same(const struct token_ids *a, const struct token_ids *b)
{
    ASSERT(a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof(uint32_t)) == 0);
}

static void run_model(const char *name, struct model_card *card, const char *text)
{
    static struct times times;
    struct token_ids ids, plain;
    if (card == NULL || card->chat_template == NULL)
        return;
    struct api_request request = chat_of(text);
    struct prompt_maker warm = make_maker(card, (size_t)64 << 20), off = make_maker(card, 0);
    token_ids_init(&ids, IDS_MAX);
    token_ids_init(&plain, IDS_MAX);
    play_turn_before(&warm, &request);
    encode(&off, &request, &plain, NULL);
    encode(&warm, &request, &ids, NULL);
    check_same(&ids, &plain);
    for (size_t i = 0; i < RUNS_MAX; i++) {
        renew(&request, text, i);
        run(&times, &warm, &request, &ids);
    }
    encode(&off, &request, &plain, NULL);
    check_same(&ids, &plain);
    print(name, "warm", &times);
    for (size_t i = 0; i < RUNS_MAX / 10; i++) {
        renew(&request, text, i);
        run(&times, &off, &request, &ids);
    }
    print(name, "off", &times);
    for (size_t i = 0; i < RUNS_MAX / 100; i++) {
        struct prompt_maker cold = make_maker(card, (size_t)64 << 20);
        renew(&request, text, i);
        run(&times, &cold, &request, &ids);
        drop_maker(&cold);
    }
    print(name, "cold", &times);
    token_ids_done(&ids);
    token_ids_done(&plain);
    drop_maker(&warm);
    drop_maker(&off);
    json_decref(request.messages);
    model_card_unref(card);
}

static struct model_card *qwen2_with_template(void)
{
    struct model_card *card = card_from_qwen2();
    struct file_bytes file =
        read_file(SHARED_DIR "/cases/templates/qwen2.5-7b-instruct.jinja", 1u << 20);
    if (card != NULL)
        card->chat_template = file.data;
    return card;
}

int main(void)
{
    char *text = talk();
    if (strlen(text) < 2 * CHARACTERS) {
        printf("skipped: no text\n");
        return 0;
    }
    printf("model,state,characters,prompt_tokens,render_us_p50,total_us_p50,total_us_p99,runs\n");
    run_model("qwen2.5", qwen2_with_template(), text);
    run_model("smollm2", card_from_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf")), text);
    mem_free(text);
    return 0;
}
