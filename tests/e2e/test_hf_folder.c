/* test_hf_folder.c - a Hugging Face folder as the model: served from end to end, with the defaults
 * of its generation_config.json; and `refrain-worker --check` on a folder and on a GGUF. */
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define TINY SHARED_DIR "/golden/tiny/"
#define NAME "Tiny-Llama"
#define VOCAB 320

static struct cluster cluster;
static char parent[] = "/tmp/refrain-hf-XXXXXX", folder[64], ids_path[64];
static json_t *golden;

static void link_in(const char *from, const char *name)
{
    char target[PATH_MAX], path[PATH_MAX];
    (void)snprintf(target, sizeof(target), TINY "%s/%s", from, name);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(symlink(target, path), 0);
}

static int setup(void **state)
{
    char path[PATH_MAX];
    (void)state;
    link_in("llama", "config.json");
    link_in("llama", "model.safetensors");
    link_in("tokenizer", "tokenizer.json");
    link_in("tokenizer", "tokenizer_config.json");
    (void)snprintf(path, sizeof(path), "%s/generation_config.json", folder);
    file_write(path, "{\"temperature\": 0.0, \"max_new_tokens\": 9, \"eos_token_id\": [318, 319]}");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    folder_remove(parent);
    json_decref(golden);
    return 0;
}

/* ---- serving ---- */

static json_t *post(const char *path, json_t *body)
{
    return cluster_post(&cluster, path, body, 200);
}

static const json_t *prompt_of(size_t i)
{
    return json_array_get(json_object_get(golden, "prompts"), i);
}

/* No temperature is sent: that of the folder is 0. */
static json_t *complete(size_t prompt, int tokens_max)
{
    return post(COMPLETION_PATH, json_pack("{s:s, s:O, s:i, s:b}", "model", NAME, "prompt",
                                           json_object_get(prompt_of(prompt), "ids"), "max_tokens",
                                           tokens_max, "ignore_eos", 1));
}

static const json_t *choice(const json_t *answer)
{
    return json_array_get(json_object_get(answer, "choices"), 0);
}

static int completion_tokens(const json_t *answer)
{
    return (int)json_integer_value(
        json_object_get(json_object_get(answer, "usage"), "completion_tokens"));
}

/* The first `count` greedy ids of the golden, as text. */
static json_t *golden_text(size_t prompt, size_t count)
{
    const json_t *greedy = json_object_get(prompt_of(prompt), "greedy");
    json_t *ids = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append(ids, json_array_get(greedy, i));
    json_t *answer = post("/detokenize", json_pack("{s:s, s:o}", "model", NAME, "tokens", ids));
    json_t *text = json_incref(json_object_get(answer, "prompt"));
    json_decref(answer);
    return text;
}

static void test_a_folder_is_served_with_its_own_defaults(void **state)
{
    struct http_answer models;
    (void)state;
    cluster_start(&cluster, folder, (const char *const[]){"--groups", "1", "--reference", NULL});
    http_get(cluster.url, "/v1/models", &models);
    const json_t *card = json_array_get(json_object_get(models.json, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(card, "id")), NAME);
    assert_int_equal(json_integer_value(json_object_get(card, "max_model_len")), 512);
    http_answer_done(&models);
    for (size_t i = 0; i < 3; i++) { /* greedy, and the golden's */
        json_t *answer = complete(i, 8), *text = golden_text(i, 8);
        assert_string_equal(json_string_value(json_object_get(choice(answer), "text")),
                            json_string_value(text));
        json_decref(answer);
        json_decref(text);
    }
    json_t *answer = complete(0, 100); /* max_new_tokens bounds every answer */
    assert_int_equal(completion_tokens(answer), 9);
    assert_string_equal(json_string_value(json_object_get(choice(answer), "finish_reason")),
                        "length");
    json_decref(answer);
    json_t *chat = post(CHAT_PATH, json_pack("{s:s, s:[{s:s, s:s}]}", "model", NAME, "messages",
                                             "role", "user", "content", "hello"));
    const json_t *message = json_object_get(choice(chat), "message");
    assert_string_equal(json_string_value(json_object_get(message, "role")), "assistant");
    assert_true(completion_tokens(chat) >= 1 && completion_tokens(chat) <= 9);
    json_decref(chat);
    cluster_stop(&cluster);
}

