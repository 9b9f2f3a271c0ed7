/* `xenon chat`: a conversation in the terminal, or line by line in a pipe.
 * Threads: main. Owns: nothing. */
#ifndef CMD_CHAT_H
#define CMD_CHAT_H

/* argv[0] is "chat". Returns the exit status: 0; 1 when something failed; 2 for a wrong flag. */
int chat_main(int argc, char **argv);

#endif
