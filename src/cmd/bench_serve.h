/* `xenon bench serve`: loads a running server as many OpenAI clients would, and says how long they waited
 * (docs/SERVING.md). Threads: main. Owns: nothing. */
#ifndef CMD_BENCH_SERVE_H
#define CMD_BENCH_SERVE_H

/* argv[0] is "serve". Returns the exit status: 0, 1 when a request failed, 2 for a wrong flag. */
int bench_serve_main(int argc, char **argv);

#endif
