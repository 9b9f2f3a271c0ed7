/* `xenon topo`: the machine as this process may use it, and the lanes that would be chosen on it.
 * Threads: main. Owns: nothing. */
#ifndef CMD_TOPO_H
#define CMD_TOPO_H

/* argv[0] is "topo". Prints to stdout; returns the exit status: 0, 1 when the machine cannot be read or the output
 * cannot be written, 2 for a wrong flag (one line on stderr). */
int topo_main(int argc, char **argv);

#endif