static void test_the_operator_overrides_the_defaults(void **state)
{
    (void)state;
    cluster_start(&cluster, folder,
                  (const char *const[]){"--groups", "1", "--reference", "--generation-config",
                                        "vllm", "--override-generation-config",
                                        "{\"top_k\": 1, \"max_new_tokens\": 20}", NULL});
    json_t *answer = complete(0, 8), *text = golden_text(0, 8); /* top_k 1 is greedy too */
    assert_string_equal(json_string_value(json_object_get(choice(answer), "text")),
                        json_string_value(text));
    json_decref(answer);
    json_decref(text);
    answer = complete(0, 100);
    assert_int_equal(completion_tokens(answer), 20);
    json_decref(answer);
    cluster_stop(&cluster);
}

/* ---- --check ---- */

static void check(struct program *ret_program, const char *model, const char *const *flags)
{
    const char *argv[24] = {"refrain-worker", "--check", model};
    for (size_t i = 0; flags[i] != NULL; i++)
        argv[3 + i] = flags[i];
    program_run(ret_program, 60000, argv);
    if (ret_program->code != 0)
        print_message("%s: %s\n", model, ret_program->err);
    assert_int_equal(ret_program->code, 0);
}

static void test_check_says_what_a_model_is(void **state)
{
    static const char *const words[] = {"architecture: llama\n",
                                        "layers: 2\n",
                                        "vocabulary: 320\n",
                                        "context_tokens: 512\n",
                                        "ranks: 2\n",
                                        "weights_bytes: ",
                                        "kv_pool: ",
                                        "after_token_0: "};
    const char *models[] = {folder, TINY "llama-gguf-q8_0/model.gguf"};
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        struct program program;
        check(&program, models[m], (const char *const[]){"--tensor-parallel-size", "2", NULL});
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            if (strstr(program.out, words[i]) == NULL)
                fail_msg("%s: no '%s' in\n%s", models[m], words[i], program.out);
        }
        assert_non_null(strstr(program.out, m == 0 ? "stored_bytes: F32 " : " Q8_0 "));
        program_done(&program);
    }
}

/* From `word` to the end of its line; a text without it: NULL. mem_free() it. */
static char *rest_of_line(const char *text, const char *word)
{
    const char *at = text == NULL ? NULL : strstr(text, word);
    return at == NULL
               ? NULL
               : mem_printf("%.*s", (int)strcspn(at + strlen(word), "\n"), at + strlen(word));
}

struct taken {
    const char *folder; /* of the worker's output */
    char *plan;
};

static bool has_started(void *user)
{
    struct taken *taken = user;
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/err", taken->folder);
    char *text = file_read(path, NULL);
    if (text != NULL && strstr(text, "event=ready") != NULL)
        taken->plan = rest_of_line(text, "event=plan ");
    mem_free(text);
    return taken->plan != NULL;
}

static void test_check_prints_the_plan_of_a_start(void **state)
{
    static const char *const flags[][12] = {
        {"--reference", "--max-num-seqs", "7"},
        {"--tensor-parallel-size", "2", "--kv-cache-memory", "1MiB", "--max-num-batched-tokens",
         "300", "--enable-lora", "--max-loras", "3", "--host-tier-memory", "64KiB"},
    };
    const char *models[] = {folder, TINY "llama-gguf-q8_0/model.gguf"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char run_dir[128];
        const char *argv[24] = {"refrain-worker", "--run-dir", run_dir, "--model", models[i / 2]};
        struct program checked, started;
        (void)snprintf(run_dir, sizeof(run_dir), "%s/run-%zu", parent, i);
        for (size_t k = 0; flags[i % 2][k] != NULL; k++)
            argv[5 + k] = flags[i % 2][k];
        check(&checked, models[i / 2], flags[i % 2]);
        char *plan = rest_of_line(checked.out, "\nplan: ");
        program_start(&started, argv);
        struct taken taken = {started.folder, NULL};
        assert_true(poll_until(has_started, &taken, 30000));
        assert_int_equal(kill(started.pid, SIGTERM), 0); /* serves already, and no router asks */
        program_wait(&started, 30000);
        assert_int_equal(started.code, 0);
        assert_non_null(plan);
        assert_string_equal(taken.plan, plan);
        mem_free(plan);
        mem_free(taken.plan);
        program_done(&started);
        program_done(&checked);
    }
}

