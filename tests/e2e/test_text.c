/* test_text.c - `refrain text` as a process: lines in, lines out; and its ids and texts against the
 * libraries that the models are trained with (tests/oracle, in an environment made once). */
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define REFRAIN BUILD_DIR "/refrain"
#define ORACLE SOURCE_DIR "/tests/oracle/"
#define VENV BUILD_DIR "/oracle-venv"
#define PYTHON VENV "/bin/python"
#define INSTALL_DEADLINE_MS 300000u
#define ORACLE_DEADLINE_MS 500000u
#define DEADLINE_MS 30000

/* "ab" is a token, "</s>" a control token; every other text falls apart into a and b. */
#define TOKENIZER                                                                                \
    "{\"added_tokens\":[{\"id\":3,\"content\":\"</s>\",\"special\":true,\"normalized\":false}]," \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"byte_fallback\":true,\"vocab\":{\"a\":0,"  \
    "\"b\":1,\"ab\":2,\"<0xC3>\":4,\"<0xA9>\":5},\"merges\":[\"a b\"]},"                         \
    "\"decoder\":{\"type\":\"ByteFallback\"}}"

static char folder[64], tokenizer[96], template[96];

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/refrain-text-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer.json", folder);
    (void)snprintf(template, sizeof(template), "%s/chat.jinja", folder);
    write_file(tokenizer, TOKENIZER);
    write_file(template, "{{ strftime_now('%Y-%m-%d %H:%M') }} {{ messages[0].content }}"
                         "{% if bad %}\n{{ raise_exception('no ' + bad) }}{% endif %}");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(tokenizer);
    (void)unlink(template);
    (void)rmdir(folder);
    return 0;
}

/* `input` (a format of printf(1)) through the verb; the whole output. */
static void check(const char *verb, const char *flag, const char *path, const char *input,
                  const char *expected)
{
    struct program program;
    char *command = mem_printf("printf '%s' | %s text %s %s %s", input, REFRAIN, verb, flag, path);
    program_run(&program, DEADLINE_MS,
                (const char *const[]){"/usr/bin/env", "sh", "-c", command, NULL});
    mem_free(command);
    assert_int_equal(program.code, 0);
    assert_string_equal(program.out, expected);
    program_done(&program);
}

static void test_a_line_in_is_a_line_out_in_order(void **state)
{
    (void)state;
    check("tokenize", "--tokenizer", tokenizer,
          "{\"text\":\"abab\"}\\n"
          "{\"text\":\"a</s>b\"}\\n"
          "{\"text\":\"a</s>b\",\"parse_special\":false}\\n"
          "{\"text\":\"\"}\\n"
          "not json\\n"
          "[1]\\n"
          "\\n"
          "{\"text\":7}\\n"
          "{\"text\":\"a\",\"add_special\":1}\\n"
          "{\"text\":\"b\"}", /* no newline at the end */
          "{\"ids\":[2,2]}\n"
          "{\"ids\":[0,3,1]}\n"
          "{\"ids\":[0,1]}\n"
          "{\"ids\":[]}\n"
          "{\"error\":\"JSON: invalid token at byte 3, line 1\"}\n"
          "{\"error\":\"a line is not a JSON object\"}\n"
          "{\"error\":\"JSON: unexpected token near end of file at byte 0, line 1\"}\n"
          "{\"error\":\"'text' must be a string\"}\n"
          "{\"error\":\"'add_special' must be true or false\"}\n"
          "{\"ids\":[1]}\n");
}

