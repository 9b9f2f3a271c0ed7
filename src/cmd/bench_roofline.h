/* `xenon bench roofline`: what the machine gives, measured.
 * Threads: main. Owns: nothing. */
#ifndef CMD_BENCH_ROOFLINE_H
#define CMD_BENCH_ROOFLINE_H

/* argv[0] is "roofline". Returns the exit status: 0, 1 when something failed, 2 for a wrong flag. */
int bench_roofline_main(int argc, char **argv);

#endif
