/* main.c - `refrain COMMAND ...`: finds the command in a table and runs it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "deploy/cli/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"up", command_up, "start router and workers on this machine and keep them running"},
    {"status", command_status, "a table of the router, its groups, their ranks and blocks"},
    {"text", command_text, "tokenize, detokenize and render prompts as the router does"},
    {"doctor", command_doctor, "memory: is growth expected, or a leak? with the evidence"},
};

static void print_help(FILE *out)
{
    fprintf(out, "usage: refrain COMMAND [flags]\n\ncommands:\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\n`refrain COMMAND --help` lists a command's flags.\n");
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        fprintf(stdout, "refrain %s\n", REFRAIN_VERSION);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "refrain: no command '%s'\n\n", argv[1]);
    print_help(stderr);
    return EXIT_USAGE;
}