static void test_ids_become_text_and_bytes(void **state)
{
    (void)state;
    check("detokenize", "--tokenizer", tokenizer,
          "{\"ids\":[2,3,1]}\\n"
          "{\"ids\":[2,3,1],\"skip_special_tokens\":true}\\n"
          "{\"ids\":[4,5]}\\n"
          "{\"ids\":[0,4]}\\n"
          "{\"ids\":[0,6]}\\n"
          "{\"ids\":[0,-1]}\\n"
          "{\"ids\":\"0\"}\\n",
          "{\"text\":\"ab</s>b\",\"bytes_hex\":\"61623c2f733e62\"}\n"
          "{\"text\":\"abb\",\"bytes_hex\":\"616262\"}\n"
          "{\"text\":\"\xc3\xa9\",\"bytes_hex\":\"c3a9\"}\n"
          "{\"text\":\"a\xef\xbf\xbd\",\"bytes_hex\":\"61c3\"}\n"
          "{\"error\":\"ids[1] is no token: the vocabulary has 6\"}\n"
          "{\"error\":\"ids[1] is no token: the vocabulary has 6\"}\n"
          "{\"error\":\"'ids' must be a list of token ids\"}\n");
}

static void test_messages_become_text(void **state)
{
    (void)state;
    check("render", "--template", template,
          "{\"messages\":[{\"content\":\"hi\"}],\"now\":\"2024-12-19T08:30:00\"}\\n"
          "{\"messages\":[{\"content\":\"hi\"}],\"now\":\"2024-12-19T08:30:00+02:00\"}\\n"
          "{\"messages\":[{\"content\":\"hi\"}],\"now\":\"2024-12-19T08:30:00Z\",\"bad\":\"x\"}\\n"
          "{\"messages\":[{\"content\":\"hi\"}],\"now\":\"today\"}\\n"
          "{\"messages\":7}\\n",
          "{\"text\":\"2024-12-19 08:30 hi\"}\n"
          "{\"text\":\"2024-12-19 06:30 hi\"}\n"
          "{\"error\":\"no x\",\"line\":2}\n"
          "{\"error\":\"'now' must be an ISO 8601 time\"}\n"
          "{\"error\":\"'messages' must be a list\"}\n");
}

static void test_wrong_usage_is_said(void **state)
{
    static const struct {
        const char *argv[7];
        int code;
        const char *sentence;
    } cases[] = {
        {{REFRAIN, "text", NULL}, 2, "usage: refrain text"},
        {{REFRAIN, "text", "parse", NULL}, 2, "usage: refrain text"},
        {{REFRAIN, "text", "tokenize", NULL}, 1, "--tokenizer PATH is missing"},
        {{REFRAIN, "text", "render", NULL}, 1, "--template PATH is missing"},
        {{REFRAIN, "text", "render", "--tokenizer", "x", NULL}, 2, "tokenizer"},
        {{REFRAIN, "text", "tokenize", "--tokenizer", "/nowhere", NULL}, 1, "/nowhere"},
    };
    struct program program;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        program_run(&program, DEADLINE_MS, cases[i].argv);
        assert_int_equal(program.code, cases[i].code);
        assert_non_null(strstr(program.err, cases[i].sentence));
        program_done(&program);
    }
    program_run(&program, DEADLINE_MS, (const char *const[]){REFRAIN, "text", "--help", NULL});
    assert_int_equal(program.code, 0);
    assert_non_null(strstr(program.out, "detokenize"));
    program_done(&program);
}

/* --- a pipe that stays open ------------------------------------------------------------------ */

/* One line from fd within the deadline. */
static void read_line(int fd, char *ret_line, size_t line_max)
{
    size_t bytes = 0;
    while (bytes + 1 < line_max && (bytes == 0 || ret_line[bytes - 1] != '\n')) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
        assert_int_equal(read(fd, ret_line + bytes, 1), 1);
        bytes++;
    }
    ret_line[bytes] = '\0';
}

