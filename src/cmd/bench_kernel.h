/* `xenon bench kernel`: the matrix kernels alone, on all lanes: GB/s of packed weights and GOPS for every format and
 * number of rows.
 * Threads: main. Owns: nothing. */
#ifndef CMD_BENCH_KERNEL_H
#define CMD_BENCH_KERNEL_H

/* argv[0] is "kernel". Returns the exit status: 0, 1 when something failed, 2 for a wrong flag. */
int bench_kernel_main(int argc, char **argv);

#endif
