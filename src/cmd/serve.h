/* xenon serve: the OpenAI-compatible server. */
#ifndef CMD_SERVE_H
#define CMD_SERVE_H

/* argv[0] is "serve". Returns the process's exit code: 0 after a drain, 1 when something failed, 2 for wrong flags. */
int serve_main(int argc, char **argv);

#endif