static void test_answers_come_while_the_pipe_is_open(void **state)
{
    int in[2], out[2], status = 0;
    char line[128];
    (void)state;
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)close(in[1]);
        (void)close(out[0]);
        (void)execl(REFRAIN, "refrain", "text", "tokenize", "--tokenizer", tokenizer, (char *)NULL);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(in[1], "{\"text\":", 8), 8); /* a line in two writes */
        assert_int_equal(write(in[1], "\"ab\"}\n", 6), 6);
        read_line(out[0], line, sizeof(line));
        assert_string_equal(line, "{\"ids\":[2]}\n");
    }
    (void)close(in[1]);
    (void)close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_a_line_without_end_is_refused_and_the_next_one_answered(void **state)
{
    struct program program;
    char *command = mem_printf("{ head -c 70000000 /dev/zero | tr '\\0' x; printf "
                               "'\\n{\"text\":\"a\"}\\n'; } | %s text tokenize --tokenizer %s",
                               REFRAIN, tokenizer);
    (void)state;
    program_run(&program, DEADLINE_MS,
                (const char *const[]){"/usr/bin/env", "sh", "-c", command, NULL});
    mem_free(command);
    assert_int_equal(program.code, 0);
    assert_string_equal(program.out, "{\"error\":\"a line of more than 67108864 bytes\"}\n"
                                     "{\"ids\":[0]}\n");
    program_done(&program);
}

/* --- the libraries --------------------------------------------------------------------------- */

static int run_to_end(struct program *program, uint32_t deadline_ms, const char *const *argv)
{
    program_run(program, deadline_ms, argv);
    (void)fprintf(stdout, "%s%s", program->out, program->err);
    return program->code;
}

static void test_templates_of_the_cases_render(void **state)
{
    struct program program;
    (void)state;
    if (!file_exists(SHARED_DIR "/cases/templates"))
        skip();
    int code =
        run_to_end(&program, ORACLE_DEADLINE_MS,
                   (const char *const[]){"/usr/bin/env", "python3", ORACLE "check_templates.py",
                                         REFRAIN, SHARED_DIR, NULL});
    assert_int_equal(code, 0);
    assert_non_null(strstr(program.out, " passed, 0 failed"));
    program_done(&program);
}

static bool install_oracles(void)
{
    static const char *const mark = VENV "/installed";
    const char *const make[] = {"/usr/bin/env", "python3", "-m", "venv", "--clear", VENV, NULL};
    const char *const fill[] = {PYTHON,
                                "-m",
                                "pip",
                                "install",
                                "--quiet",
                                "--no-deps",
                                "--disable-pip-version-check",
                                "-r",
                                ORACLE "requirements.txt",
                                NULL};
    struct program program;
    if (file_exists(mark))
        return true;
    int code = run_to_end(&program, INSTALL_DEADLINE_MS, make);
    program_done(&program);
    if (code == 0) {
        code = run_to_end(&program, INSTALL_DEADLINE_MS, fill);
        program_done(&program);
    }
    if (code == 0)
        write_file(mark, "");
    return code == 0;
}

static void test_ids_are_those_of_the_models_own_libraries(void **state)
{
    struct program program;
    (void)state;
    if (!file_exists(SHARED_DIR "/cases/tokenizer") || !install_oracles()) {
        print_message("skipped: the packages of tests/oracle/requirements.txt cannot be installed "
                      "into " VENV ", or shared/cases is absent\n");
        skip();
    }
    int code = run_to_end(&program, ORACLE_DEADLINE_MS,
                          (const char *const[]){PYTHON, ORACLE "check_tokenizers.py", REFRAIN,
                                                SHARED_DIR, VENV "/work", "--texts", "900", NULL});
    assert_int_equal(code, 0);
    assert_non_null(strstr(program.out, " passed, 0 failed"));
    program_done(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_in_is_a_line_out_in_order),
        cmocka_unit_test(test_ids_become_text_and_bytes),
        cmocka_unit_test(test_messages_become_text),
        cmocka_unit_test(test_wrong_usage_is_said),
        cmocka_unit_test(test_answers_come_while_the_pipe_is_open),
        cmocka_unit_test(test_a_line_without_end_is_refused_and_the_next_one_answered),
        cmocka_unit_test(test_templates_of_the_cases_render),
        cmocka_unit_test(test_ids_are_those_of_the_models_own_libraries),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    e2e_begin();
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
