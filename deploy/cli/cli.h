/* cli.h - the operator's tool: one file per command, each with this entry point.
 *
 * argv[0] is the command's name. Returns the exit code: 0 done, 1 it could not be done (said on
 * stderr in one line), 2 wrong usage. */
#ifndef REFRAIN_DEPLOY_CLI_CLI_H
#define REFRAIN_DEPLOY_CLI_CLI_H

#define EXIT_DONE 0
#define EXIT_FAILED 1
#define EXIT_USAGE 2

int command_up(int argc, char **argv);
int command_status(int argc, char **argv);
int command_text(int argc, char **argv);
int command_doctor(int argc, char **argv);

#endif
