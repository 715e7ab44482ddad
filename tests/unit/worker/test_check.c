/* test_check.c - `--check` from file to JSON lines, over one and over two ranks. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/json.h"
#include "tests/unit/proto/files/gguf_writer.h"
#include "worker/check.h"
#include "worker/pool_plan.h"
#include "worker/sample/sampler.h"

static char path[] = "/tmp/test_check_XXXXXX";
static char broken[] = "/tmp/test_check_XXXXXX";

static const struct llama_sizes sizes = {
    .layers = 2, .hidden = 16, .ffn = 24, .q_heads = 4, .kv_heads = 2, .vocab_size = 40};

static void write_model(char *to, const struct llama_sizes *tensors)
{
    struct gguf_writer w;
    size_t bytes = 0;
    int fd = mkstemp(to);
    assert_true(fd >= 0);
    writer_init(&w);
    write_llama_keys(&w, &sizes);
    write_llama_tensors(&w, tensors);
    void *data = writer_finish(&w, &bytes);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    (void)close(fd);
    free(data);
    writer_done(&w);
}

static int setup(void **state)
{
    struct llama_sizes wrong = sizes;
    wrong.ffn = 20;
    write_model(path, &sizes);
    write_model(broken, &wrong);
    return 0;
}

static int teardown(void **state)
{
    (void)unlink(path);
    (void)unlink(broken);
    return 0;
}

/* free() *ret_out. */
static int run(const struct check_settings *settings, const char *lines, char **ret_out,
               struct errmsg *err)
{
    size_t bytes = 0;
    FILE *out = open_memstream(ret_out, &bytes), *in = NULL;
    if (lines != NULL)
        in = fmemopen((void *)(uintptr_t)lines, strlen(lines), "r");
    int r = check_run(settings, in, out, err);
    if (in != NULL)
        (void)fclose(in);
    (void)fclose(out);
    return r;
}

