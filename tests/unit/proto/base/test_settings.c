/* settings*.c: flags, cluster.conf, their order, every refusal's sentence, and the three texts. */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "proto/base/settings.h"

struct demo {
    char *model;
    char *api_key;
    uint32_t sequences_max;
    uint32_t group;
    uint64_t tokens_max;
    double watermark;
    bool prefix_caching;
    uint64_t kv_bytes;
    int policy;
};

#define SETTING_STRUCT struct demo
static const char *const policy_names[] = {"prefix", "round_robin", NULL};
static const struct setting table[] = {
    SETTING_TEXT("model", model, NULL, "Model file (GGUF) or directory."),
    SETTING_TEXT("api-key", api_key, NULL, "Bearer key."),
    SETTING_U32("max-num-seqs", sequences_max, "256", 1, 65536, "Sequences per step."),
    SETTING_U32("group", group, "0", 0, 1023, "Number of the group."),
    SETTING_U64("max-tokens", tokens_max, "4294967296", 0, 0, "Tokens."),
    SETTING_DOUBLE("watermark", watermark, "0.01", 0, 1,
                   "Share of blocks kept free, so that running sequences can grow for a while."),
    SETTING_BOOL("enable-prefix-caching", prefix_caching, "true", "Reuse KV of known prefixes."),
    SETTING_BYTES("kv-cache-memory", kv_bytes, "1GiB", "Memory of the KV block pool."),
    SETTING_ENUM("policy", policy, "prefix", policy_names, "How a worker is chosen."),
    SETTING_END};
static const char *const foreign[] = {"--max-paddings", "write --max-num-batched-tokens instead.",
                                      NULL};
static const struct settings_spec spec = {.program = "refrain-worker",
                                          .summary = "Holds a model and answers token ids.",
                                          .section = "worker",
                                          .table = table,
                                          .foreign = foreign};
static const struct settings_spec router_spec = {
    .program = "refrain-router", .summary = "Routes.", .section = "router", .table = table};

static struct demo demo;
static struct errmsg err;
static char conf_path[64];

