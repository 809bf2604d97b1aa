/* A program that asks for its own file, `__file__`, is also a file in its home while it runs. */
#ifndef GLOVEBOX_OWN_FILE_H
#define GLOVEBOX_OWN_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the program to the working directory if its text contains `__file__`, and writes the path of the copy to `path`.
 * Returns false if it does not, or if there is no room for a copy: the program knows its original file then. */
bool own_file_copy(const char *program, char *path, size_t size);

#endif