static char *answer_of(uint32_t ranks, uint32_t chunk, const char *lines)
{
    const struct check_settings settings = {
        .model = path, .reference = true, .ranks = ranks, .chunk = chunk};
    struct errmsg err = {""};
    char *out = NULL;
    if (run(&settings, lines, &out, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

static void test_lines_when_answered_have_an_argmax_per_id_and_the_asked_rows(void **state)
{
    char *out = answer_of(1, 0, "{\"ids\": [1, 2, 39], \"positions\": [2, 0]}\n\n{\"ids\": []}\n");
    char *second = strchr(out, '\n') + 1;
    json_t *answer = NULL;
    assert_int_equal(json_parse(out, (size_t)(second - out), 1 << 20, &answer, NULL), 0);
    const json_t *argmax = json_object_get(answer, "argmax");
    const json_t *logits = json_object_get(answer, "logits");
    assert_int_equal(json_array_size(argmax), 3);
    assert_int_equal(json_array_size(logits), 2);
    const json_t *last = json_array_get(logits, 0); /* position 2, as asked */
    assert_int_equal(json_array_size(last), 40);
    size_t best = (size_t)json_integer_value(json_array_get(argmax, 2));
    for (size_t i = 0; i < 40; i++)
        assert_true(json_real_value(json_array_get(last, i)) <=
                    json_real_value(json_array_get(last, best)));
    json_decref(answer);
    assert_string_equal(second, "{\"argmax\": [], \"logits\": []}\n");
    free(out);
}

static void test_answers_when_chunked_are_the_same_text(void **state)
{
    const char *lines = "{\"ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18],"
                        " \"positions\": [0, 7, 17]}\n";
    char *whole = answer_of(1, 0, lines), *cut = answer_of(1, 5, lines);
    assert_string_equal(whole, cut);
    free(whole);
    free(cut);
}

static void test_answers_when_split_over_ranks_are_close(void **state)
{
    const char *lines = "{\"ids\": [1, 2, 3, 4, 5], \"positions\": [4]}\n";
    char *one = answer_of(1, 0, lines);
    for (uint32_t ranks = 2; ranks <= 8; ranks += 3) {
        char *many = answer_of(ranks, 2, lines);
        const char *a = strstr(one, "[["), *b = strstr(many, "[[");
        a += 2;
        b += 2;
        for (int i = 0; i < 40; i++) {
            char *a_end = NULL, *b_end = NULL;
            assert_true(fabs(strtod(a, &a_end) - strtod(b, &b_end)) < 1e-4);
            a = a_end + 1;
            b = b_end + 1;
        }
        free(many);
    }
    free(one);
}

static void refuse_line(const char *lines, const char *sentence)
{
    const struct check_settings settings = {.model = path, .reference = true};
    struct errmsg err = {""};
    char *out = NULL;
    assert_true(run(&settings, lines, &out, &err) < 0);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
    free(out);
}

static void test_lines_when_broken_are_refused_by_number(void **state)
{
    refuse_line("{\"ids\": [1]}\nnonsense\n", "line 2");
    refuse_line("[1]\n", "line 1: not an object");
    refuse_line("{\"ids\": 3}\n", "line 1: \"ids\" is not an array");
    refuse_line("{\"ids\": [1, 40]}\n", "line 1: \"ids\"[1] is not an integer below 40");
    refuse_line("{\"ids\": [-1]}\n", "\"ids\"[0]");
    refuse_line("{\"ids\": [1], \"positions\": [1]}\n",
                "\"positions\"[0] is not an integer below 1");
}

static void test_sequences_when_longer_than_the_context_are_refused(void **state)
{
    char lines[512] = "{\"ids\": [1";
    for (int i = 0; i < 64; i++) /* 65 in all; the context is 64 */
        (void)strcat(lines, ",1");
    (void)strcat(lines, "]}\n");
    refuse_line(lines, "line 1: 65 ids, at most 64");
}

static void test_report_when_no_ids_are_given_names_the_model(void **state)
{
    const struct check_settings settings = {.model = path, .reference = true};
    char *out = NULL;
    assert_int_equal(run(&settings, NULL, &out, NULL), 0);
    assert_non_null(strstr(out, "architecture: llama\n"));
    assert_non_null(strstr(out, "heads: 4 query, 2 KV, 4 values each\n"));
    assert_non_null(strstr(out, "backend: ref\n"));
    free(out);
}

/* Of 5 layers 4 slide. A layer of a block is 2 x 2 heads x 16 tokens x 4 floats: 1024 bytes. */
static void test_report_when_layers_slide_counts_blocks_of_their_own(void **state)
{
    struct worker_settings start = {
        .kv_bytes = 1 << 20, .sequences_max = 16, .step_tokens_max = 16};
    const struct check_settings settings = {
        .model = SOURCE_DIR "/tests/golden/tiny/cohere2", .reference = true, .start = &start};
    const struct pool_request request = {1 << 20, 1024, 0, 512, 16, 4096, 21, 16};
    const struct pool_plan plan = pool_plan_make(&request);
    char *out = NULL, line[128];
    assert_int_equal(run(&settings, NULL, &out, NULL), 0);
    (void)snprintf(line, sizeof(line), "kv_pool: %u blocks, %u tokens in %u bytes\n", plan.blocks,
                   plan.blocks * 16, plan.blocks * 1024 + plan.window_blocks * 4096);
    assert_non_null(strstr(out, line));
    assert_true(plan.blocks > 2 * (1u << 20) / 5120); /* of all layers alike there were fewer */
    (void)snprintf(line, sizeof(line), "kv_window: 21 tokens of 4 layers, %u blocks of 4096 bytes",
                   plan.window_blocks);
    assert_non_null(strstr(out, line));
    assert_non_null(strstr(out, "max_model_len: 512, "));
    free(out);
    start.whole_windows = true;
    assert_int_equal(run(&settings, NULL, &out, NULL), 0);
    assert_non_null(strstr(out, "kv_pool: 204 blocks, 3264 tokens in 1044480 bytes\n"));
    assert_null(strstr(out, "kv_window"));
    free(out);
}

/* Blocks of 2 layers: 2 x 2 x 2 heads x 16 tokens x 4 floats, 2048 bytes. */
static void test_report_when_a_worker_would_not_start_fails_with_its_sentence(void **state)
{
    struct worker_settings start = {
        .kv_bytes = 4 * 2048 - 1, .sequences_max = 16, .step_tokens_max = 16};
    struct check_settings settings = {.model = path, .reference = true, .start = &start};
    struct errmsg err = {""};
    char *out = NULL;
    assert_int_equal(run(&settings, NULL, &out, &err), -ENOMEM);
    assert_string_equal(err.text,
                        "No available memory for the cache blocks: --kv-cache-memory of 8191 bytes "
                        "holds 3 blocks of 2048 bytes, at least 4 are needed: give it 8192 bytes");
    assert_non_null(strstr(out, "kv_pool: none\n"));
    assert_non_null(strstr(out, "after_token_0: ")); /* all else is told */
    free(out);
    start.kv_bytes = 1 << 20;
    settings.memory_bytes = 100000;
    assert_int_equal(run(&settings, NULL, &out, &err), -ENOMEM);
    assert_non_null(strstr(err.text, "Too large KV cache: "));
    free(out);
    settings.memory_bytes = 0;
    start.context_tokens = 65;
    assert_int_equal(run(&settings, NULL, &out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--max-model-len: max_model_len (65)"));
    free(out);
    assert_int_equal(run(&settings, "{\"ids\": [1]}\n", &out, &err), 0); /* no report */
    free(out);
    start.context_tokens = 0;
    start.disk_tier_path = (char *)(uintptr_t) "/nonexistent"; /* not looked at */
    start.disk_tier_bytes = 1 << 20;
    start.disk_buffer_bytes = 2048;
    assert_int_equal(run(&settings, NULL, &out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--disk-tier-buffer: a block of this model has 2048 bytes"));
    free(out);
    start.disk_tier_path = NULL;
    assert_int_equal(run(&settings, NULL, &out, &err), 0);
    free(out);
}

static uint64_t plan_number(const char *report, const char *key)
{
    const char *at = strstr(report, "\nplan: ");
    at = at == NULL ? NULL : strstr(at, key);
    if (at == NULL)
        fail_msg("no '%s' in the plan of\n%s", key, report);
    return strtoull(at + strlen(key), NULL, 10);
}

/* Two ranks. Stored floats are what is counted, of a file as of a folder: here all are f32. */
static void test_plan_counts_weights_logits_and_adapters_of_all_ranks(void **state)
{
    struct worker_settings start = {
        .kv_bytes = 1 << 20, .sequences_max = 16, .step_tokens_max = 16, .host_tier_bytes = 4096};
    struct check_settings settings = {
        .model = path, .reference = true, .ranks = 2, .start = &start};
    const uint64_t embedding = 40 * 16, attention = 2 * 16 * 16 + 2 * 8 * 16, ffn = 3 * 24 * 16;
    const uint64_t stored = 4 * (embedding + 16 + 2 * (2 * 16 + attention + ffn));
    struct errmsg err = {""};
    char *out = NULL;
    (void)state;
    assert_int_equal(run(&settings, NULL, &out, &err), 0);
    uint64_t weights = plan_number(out, " weights_bytes=");
    assert_true(weights == stored || weights == stored + 4 * embedding); /* a head of its own */
    const uint64_t logits =
        (16 + 64) * 40 * 4 + sampler_bytes(40); /* one: the reference's thread */
    assert_int_equal(plan_number(out, " logits_bytes="), logits);
    assert_int_equal(plan_number(out, " adapter_bytes="), 0);
    assert_int_equal(plan_number(out, " tier_bytes="), 2 * 4096);
    uint64_t group = plan_number(out, " group_bytes=");
    assert_int_equal(group, plan_number(out, " kv_bytes=") + 2 * 4096 + weights + logits);
    free(out);
    start.lora = true;
    start.loras_max = 3;
    start.lora_rank_max = 8;
    assert_int_equal(run(&settings, NULL, &out, &err), 0);
    uint64_t adapters = plan_number(out, " adapter_bytes=");
    assert_true(adapters > 2u * 3 * 8 * (16 + 24) * 4);
    assert_int_equal(plan_number(out, " group_bytes="), group + adapters);
    free(out);
    settings.memory_bytes = group + adapters - 1;
    assert_int_equal(run(&settings, NULL, &out, &err), -ENOMEM);
    free(out);
    start.lora = false;
    start.host_tier_bytes = 0;
    settings = (struct check_settings){
        .model = SOURCE_DIR "/tests/golden/tiny/cohere2", .reference = true, .start = &start};
    assert_int_equal(run(&settings, NULL, &out, &err), 0);
    assert_int_equal(plan_number(out, " weights_bytes="), plan_number(out, "stored_bytes: F32 "));
    free(out);
}

static void test_models_when_broken_are_refused_on_any_rank(void **state)
{
    struct check_settings settings = {.model = broken, .reference = true};
    struct errmsg err = {""};
    char *out = NULL;
    assert_int_equal(run(&settings, NULL, &out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "tensor 'blk.0.ffn_gate.weight' is 20 x 16"));
    free(out);
    settings.ranks = 3; /* nobody is left waiting */
    assert_true(run(&settings, NULL, &out, &err) < 0);
    assert_non_null(strstr(err.text, "blk.0.ffn_gate.weight"));
    free(out);
    settings = (struct check_settings){.model = path, .reference = true, .ranks = 9};
    assert_int_equal(run(&settings, NULL, &out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "tensor parallel size 9"));
    free(out);
    settings = (struct check_settings){.model = "/nonexistent", .reference = true};
    assert_int_equal(run(&settings, NULL, &out, &err), -ENOENT);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_when_answered_have_an_argmax_per_id_and_the_asked_rows),
        cmocka_unit_test(test_answers_when_chunked_are_the_same_text),
        cmocka_unit_test(test_answers_when_split_over_ranks_are_close),
        cmocka_unit_test(test_lines_when_broken_are_refused_by_number),
        cmocka_unit_test(test_sequences_when_longer_than_the_context_are_refused),
        cmocka_unit_test(test_report_when_no_ids_are_given_names_the_model),
        cmocka_unit_test(test_report_when_layers_slide_counts_blocks_of_their_own),
        cmocka_unit_test(test_report_when_a_worker_would_not_start_fails_with_its_sentence),
        cmocka_unit_test(test_plan_counts_weights_logits_and_adapters_of_all_ranks),
        cmocka_unit_test(test_models_when_broken_are_refused_on_any_rank),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