/* The rows of a prompt's full_logit_positions against logits.f32. */
static void compare_rows(const json_t *answer, const json_t *prompt, const char *name)
{
    char path[PATH_MAX];
    size_t bytes = 0;
    (void)snprintf(path, sizeof(path), TINY "%s/logits.f32", name);
    char *data = file_read(path, &bytes);
    size_t first = (size_t)json_integer_value(json_object_get(prompt, "first_row"));
    const json_t *rows = json_object_get(answer, "logits");
    assert_int_equal(json_array_size(rows), 5);
    for (size_t p = 0; p < 5; p++) {
        const json_t *row = json_array_get(rows, p);
        assert_int_equal(json_array_size(row), VOCAB);
        for (size_t k = 0; k < VOCAB; k++) {
            float expected = 0;
            memcpy(&expected, data + ((first + p) * VOCAB + k) * sizeof(float), sizeof(float));
            double value = json_number_value(json_array_get(row, k));
            assert_true(fabs(value - (double)expected) <= 2e-4);
        }
    }
    mem_free(data);
}

static void test_check_answers_ids_with_the_golden_logits(void **state)
{
    static const char *const names[] = {"llama", "llama-gguf-f32"};
    const char *models[] = {folder, TINY "llama-gguf-f32/model.gguf"};
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        char path[128];
        struct program program;
        (void)snprintf(path, sizeof(path), "golden/tiny/%s/golden.json", names[m]);
        json_t *file = e2e_json(path);
        const json_t *prompt = json_array_get(json_object_get(file, "prompts"), 1);
        json_t *line = json_pack("{s:O, s:O}", "ids", json_object_get(prompt, "ids"), "positions",
                                 json_object_get(prompt, "full_logit_positions"));
        char *text = json_dumps(line, JSON_COMPACT);
        file_write(ids_path, text);
        free(text);
        check(&program, models[m],
              (const char *const[]){"--ids", ids_path, "--chunk", "5", "--reference",
                                    "--tensor-parallel-size", "2", NULL});
        json_t *answer = json_loads(program.out, 0, NULL);
        assert_non_null(answer);
        assert_true(
            json_equal(json_object_get(answer, "argmax"), json_object_get(prompt, "argmax")));
        compare_rows(answer, prompt, names[m]);
        json_decref(answer);
        json_decref(line);
        json_decref(file);
        program_done(&program);
    }
}

static void test_check_refuses_with_a_sentence_and_a_code(void **state)
{
    struct program program;
    char path[128], config[256];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/bert", parent);
    (void)snprintf(config, sizeof(config), "%s/config.json", path);
    assert_int_equal(mkdir(path, 0700), 0);
    file_write(config, "{\"architectures\": [\"BertForMaskedLM\"]}");
    (void)snprintf(config, sizeof(config), "%s/model.safetensors", path);
    assert_int_equal(symlink(TINY "llama/model.safetensors", config), 0);
    program_run(&program, 60000, (const char *const[]){"refrain-worker", "--check", path, NULL});
    assert_int_equal(program.code, 1);
    assert_non_null(strstr(program.err, "'BertForMaskedLM' is an encoder"));
    assert_non_null(strstr(program.err, "supported (...ForCausalLM): Llama, "));
    program_done(&program);
    program_run(&program, 60000,
                (const char *const[]){"refrain-worker", "--check", folder, "--kv-cache-memory",
                                      "1KiB", NULL});
    assert_int_equal(program.code, 1); /* loads, and would not start */
    assert_non_null(strstr(program.out, "kv_pool: none\n"));
    assert_non_null(strstr(program.err, "--kv-cache-memory of 1024 bytes holds 0 blocks of "));
    program_done(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder_is_served_with_its_own_defaults),
        cmocka_unit_test(test_the_operator_overrides_the_defaults),
        cmocka_unit_test(test_check_says_what_a_model_is),
        cmocka_unit_test(test_check_prints_the_plan_of_a_start),
        cmocka_unit_test(test_check_answers_ids_with_the_golden_logits),
        cmocka_unit_test(test_check_refuses_with_a_sentence_and_a_code),
    };
    e2e_begin();
    golden = e2e_json("golden/tiny/llama/golden.json");
    if (golden == NULL)
        e2e_skip("%s/golden is absent", SHARED_DIR);
    assert_non_null(mkdtemp(parent));
    (void)snprintf(folder, sizeof(folder), "%s/" NAME, parent);
    (void)snprintf(ids_path, sizeof(ids_path), "%s/ids.jsonl", parent);
    assert_int_equal(mkdir(folder, 0700), 0);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
