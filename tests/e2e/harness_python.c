/* harness_python.c - clients that others wrote, in an environment made once, in the build folder.
 */
#include <cmocka.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define VENV BUILD_DIR "/e2e-venv"
#define PYTHON VENV "/bin/python"
#define INSTALL_DEADLINE_MS 300000u
#define OPENAI "openai==3.57.0"
#define LANGCHAIN "langchain-openai==1.7.4"
#define JSONSCHEMA "jsonschema==4.26.0"

/* Whether all is there in these versions. */
static const char check[] = "import importlib.metadata as m, sys;"
                            "sys.exit(any(m.version(a.split('==')[0]) != a.split('==')[1]"
                            " for a in sys.argv[1:]))";

/* 0, or what failed. */
static int run_quietly(const char *const *argv, uint32_t deadline_ms)
{
    struct program program;
    program_run(&program, deadline_ms, argv);
    if (program.code != 0)
        print_message("%s\n", program.err);
    int code = program.code;
    program_done(&program);
    return code;
}

static bool is_installed(void)
{
    return file_exists(PYTHON) && run_quietly((const char *const[]){PYTHON, "-c", check, OPENAI,
                                                                    LANGCHAIN, JSONSCHEMA, NULL},
                                              30000) == 0;
}

void python_install_clients(void)
{
    if (is_installed())
        return;
    if (run_quietly(
            (const char *const[]){"/usr/bin/env", "python3", "-m", "venv", "--clear", VENV, NULL},
            INSTALL_DEADLINE_MS) != 0 ||
        run_quietly((const char *const[]){PYTHON, "-m", "pip", "install", "--quiet",
                                          "--disable-pip-version-check", OPENAI, LANGCHAIN,
                                          JSONSCHEMA, NULL},
                    INSTALL_DEADLINE_MS) != 0)
        e2e_skip(OPENAI ", " LANGCHAIN " and " JSONSCHEMA " cannot be installed into " VENV
                        ": is PyPI reachable?");
}

void python_assert_passes(const char *script, const struct cluster *cluster, const char *key,
                          uint32_t deadline_ms)
{
    struct program program;
    char *path = mem_printf("%s/tests/e2e/clients/%s", SOURCE_DIR, script);

    program_run(&program, deadline_ms,
                (const char *const[]){PYTHON, path, cluster->url, cluster->model, key, NULL});
    mem_free(path);
    (void)fprintf(stdout, "%s%s", program.out, program.err);
    assert_int_equal(program.code, 0);
    assert_non_null(strstr(program.out, "all passed"));
    program_done(&program);
}