static int set_up(void **state)
{
    (void)state;
    memset(&demo, 0xee, sizeof(demo)); /* settings_parse must not rely on zeros */
    err.text[0] = '\0';
    conf_path[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    settings_done(&spec, &demo); /* after a refusal too: it must have left no text */
    if (conf_path[0] != '\0')
        (void)unlink(conf_path);
    return demo.model == NULL && demo.api_key == NULL ? 0 : -1;
}

/* Parse the words of `flags` (split at spaces), with --config when a file was written. */
static int parse_as(const struct settings_spec *whose, const char *flags)
{
    char *copy = mem_strdup(flags);
    char *argv[32] = {(char *)"program"};
    int argc = 1;
    int r;

    if (conf_path[0] != '\0') {
        argv[argc++] = (char *)"--config";
        argv[argc++] = conf_path;
    }
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    r = settings_parse(whose, &demo, argc, argv, &err);
    mem_free(copy);
    return r;
}

static int parse(const char *flags)
{
    return parse_as(&spec, flags);
}

static void write_conf_bytes(const char *text, size_t bytes)
{
    FILE *file;

    (void)snprintf(conf_path, sizeof(conf_path), "/tmp/refrain-settings-%d.conf", getpid());
    file = fopen(conf_path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void write_conf(const char *text)
{
    write_conf_bytes(text, strlen(text));
}

static void refuse(const char *flags, const char *sentence)
{
    assert_int_equal(parse(flags), -EINVAL);
    assert_string_equal(err.text, sentence);
    assert_null(demo.model);
    assert_null(demo.api_key);
}

/* The sentence must be "<conf_path>:<rest>". */
static void refuse_conf(const char *text, const char *rest)
{
    size_t bytes;

    write_conf(text);
    assert_int_equal(parse("--model m"), -EINVAL);
    bytes = strlen(conf_path);
    assert_memory_equal(err.text, conf_path, bytes);
    assert_int_equal(err.text[bytes], ':');
    assert_string_equal(err.text + bytes + 1, rest);
}

static void test_parse_when_nothing_is_given_takes_the_defaults(void **state)
{
    (void)state;
    assert_int_equal(parse(""), SETTINGS_RUN);
    assert_null(demo.model);
    assert_int_equal(demo.sequences_max, 256);
    assert_int_equal(demo.group, 0);
    assert_true(demo.tokens_max == 4294967296u);
    assert_true(demo.watermark == 0.01);
    assert_true(demo.prefix_caching);
    assert_true(demo.kv_bytes == (uint64_t)1 << 30);
    assert_int_equal(demo.policy, 0);
}

static void test_parse_when_flags_are_given_in_each_spelling_takes_them(void **state)
{
    (void)state;
    assert_int_equal(parse("--model a.gguf --max_num_seqs=7 --max-tokens 18446744073709551615 "
                           "--no-enable-prefix-caching --watermark=5e-2 --kv_cache-memory 512MiB "
                           "--policy round-robin --model=b=c.gguf"),
                     SETTINGS_RUN);
    assert_string_equal(demo.model, "b=c.gguf"); /* the last wins */
    assert_int_equal(demo.sequences_max, 7);
    assert_true(demo.tokens_max == UINT64_MAX);
    assert_false(demo.prefix_caching);
    assert_true(demo.watermark == 0.05);
    assert_true(demo.kv_bytes == (uint64_t)512 << 20);
    assert_int_equal(demo.policy, 1);
}

static void test_parse_when_a_bool_is_spelled_out_takes_its_word(void **state)
{
    static const struct {
        const char *flag;
        bool value;
    } cases[] = {
        {"--enable-prefix-caching", true},     {"--enable-prefix-caching=false", false},
        {"--enable-prefix-caching=on", true},  {"--enable-prefix-caching=OFF", false},
        {"--enable_prefix_caching=1", true},   {"--enable-prefix-caching=no", false},
        {"--no_enable_prefix_caching", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].flag), SETTINGS_RUN);
        assert_int_equal(demo.prefix_caching, cases[i].value);
    }
}

static void test_parse_when_a_flag_is_wrong_says_how(void **state)
{
    (void)state;
    refuse("--model m --max-num-seqs 0", "--max-num-seqs: 0 is not between 1 and 65536");
    refuse("--max-num-seqs 65537", "--max-num-seqs: 65537 is not between 1 and 65536");
    refuse("--max-num-seqs 4294967297", "--max-num-seqs: 4294967297 is too large");
    refuse("--max-num-seqs -1", "--max-num-seqs: '-1' is not a whole number");
    refuse("--max-num-seqs 10k", "--max-num-seqs: '10k' is not a whole number");
    refuse("--max-tokens=18446744073709551616", "--max-tokens: 18446744073709551616 is too large");
    refuse("--watermark x", "--watermark: 'x' is not a number");
    refuse("--watermark 1.5", "--watermark: 1.5 is not between 0 and 1");
    refuse("--watermark nan", "--watermark: 'nan' is not a number");
    refuse("--policy fast", "--policy: 'fast' is none of: prefix, round_robin");
    refuse("--kv-cache-memory lots",
           "--kv-cache-memory: 'lots' is not a size such as 512MiB or 1.5GiB");
    refuse("--enable-prefix-caching=maybe",
           "--enable-prefix-caching: 'maybe' is neither true nor false");
    refuse("--enable-prefix-caching false", "unexpected argument 'false'; a flag is --name value");
    refuse("--no-enable-prefix-caching=true", "--no-enable-prefix-caching takes no value");
    refuse("--model", "--model needs a value");
    refuse("--model --policy prefix", "--model needs a value");
    refuse("--config", "--config needs a value");
    refuse("--modell x", "unknown flag '--modell'; refrain-worker --help lists all");
    refuse("--no-model", "unknown flag '--no-model'; refrain-worker --help lists all");
    refuse("-m x", "unexpected argument '-m'; a flag is --name value");
    refuse("--", "unexpected argument '--'; a flag is --name value");
    refuse("--=x", "unexpected argument '--=x'; a flag is --name value");
    refuse("--max_paddings 4", "--max_paddings: write --max-num-batched-tokens instead.");
    refuse("--help=x", "--help takes no value");
}

static void test_parse_when_the_flag_is_very_long_refuses_it(void **state)
{
    char flag[5000];

    (void)state;
    memset(flag, '-', 2);
    memset(flag + 2, 'a', sizeof(flag) - 3);
    flag[sizeof(flag) - 1] = '\0';
    assert_int_equal(parse(flag), -EINVAL);
    assert_memory_equal(err.text, "unknown flag '--aaaa", 20);
}

static void test_parse_when_a_file_is_given_orders_cluster_section_group_flag(void **state)
{
    (void)state;
    write_conf("; a comment\n"
               "[worker.1]\n"
               "max-num-seqs = 41\n"
               "[worker.2]\n"
               "max-num-seqs = 42\n"
               "watermark = 0.2\n"
               "[worker]\n"
               "max_num_seqs = 30   ; its own comment\n"
               "  policy = round_robin\n" /* indented: still a line of its own */
               "kv-cache-memory = 2GiB\n"
               "[cluster]\n"
               "model = cluster.gguf\n"
               "kv-cache-memory = 3GiB\n"
               "port = 8000\n" /* another program's */
               "max-num-seqs = 20\r\n"
               "[router]\n"
               "anything = goes\n");
    assert_int_equal(parse("--watermark 0.5 --group 2"), SETTINGS_RUN);
    assert_string_equal(demo.model, "cluster.gguf");
    assert_int_equal(demo.sequences_max, 42);
    assert_true(demo.watermark == 0.5);
    assert_true(demo.kv_bytes == (uint64_t)2 << 30);
    assert_int_equal(demo.policy, 1);
    settings_done(&spec, &demo);
    assert_int_equal(parse("--group=1"), SETTINGS_RUN);
    assert_int_equal(demo.sequences_max, 41);
    settings_done(&spec, &demo);
    assert_int_equal(parse("--group 7"), SETTINGS_RUN);
    assert_int_equal(demo.sequences_max, 30);
    settings_done(&spec, &demo);
    assert_int_equal(parse("--max-num-seqs 9 --group 2"), SETTINGS_RUN);
    assert_int_equal(demo.sequences_max, 9);
}

static void test_parse_when_the_file_belongs_to_others_too_skips_their_sections(void **state)
{
    (void)state;
    write_conf("[worker]\nnot-a-router-key = 1\n[worker.3]\nx=1\n[up]\ny = 2\n"
               "[router]\nmax-num-seqs = 5\n");
    assert_int_equal(parse_as(&router_spec, ""), SETTINGS_RUN);
    assert_int_equal(demo.sequences_max, 5);
}

static void test_parse_when_the_file_is_wrong_names_the_line(void **state)
{
    (void)state;
    refuse_conf("[worker]\n\nmax-num-seqs = many\n",
                "3: max-num-seqs: 'many' is not a whole number");
    refuse_conf("[worker]\nmax-num-sequences = 1\n",
                "2: unknown key 'max-num-sequences'; refrain-worker --help lists all");
    refuse_conf("# c\n[cluster]\nmodel = a\ncolour = red\n",
                "4: unknown key 'colour'; refrain-worker --help lists all");
    refuse_conf("[werker]\nmodel = a\n", "2: unknown section [werker]");
    refuse_conf("[worker.01]\nmodel = a\n", "2: unknown section [worker.01]");
    refuse_conf("[worker.x]\nmodel = a\n", "2: unknown section [worker.x]");
    refuse_conf("[worker.5]\nmodle = a\n", /* not our group, our table all the same */
                "2: unknown key 'modle'; refrain-worker --help lists all");
    refuse_conf("[worker.5]\ngroup = 6\n", "2: 'group' cannot be set in [worker.5]");
    refuse_conf("model = a\n", "1: 'model' stands before the first [section]");
    refuse_conf("[worker]\nmodel\n", "2: neither [section] nor key = value");
    refuse_conf("[worker]\nmodel = a\n[worker\n", "3: neither [section] nor key = value");
    refuse_conf("[worker]\nmax-paddings = 3\n",
                "2: max-paddings: write --max-num-batched-tokens instead.");
    refuse_conf("[worker]\nmax-num-seqs = 0", "2: max-num-seqs: 0 is not between 1 and 65536");
    refuse_conf("[worker]\nmax-num-seqs =\n", "2: max-num-seqs: '' is not a whole number");
}

static void test_parse_when_the_file_is_binary_or_endless_refuses(void **state)
{
    char *text = mem_alloc(((size_t)1 << 20) + 1);

    (void)state;
    write_conf_bytes("[worker]\nmo\0del = a\n", 20);
    assert_int_equal(parse(""), -EINVAL);
    assert_string_equal(err.text + strlen(conf_path), ":2: holds a NUL byte");
    memset(text, '\n', ((size_t)1 << 20) + 1);
    write_conf_bytes(text, ((size_t)1 << 20) + 1);
    assert_int_equal(parse(""), -EINVAL);
    assert_non_null(strstr(err.text, "is larger than 1048576 bytes"));
    memset(text, 'x', 5000);
    write_conf_bytes(text, 5000);
    assert_int_equal(parse(""), -EINVAL);
    assert_string_equal(err.text + strlen(conf_path), ":1: longer than 4095 bytes");
    mem_free(text);
}

static void test_parse_when_a_path_is_long_keeps_all_of_it(void **state)
{
    char text[1200] = "[worker]\nmodel = /";

    (void)state;
    memset(text + strlen(text), 'd', 1000); /* inih's own limit would be 200 */
    write_conf(text);
    assert_int_equal(parse(""), SETTINGS_RUN);
    assert_int_equal(strlen(demo.model), 1001);
}

static void test_parse_when_the_file_is_missing_answers_enoent(void **state)
{
    char *argv[] = {(char *)"p", (char *)"--model=m", (char *)"--config=/nonexistent/a.conf", NULL};

    (void)state;
    assert_int_equal(settings_parse(&spec, &demo, 3, argv, &err), -ENOENT);
    assert_string_equal(err.text, "open '/nonexistent/a.conf': No such file or directory");
    argv[2] = (char *)"--config=/";
    assert_int_equal(settings_parse(&spec, &demo, 3, argv, &err), -EINVAL);
    assert_string_equal(err.text, "read '/': Is a directory");
    assert_int_equal(settings_parse(&spec, &demo, 3, argv, NULL), -EINVAL);
}

/* stdout of settings_parse(argument). */
static void parse_printing(const char *argument, char *text, size_t text_max)
{
    FILE *file = tmpfile();
    int before = dup(STDOUT_FILENO);
    size_t bytes;
    int r;

    assert_non_null(file);
    (void)fflush(stdout);
    (void)dup2(fileno(file), STDOUT_FILENO);
    r = parse(argument);
    (void)fflush(stdout);
    (void)dup2(before, STDOUT_FILENO);
    (void)close(before);
    assert_int_equal(r, SETTINGS_EXIT_OK);
    rewind(file);
    bytes = fread(text, 1, text_max - 1, file);
    text[bytes] = '\0';
    (void)fclose(file);
}

static void test_parse_when_asked_for_help_prints_the_table_and_leaves(void **state)
{
    static char text[16384];
    static const char expected[] =
        "usage: refrain-worker [--config FILE] [--NAME VALUE | --NAME=VALUE]...\n"
        "Holds a model and answers token ids.\n"
        "\n"
        "  --model TEXT                    Model file (GGUF) or directory.\n"
        "  --api-key TEXT                  Bearer key.\n"
        "  --max-num-seqs N                Sequences per step. Default 256, 1 to 65536.\n"
        "  --group N                       Number of the group. Default 0, 0 to 1023.\n"
        "  --max-tokens N                  Tokens. Default 4294967296.\n"
        "  --watermark X                   Share of blocks kept free, so that running\n"
        "                                  sequences can grow for a while. Default 0.01,\n"
        "                                  0 to 1.\n"
        "  --[no-]enable-prefix-caching    Reuse KV of known prefixes. Default true.\n"
        "  --kv-cache-memory SIZE          Memory of the KV block pool. Default 1GiB.\n"
        "  --policy prefix|round_robin     How a worker is chosen. Default prefix.\n"
        "  --config FILE                   Read a file first: its [cluster] section, then\n"
        "                                  its [worker] section. Flags win.\n"
        "  --help                          Print this and exit.\n"
        "  --version                       Print the version and exit.\n";

    (void)state;
    parse_printing("--model m --help", text, sizeof(text));
    assert_string_equal(text, expected);
    settings_done(&spec, &demo);
    parse_printing("-h", text, sizeof(text));
    assert_string_equal(text, expected);
    settings_done(&spec, &demo);
    parse_printing("--version", text, sizeof(text));
    assert_string_equal(text, "refrain-worker " REFRAIN_VERSION "\n");
}

static void test_set_when_given_one_name_changes_one_value(void **state)
{
    (void)state;
    assert_int_equal(parse("--model m"), SETTINGS_RUN);
    assert_int_equal(settings_set(&spec, &demo, "max_num_seqs", "12", &err), 0);
    assert_int_equal(settings_set(&spec, &demo, "--model", demo.model, &err), 0); /* its own text */
    assert_string_equal(demo.model, "m");
    assert_int_equal(settings_set(&spec, &demo, "max-num-seqs", "0", &err), -EINVAL);
    assert_string_equal(err.text, "max-num-seqs: 0 is not between 1 and 65536");
    assert_int_equal(demo.sequences_max, 12);
    assert_int_equal(settings_set(&spec, &demo, "colour", "red", &err), -EINVAL);
    assert_string_equal(err.text, "unknown setting 'colour'; refrain-worker --help lists all");
}

static void test_dump_when_values_are_set_masks_keys_and_quotes_spaces(void **state)
{
    struct buffer out;
    char *argv[] = {(char *)"p", (char *)"--api-key=geheim", (char *)"--model=my model", NULL};

    (void)state;
    assert_int_equal(settings_parse(&spec, &demo, 3, argv, &err), SETTINGS_RUN);
    buffer_init(&out, 4096);
    settings_dump(&spec, &demo, &out);
    assert_string_equal(out.data, "model=\"my model\" api-key=*** max-num-seqs=256 group=0 "
                                  "max-tokens=4294967296 watermark=0.01 enable-prefix-caching=true "
                                  "kv-cache-memory=1GiB policy=prefix");
    buffer_done(&out);
}

static void test_example_when_every_line_is_taken_in_gives_the_defaults(void **state)
{
    struct buffer out;
    struct buffer conf;
    char *rest;

    (void)state;
    buffer_init(&out, 16384);
    buffer_init(&conf, 16384);
    settings_example(&spec, &out);
    assert_non_null(strstr(out.data, "\n[worker]\n"));
    assert_non_null(strstr(out.data, "\n\n# Sequences per step.\n#max-num-seqs = 256\n"));
    write_conf(out.data);
    assert_int_equal(parse(""), SETTINGS_RUN); /* as shipped it changes nothing */
    settings_done(&spec, &demo);
    for (char *line = strtok_r(out.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        bool is_value = line[0] == '#' && line[1] != ' ';

        buffer_printf(&conf, "%s\n", is_value ? line + 1 : line);
    }
    write_conf(conf.data);
    assert_int_equal(parse("--max-tokens 5"), SETTINGS_RUN);
    assert_string_equal(demo.model, "");
    assert_int_equal(demo.sequences_max, 256);
    assert_true(demo.watermark == 0.01);
    assert_true(demo.kv_bytes == (uint64_t)1 << 30);
    buffer_done(&conf);
    buffer_done(&out);
}

static void test_parse_bytes_when_given_each_unit_multiplies(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1048576", 1048576},
        {"1024", 1024},
        {"512MiB", 536870912},
        {"2GiB", 2147483648},
        {"2G", 2147483648},
        {"2g", 2147483648},
        {"100MB", 100000000},
        {"3KB", 3000},
        {"3K", 3072},
        {"7B", 7},
        {"0", 0},
        {"4", 4294967296},
        {"1023", 1098437885952},
        {"0.5", 536870912},
        {"4096.0", 4398046511104},
        {"1.5GiB", 1610612736},
        {"1.5 GiB", 1610612736},
        {"0.001MB", 1000},
        {"1TiB", 1099511627776},
        {"18446744073709551615B", UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 1;

        assert_int_equal(settings_parse_bytes(cases[i].text, &bytes), 0);
        assert_true(bytes == cases[i].bytes);
    }
}

static void test_parse_bytes_when_malformed_refuses(void **state)
{
    static const char *const bad[] = {
        "",
        "GiB",
        "-1",
        "+1GiB",
        " 1GiB",
        "1.GiB",
        ".5",
        "1  GiB",
        "1 ",
        "1XB",
        "1e9",
        "0x10",
        "1GiBx",
        "1,5GiB",
        "18446744073709551616",
        "16777216TiB",
        "1.5.5",
        "17179869184.5",
        "99999999999999999999999999999",
        "18446744073709551615.9B",
    };
    uint64_t bytes = 77;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (settings_parse_bytes(bad[i], &bytes) != -EINVAL)
            fail_msg("'%s' was accepted", bad[i]);
    }
    assert_int_equal(bytes, 77);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_parse_when_nothing_is_given_takes_the_defaults),
        TEST(test_parse_when_flags_are_given_in_each_spelling_takes_them),
        TEST(test_parse_when_a_bool_is_spelled_out_takes_its_word),
        TEST(test_parse_when_a_flag_is_wrong_says_how),
        TEST(test_parse_when_the_flag_is_very_long_refuses_it),
        TEST(test_parse_when_a_file_is_given_orders_cluster_section_group_flag),
        TEST(test_parse_when_the_file_belongs_to_others_too_skips_their_sections),
        TEST(test_parse_when_the_file_is_wrong_names_the_line),
        TEST(test_parse_when_the_file_is_binary_or_endless_refuses),
        TEST(test_parse_when_a_path_is_long_keeps_all_of_it),
        TEST(test_parse_when_the_file_is_missing_answers_enoent),
        TEST(test_parse_when_asked_for_help_prints_the_table_and_leaves),
        TEST(test_set_when_given_one_name_changes_one_value),
        TEST(test_dump_when_values_are_set_masks_keys_and_quotes_spaces),
        TEST(test_example_when_every_line_is_taken_in_gives_the_defaults),
        cmocka_unit_test(test_parse_bytes_when_given_each_unit_multiplies),
        cmocka_unit_test(test_parse_bytes_when_malformed_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
