/* `xenon inspect`: what is in a model and what it would take to run it, without loading its weights.
 * Threads: main. Owns: nothing. */
#ifndef CMD_INSPECT_H
#define CMD_INSPECT_H

/* argv[0] is "inspect". Returns the exit status: 0; 1 when the model cannot be read; 2 for a wrong flag. */
int inspect_main(int argc, char **argv);

#endif
