/* `xenon tokenize`: ids and pieces of a text, or the text of ids, without loading weights.
 * Threads: main. Owns: nothing. */
#ifndef CMD_TOKENIZE_H
#define CMD_TOKENIZE_H

/* argv[0] is "tokenize". Returns the exit status: 0; 1 when the model or the text cannot be read; 2 for a wrong flag.
 */
int tokenize_main(int argc, char **argv);

#endif
