/* `xenon bench roofline | kernel | step`: measurements, always beside what the machine gives (docs/PERF.md).
 * Threads: main. Owns: nothing. */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

/* argv[0] is "bench". Returns the exit status: 0, 1 when something failed, 2 for a wrong flag or word. */
int bench_main(int argc, char **argv);

#endif
