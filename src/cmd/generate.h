/* `xenon generate`: prompts in, text out, through the batching engine.
 * Threads: main. Owns: nothing. */
#ifndef CMD_GENERATE_H
#define CMD_GENERATE_H

/* argv[0] is "generate". Text goes to stdout, progress and figures to stderr. Returns the exit status: 0; 1 when
 * something failed; 2 for a wrong flag. */
int generate_main(int argc, char **argv);

#endif
