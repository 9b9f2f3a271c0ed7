/* `xenon bench load`: how fast weights are packed, against the machine's copy speed at the same moment, and what
 * loading a model costs in time and memory.
 * Threads: main. Owns: nothing. */
#ifndef CMD_BENCH_LOAD_H
#define CMD_BENCH_LOAD_H

/* argv[0] is "load". Returns the exit status: 0, 1 when something failed, 2 for a wrong flag. */
int bench_load_main(int argc, char **argv);

#endif
