/* test_exact.c - reuse never changes an answer: 30 prompts, greedy, give the same tokens with the
 * same log-probabilities, bit by bit, alone and in a batch of 16, with the prefix cache on and off,
 * computed and asked again. Rank count and kernel family are fixed within a
 * comparison. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define PROMPTS 30
#define FEW_PROMPTS 8    /* for each family but the best, with which the others are computed */
#define ANSWER_TOKENS 24 /* over a border of blocks */
#define BATCH 16

/* Shared by all prompts, and longer than a block, so that cached runs reuse across prompts too. */
static const char instruction[] =
    "You are a careful assistant. Answer the question below in a few plain sentences, without a "
    "list and without an introduction, and stay with what is generally known.\n\nQuestion: ";

static char *prompts[PROMPTS];
static size_t used = PROMPTS; /* the first so many */
static struct cluster cluster;
static char best[16]; /* the family that "auto" came to */

static void load_prompts(void)
{
    char *text = file_read(SHARED_DIR "/cases/traces/mt_bench_question.jsonl", NULL);
    size_t count = 0;

    if (!text)
        e2e_skip("shared/cases/traces/mt_bench_question.jsonl is absent");
    for (char *line = text; *line && count < PROMPTS;) {
        char *end = strchrnul(line, '\n');
        json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
        const char *turn = json_string_value(json_array_get(json_object_get(json, "turns"), 0));
        if (turn)
            prompts[count++] = mem_printf("%s%s\n\nAnswer:", instruction, turn);
        json_decref(json);
        line = *end ? end + 1 : end;
    }
    mem_free(text);
    if (count < PROMPTS)
        e2e_skip("mt_bench_question.jsonl has %zu prompts, %d are needed", count, PROMPTS);
}

/* Text, tokens and log-probabilities of each answer as one text; *ret_cached: reused tokens. */
static void answer_all(size_t threads, char *ret_answers[PROMPTS], unsigned *ret_cached)
{
    struct chat chats[PROMPTS];

    for (size_t i = 0; i < used; i++) {
        json_t *body = completion_body(cluster.model, prompts[i], ANSWER_TOKENS);
        json_object_set_new(body, "logprobs", json_integer(1));
        json_object_set_new(body, "ignore_eos", json_true());
        chat_init(&chats[i], cluster.url, COMPLETION_PATH, body);
    }
    chat_send_all(chats, used, threads);
    *ret_cached = 0;
    for (size_t i = 0; i < used; i++) {
        char *logprobs = chats[i].logprobs ? json_dumps(chats[i].logprobs, JSON_SORT_KEYS) : NULL;
        if (chats[i].status != 200)
            fail_msg("prompt %zu: status %d: %s%s", i, chats[i].status, chats[i].failure,
                     chats[i].error_message);
        assert_non_null(logprobs);
        size_t tokens = json_array_size(json_object_get(chats[i].logprobs, "tokens"));
        assert_int_equal(tokens, ANSWER_TOKENS);
        ret_answers[i] = mem_printf("%s\n%s\n%s", chats[i].text, chats[i].finish, logprobs);
        *ret_cached += chats[i].cached_tokens;
        free(logprobs); /* jansson's */
        chat_done(&chats[i]);
    }
}

static unsigned count_same(char *const a[PROMPTS], char *const b[PROMPTS])
{
    unsigned same = 0;
    for (size_t i = 0; i < used; i++) {
        bool equal = strcmp(a[i], b[i]) == 0;
        if (!equal)
            print_message("prompt %zu differs:\n  %.160s\n  %.160s\n", i, a[i], b[i]);
        same += equal;
    }
    return same;
}

static void free_answers(char *answers[PROMPTS])
{
    for (size_t i = 0; i < used; i++)
        mem_free(answers[i]);
}

static void start(const char *ranks, const char *family, const char *caching)
{
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--groups", "1", "--tp", ranks, "--kv-cache-memory",
                                        "512MiB", caching, "--cpu-isa", family, NULL});
}

static void note_family(void)
{
    json_t *info = cluster_admin(&cluster, 0, "show info");
    const char *isa = json_string_value(json_object_get(info, "isa"));
    assert_non_null(isa);
    (void)snprintf(best, sizeof(best), "%s", isa);
    json_decref(info);
}

static void compare(const char *ranks, const char *family)
{
    char *alone[PROMPTS], *again[PROMPTS], *uncached[PROMPTS];
    unsigned cached_alone, cached_again, cached_off;

    start(ranks, family, "--enable-prefix-caching");
    if (strcmp(family, "auto") == 0)
        note_family();
    answer_all(1, alone, &cached_alone);
    answer_all(BATCH, again, &cached_again);
    cluster_stop(&cluster);
    start(ranks, family, "--no-enable-prefix-caching");
    answer_all(BATCH, uncached, &cached_off);
    cluster_stop(&cluster);

    unsigned same_again = count_same(alone, again), same_off = count_same(alone, uncached);
    print_message("tp=%s, family %s: cache on, one at a time (%u tokens reused) against\n"
                  "  asked again, %d at a time (%u reused): %u of %zu identical\n"
                  "  cache off,   %d at a time (%u reused): %u of %zu identical\n",
                  ranks, family, cached_alone, BATCH, cached_again, same_again, used, BATCH,
                  cached_off, same_off, used);
    assert_true(cached_alone > 0);
    assert_true(cached_again > cached_alone);
    assert_int_equal(cached_off, 0);
    free_answers(alone);
    free_answers(again);
    free_answers(uncached);
    assert_int_equal(same_again, used);
    assert_int_equal(same_off, used);
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static void test_one_rank_gives_the_same_bits_cached_batched_and_alone(void **state)
{
    (void)state;
    compare("1", "auto");
}

static void test_two_ranks_give_the_same_bits_cached_batched_and_alone(void **state)
{
    (void)state;
    compare("2", "auto");
}

/* A worker that only says what it would run on refuses a family that the machine lacks. */
static bool has_family(const char *family)
{
    struct program program;
    program_run(&program, 60000,
                (const char *const[]){"refrain-worker", "--cpu-isa", family, "--check",
                                      e2e_smollm2(), NULL});
    bool has = program.code == 0;
    if (!has)
        print_message("skipped: family %s: %s", family, program.err);
    program_done(&program);
    return has;
}

static void test_every_other_family_gives_the_same_bits_cached_batched_and_alone(void **state)
{
    static const char *const families[] = {"avx2", "avx512", "amx", "amx-bf16"};
    (void)state;
    used = FEW_PROMPTS;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (strcmp(families[i], best) != 0 && has_family(families[i]))
            compare("1", families[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_rank_gives_the_same_bits_cached_batched_and_alone,
                                  teardown),
        cmocka_unit_test_teardown(test_two_ranks_give_the_same_bits_cached_batched_and_alone,
                                  teardown),
        cmocka_unit_test_teardown(
            test_every_other_family_gives_the_same_bits_cached_batched_and_alone, teardown),
    };
    e2e_begin();
    (void)e2e_smollm2();
    load_prompts();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < PROMPTS; i++)
        mem_free(prompts[i]);
    return e2e_finish(failed);
}
